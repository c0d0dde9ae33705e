#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who is fastest at which length of sequences: every family of schedules at its best, predicted
for nodes of eight H200 (docs/long.md).

    scripts/env benchmarks/results/rivals.py predict results/predicted/rivals.csv    # under ten minutes
    scripts/env benchmarks/results/rivals.py check results/predicted/rivals.csv --every 97
    scripts/env benchmarks/results/rivals.py tables results/predicted/rivals.csv
    scripts/env benchmarks/results/rivals.py picture results/predicted/rivals.csv rivals.png

A family may choose how many ranks share a sequence, the sizes of micro-batches, replicas,
recomputation, what ranks keep, and a pipeline its stages and slices. `predict` tries likely choices
with links of one rate, and the best of each kind with the others. --only MODEL,NODES,LENGTH
predicts one length again, --families some families; the table keeps its other rows.
"""

import concurrent.futures
import csv
import itertools
import math
import os
import pathlib
import sys

from matplotlib.patches import Patch, Rectangle
from pages import (
    DECKS,
    MACHINES,
    ROOT,
    add_program,
    end,
    parser_of,
    predict,
    print_table,
    read_table,
)
from minitaw.command import BadInput
from minitaw.drawing import COLOURS, new_figure, save
from minitaw.numbers import count_text

K = 1024
DECK = DECKS / "rivals.toml"
NODE = 8  # devices
DEVICE = 141e9  # bytes, of an H200
TOKENS = 8 * K * K  # of a step, about: as near as the micro-batches of a family come
LENGTHS = (4 * K, 16 * K, 64 * K, 256 * K, 1024 * K)
NODES = (3, 8, 32)
GBITS = (10, 50, 100, 400)
TRIED = 100  # Gbit/s at which all choices are tried
MODELS = {  # layers, H, key and value heads, F, vocabulary
    "0.7B": (24, 1536, 4, 4096, 32000),
    "8B": (32, 4096, 8, 14336, 128256),
    "70B": (80, 8192, 8, 28672, 128256),
}
KEPT = ":fetch=step:reduce=group:reshard=group"  # weights and gradients cross once a step
FAMILIES = {
    "TawPipe": ("tawpipe:shards=block", f"tawpipe:shards=block{KEPT}"),
    "FSDP": ("fsdp:hierarchical=on", "fsdp:hierarchical=on" + KEPT),
    "WeiPipe": ("weipipe",),
    "pipeline": (),
}
COLOUR_OF = dict(zip(FAMILIES, COLOURS))
RECOMPUTE = "keep-attention", "block"  # the first that fits
COLUMNS = ("model", "nodes", "seq", "gbits", "family", "schedule", "ranks", "replicas", "context",
           "micro_batch", "micro_batches", "recompute", "tokens_per_s_gpu", "memory_gb")  # fmt: skip


# Choices.


def model_settings(model, seq):
    names = ("layers", "hidden", "kv_heads", "ffn", "vocab")
    return [*(f"{name}={size}" for name, size in zip(names, MODELS[model])), f"seq={seq}"]


def parameters(model):
    layers, hidden, kv_heads, ffn, vocab = MODELS[model]
    return layers * hidden * (2 * hidden + 2 * 128 * kv_heads + 3 * ffn) + 2 * vocab * hidden


def saved_bytes(model, tokens):
    """Inputs of all blocks, which any recomputation keeps, in bf16."""
    layers, hidden, *_ = MODELS[model]
    return 2 * layers * hidden * tokens


def weight_passing(model, nodes, seq, one_replica_each=False):
    """Settings of ranks that visit the same blocks: the fewest ranks a sequence that memory may
    allow, and twice as many; replicas as large as the layers allow, and of a node."""
    ranks = NODE * nodes
    layers = MODELS[model][0]
    replicas = [r for r in range(1, nodes + 1) if nodes % r == 0 and ranks // r <= layers][:1]
    replicas = sorted({*replicas, nodes})
    found = []
    for n in (1,) if one_replica_each else (1, 2, 4, 8):
        most = 0.6 * DEVICE / saved_bytes(model, 1)  # tokens of a rank at a time
        batch = max(1, int(min(32 * K, most) * n / seq))
        groups = ranks // n
        rounds = max(1, round(TOKENS / (batch * groups * seq)))
        while batch > 1 and rounds * batch * groups * seq > 1.3 * TOKENS:
            batch -= 1
        tokens = rounds * batch * groups * seq
        if batch * seq / n <= most and tokens <= 1.3 * TOKENS and len(found) < 2:
            found.append(
                [
                    f"context={n}",
                    f"micro_batch={batch}",
                    f"micro_batches={rounds * groups}",
                    "replicas=" + ",".join(map(str, replicas)),
                ]
            )
    return found


def pipelines(model, nodes, seq):
    """Settings of pipelines: of stages, ranks a sequence and replicas those with the shortest step
    by the formula of the bubble and the longest stage, if memory may do."""
    layers, hidden, kv_heads, ffn, vocab = MODELS[model]
    ranks = NODE * nodes
    block = hidden * (2 * hidden + 256 * kv_heads + 3 * ffn) + seq * hidden
    ranked = []
    for n, stages in itertools.product((1, 2, 4, 8), range(2, layers + 1)):
        if ranks % (n * stages) != 0:
            continue
        replicas = ranks // (n * stages)
        # As large as a device likes, with enough for all stages.
        batch = max(1, min(16 * K * n, TOKENS // (8 * stages * replicas)) // seq)
        each = max(1, round(TOKENS / (batch * seq * replicas)))
        if each * replicas * batch * seq > 1.3 * TOKENS:
            continue
        mean = (4 * layers * block + 3 * vocab * hidden) / stages
        longest = max(math.ceil(mean / (4 * block)) * 4 * block, mean)
        for slices in (1, 4, 16):
            if slices > 1 and batch * seq // (slices * n) < 2 * K:
                continue
            in_flight = min(each, (stages - 1 + slices) / slices)
            keys = (2 + stages / slices) * batch * seq * 4 * 128 * kv_heads * layers / stages
            memory = 18 * parameters(model) / stages
            memory += saved_bytes(model, batch * seq / n) / stages * in_flight
            memory += keys if slices > 1 else 0
            share = longest / mean * (1 + (stages - 1) / (3 * slices * each))
            if memory < DEVICE:
                ranked.append((share, n, stages, slices, batch, each * replicas, replicas))
    found = []
    for _, n, stages, slices, batch, micro_batches, replicas in sorted(ranked)[:12]:
        names = [f"{name}:slices={slices}" for name in ("1f1b", "zb1")]
        found.append(
            [
                f"context={n}",
                f"micro_batch={batch}",
                f"micro_batches={micro_batches}",
                f"replicas={replicas}",
                "schedule=" + ",".join(names),
            ]
        )
    return found


def choices_of(family, model, nodes, seq):
    """Lists of settings, each of which may sweep some keys."""
    if family == "pipeline":
        return pipelines(model, nodes, seq)
    specs = "schedule=" + ",".join(FAMILIES[family])
    return [
        [*settings, specs] for settings in weight_passing(model, nodes, seq, family == "WeiPipe")
    ]


# Prediction.


def predicted(options, model, nodes, seq, gbits, settings):
    """Cases that fit; of settings that no schedule takes, none."""
    links = [
        f"nodes={nodes}",
        f"between.rate={gbits} Gbit/s",
        "between.adapters=1",
        f"device.memory={DEVICE / 1e9:.0f} GB",
    ]
    all_settings = [
        f"ranks={NODE * nodes}",
        f"group_size={NODE}",
        *model_settings(model, seq),
        *settings,
    ]
    try:
        return predict(
            options.minitaw, DECK, MACHINES / "dgx-h100.toml", all_settings, links, ["--fitting"]
        )
    except BadInput as error:
        if "minitaw: " not in str(error):  # not a refusal
            raise
        return []


def fixed(case):
    """The settings of a case, each with its one value."""
    names = ("schedule", "replicas", "context", "micro_batch", "micro_batches", "recompute")
    return [f"{name}={case['settings'][name]}" for name in names]


def leaders(cases, count):
    """The fastest of each schedule and number of replicas, so many of them."""
    best = {}
    for case in sorted(cases, key=lambda case: -case["tokens_per_s"]):
        kind = case["settings"]["schedule"], case["settings"]["replicas"]
        best.setdefault(kind, case)
    return list(best.values())[:count]


def leaders_of(family, gbits):
    """So many are predicted again. A pipeline that is fastest at TRIED is at faster links."""
    if family != "pipeline":
        return 4
    return 2 if gbits < TRIED else 1


def row_of(model, nodes, seq, gbits, family, case):
    settings = case["settings"]
    names = (
        "schedule",
        "ranks",
        "replicas",
        "context",
        "micro_batch",
        "micro_batches",
        "recompute",
    )
    rate = case["tokens_per_s"] / int(settings["ranks"])
    values = [settings[name] for name in names]
    return [
        model,
        nodes,
        seq,
        gbits,
        family,
        *values,
        f"{rate:.1f}",
        f"{case['memory_bytes'] / 1e9:.1f}",
    ]


def rows_for(options, model, nodes, seq):
    """One row a rate and family that fits."""
    rows = []
    for family in options.families:
        tried, fitting_choices = [], 0
        for settings in choices_of(family, model, nodes, seq):
            if family == "pipeline" and fitting_choices == 3:
                break
            for recompute in RECOMPUTE:
                settings_now = [*settings, f"recompute={recompute}"]
                if fitting := predicted(options, model, nodes, seq, TRIED, settings_now):
                    tried += fitting
                    fitting_choices += 1
                    break
        for gbits in GBITS:
            cases = tried
            if gbits != TRIED:
                cases = [
                    case
                    for leader in leaders(tried, leaders_of(family, gbits))
                    for case in predicted(options, model, nodes, seq, gbits, fixed(leader))
                ]
            if cases:
                best = max(cases, key=lambda case: case["tokens_per_s"])
                rows.append(row_of(model, nodes, seq, gbits, family, best))
    return rows


def predict_all(options):
    places = list(itertools.product(MODELS, NODES, LENGTHS))
    if options.only:
        model, nodes, length = options.only.split(",")
        places = [(model, int(nodes), K * int(length.removesuffix("K")))]
    done = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        lists = []
        for rows in pool.map(lambda place: rows_for(options, *place), places):
            lists.append(rows)
            done += 1
            print(f"\r{done} of {len(places)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows = list(itertools.chain(*lists))
    if options.only or options.families != list(FAMILIES):
        rows += [
            list(row.values())
            for row in read_table(options.table)
            if row["family"] not in options.families
            or (row["model"], int(row["nodes"]), int(row["seq"])) not in places
        ]
    rows.sort(key=place_in_table)
    options.table.parent.mkdir(parents=True, exist_ok=True)
    with open(options.table, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def place_in_table(row):
    model, nodes, seq, gbits, family = row[:5]
    return (
        list(MODELS).index(model),
        *map(int, (nodes, seq, gbits)),
        list(FAMILIES).index(family),
    )


# Tables and the picture.


def ranking(rows):
    """{(model, nodes, seq, gbits): rows of its families, the fastest first}."""
    found = {}
    for row in rows:
        place = row["model"], int(row["nodes"]), int(row["seq"]), int(row["gbits"])
        found.setdefault(place, []).append(row)
    for families in found.values():
        families.sort(key=lambda row: -float(row["tokens_per_s_gpu"]))
    return found


def lead_of(families):
    """By how much the first is faster than the second; None without one."""
    if len(families) < 2:
        return None
    first, second = (float(row["tokens_per_s_gpu"]) for row in families[:2])
    return first / second - 1


def cell_text(families):
    """The two fastest and their rates."""
    said = [f"{row['family']} {float(row['tokens_per_s_gpu']):.0f}" for row in families[:2]]
    return ", ".join(said) or "-"


def rates_text(gbits):
    return f"{gbits} Gbit/s"


def print_tables(options):
    found = ranking(read_table(options.table))
    print("# docs/long.md\n\n## Predicted: who is fastest where\n")
    for model in MODELS:
        lines = []
        for nodes, seq in itertools.product(NODES, LENGTHS):
            cells = [cell_text(found.get((model, nodes, seq, gbits), [])) for gbits in GBITS]
            lines.append([f"{nodes} nodes, {count_text(seq)}", *cells])
        print_table([f"{model} parameters", *map(rates_text, GBITS)], lines)
    print("## Predicted: how they do it\n")
    for family in FAMILIES:
        lines = []
        for model, seq in itertools.product(MODELS, LENGTHS):
            families = found.get((model, NODES[0], seq, TRIED), [])
            rows = [row for row in families if row["family"] == family]
            names = ("schedule", "replicas", "context", "micro_batch", "recompute", "memory_gb")
            lines += [
                [f"{model}, {count_text(seq)}", *(row[name] for name in names)] for row in rows
            ]
        head = [family, "schedule", "replicas", "n", "B", "recompute", "GB"]
        print_table(head, lines)


def check(options):
    """Predicts some rows of a table again."""
    rows = read_table(options.table)[:: options.every]
    for row in rows:
        place = row["model"], int(row["nodes"]), int(row["seq"]), int(row["gbits"])
        cases = predicted(options, *place, fixed({"settings": row}))
        now = row_of(*place, row["family"], cases[0]) if cases else []
        if list(map(str, now)) != list(row.values()):
            raise BadInput(f"{options.table}: {list(row.values())} is now {now}")
    print(f"{len(rows)} rows are predicted as they stand there")


def draw_cell(axes, x, y, families):
    colour, lead = "0.85", None
    if families:
        colour, lead = COLOUR_OF[families[0]["family"]], lead_of(families)
    # Within 2 %, which the prediction does not tell apart, the second is as good.
    close = lead is not None and lead < 0.02
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, alpha=0.35 if close else 0.8))
    if close:
        axes.plot(x, y, "s", color=COLOUR_OF[families[1]["family"]], markersize=6)
    elif lead is not None:
        axes.text(x, y, f"+{100 * lead:.0f} %", ha="center", va="center", fontsize=7)


def draw(options):
    found = ranking(read_table(options.table))
    drawn = new_figure(10, 6.4)
    for number, (model, nodes) in enumerate(itertools.product(MODELS, NODES)):
        axes = drawn.add_subplot(len(MODELS), len(NODES), number + 1)
        for (x, seq), (y, gbits) in itertools.product(enumerate(LENGTHS), enumerate(GBITS)):
            draw_cell(axes, x, y, found.get((model, nodes, seq, gbits), []))
        axes.set(
            xlim=(-0.5, len(LENGTHS) - 0.5),
            ylim=(-0.5, len(GBITS) - 0.5),
            xticks=range(len(LENGTHS)),
            yticks=range(len(GBITS)),
            xticklabels=[count_text(seq) for seq in LENGTHS],
            yticklabels=GBITS if nodes == NODES[0] else [],
        )
        axes.tick_params(length=0)
        if model == next(iter(MODELS)):
            axes.set_title(f"{nodes} nodes of 8 H200", fontsize=9)
        if nodes == NODES[0]:
            axes.set_ylabel(f"{model} parameters\nGbit/s a node")
        if model == list(MODELS)[-1]:
            axes.set_xlabel("tokens a sequence")
    patches = [Patch(color=colour, alpha=0.8, label=name) for name, colour in COLOUR_OF.items()]
    patches.append(Patch(color="0.85", label="nothing fits"))
    drawn.legend(handles=patches, loc="outside lower center", ncols=5)
    save(drawn, options.picture)


def main():
    parser = parser_of(__doc__)
    verbs = parser.add_subparsers(required=True)
    for name, work in (
        ("predict", predict_all),
        ("check", check),
        ("tables", print_tables),
        ("picture", draw),
    ):
        verb = verbs.add_parser(name)
        verb.set_defaults(work=work)
        verb.add_argument("table", type=pathlib.Path)
        if name in ("predict", "check"):
            add_program(verb)
        if name == "predict":
            verb.add_argument("--only", metavar="MODEL,NODES,LENGTH")
            verb.add_argument(
                "--families", type=lambda text: text.split(","), default=list(FAMILIES)
            )
        if name == "check":
            verb.add_argument("--every", type=int, default=1, metavar="ROWS")
        if name == "picture":
            verb.add_argument("picture", type=pathlib.Path)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    end(main)
