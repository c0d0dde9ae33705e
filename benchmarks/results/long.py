#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The numbers of docs/long.md: sequences that ranks share, measured on this machine and predicted
on others.

    scripts/env benchmarks/results/long.py measure FOLDER      # an hour
    scripts/env benchmarks/results/long.py tables results/2-core-epyc/2026-11-26-long
    scripts/env benchmarks/results/long.py predict             # minutes
    scripts/env benchmarks/results/long.py picture results/2-core-epyc/2026-11-26-long long.png

`measure` runs inputs/wires/long.toml and leaves a table FOLDER/PART.csv of each part: `nodes`, on
two nodes of two ranks (docs/cluster.md); `slices`, pipelines that pass slices, on two and three
nodes of one rank; `pairs`, two ranks that share sequences or not, in turn;
`crossing`, bytes of weight passing and of a pipeline; `precision`, errors of gradients in bf16.
--only names parts. `tables` prints what it left, `predict` what the program says of larger machines.
"""

import csv
import json
import pathlib
import statistics
import subprocess
import tempfile

from matplotlib import ticker
from long_predicted import LENGTHS, TOKENS, device_gb, plan_8b, print_predictions
from pages import (
    ROOT,
    add_program,
    cluster_words,
    end,
    one_thread,
    parser_of,
    print_table,
    read_table,
    set_words,
)
from minitaw.drawing import (
    COLOURS,
    GRID,
    MARKERS,
    legend_of_panel,
    mark_counts,
    new_figure,
    save,
)
from minitaw.numbers import count_text
from minitaw.record import load

DECK = "inputs/wires/long.toml"
SLICES = "inputs/wires/slices.toml"
COLUMNS = ("started", "schedule", "ranks", "groups", "context", "layers", "hidden", "heads", "seq",
           "micro_batches", "steps", "repeats", "median_s", "q1_s", "q3_s", "tokens_per_s",
           "bytes_inside", "bytes_between", "planned_inside", "planned_between",
           "memory_measured", "memory_planned", "exposed_share", "exposed_context_s", "compute_s",
           "idle_share", "verdict")  # fmt: skip
K = 1024
MIB = 2**20
# Of two nodes: rate, lengths (K), settings. A step of 32K takes more than a minute.
LONGEST = ["schedule=tawpipe,fsdp:hierarchical=on", "warmup=0"]
NODES = [
    ("100mbit", (1, 2, 4), []),
    ("1gbit", (1, 2, 4, 8), []),
    ("100mbit", (8, 16), []),
    ("100mbit", (32,), LONGEST),
]
# Of pipelines with slices: nodes, rate, lengths (K).
WIRES = [(2, "50mbit", (1, 4, 8)), (2, "1gbit", (1, 4, 8)), (3, "100mbit", (4,))]
# Of two ranks: length (K), steps, runs of each.
PAIRS = [(4, 5, 4), (8, 3, 1)]
PAIR = ["hidden=128", "heads=2", "micro_batches=2", "ranks=2", "groups=1", "schedule=tawpipe"]
CROSSING = ["layers=6", "hidden=96", "heads=3", "ffn=256", "ranks=6", "groups=3",
            "schedule=tawpipe,1f1b"]  # fmt: skip
PRECISION = ["schedule=ddp", "ranks=8", "context=1,2,4,8", "context_grad_dtype=auto,fp32",
             "grad_dtype=fp32", "hidden=128", "heads=4", "kv_heads=2", "seq=256",
             "micro_batches=8", "dtype=bf16", "steps=1", "warmup=0"]  # fmt: skip
DEPTHS, SEEDS = (4, 12), (1, 2, 3)


# Measuring.


def run(launch, settings, *words, deck=DECK):
    """The rows of a result, of which COLUMNS are kept."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.h5"
        command = [*launch, "build/host/minitaw", "run", deck, *set_words(settings), *words]
        subprocess.run([*command, "-o", path], check=False, cwd=ROOT, env=one_thread())
        cases = load(str(path)).cases
    return [{name: case[name] for name in COLUMNS} for case in cases]


def ranks(count):
    return ["scripts/env", "mpiexec", "-n", str(count)]


def nodes_part():
    for rate, lengths, settings in NODES:
        for seq in lengths:
            words = cluster_words(2, 2, rate)
            for row in run(words, [f"seq={seq}K", "groups=2", *settings]):
                yield {"rate": rate, **row}


def slices_part():
    for count, rate, lengths in WIRES:
        for seq in lengths:
            words = cluster_words(count, 1, rate)
            for row in run(words, [f"seq={seq}K"], deck=SLICES):
                yield {"rate": rate, **row}


def pairs_part():
    for seq, steps, runs in PAIRS:
        for context in runs * (1, 2):
            settings = [*PAIR, f"seq={seq}K", f"steps={steps}", f"context={context}"]
            yield from run(ranks(2), settings)


def crossing_part():
    """The same tokens a step and round: with two ranks a sequence it is twice as long."""
    for context in (1, 2):
        for seq in (576, 1152, 2304):
            sizes = [f"seq={context * seq}", f"micro_batches={6 // context}"]
            yield from run(ranks(6), [*CROSSING, f"context={context}", *sizes])


def precision_part():
    for layers in DEPTHS:
        for seed in SEEDS:
            settings = set_words([*PRECISION, f"layers={layers}", f"seed={seed}"])
            words = [*ranks(8), "build/host/minitaw", "verify", DECK, *settings, "--json"]
            done = subprocess.run(
                words, check=True, cwd=ROOT, env=one_thread(), capture_output=True, text=True
            )
            for case in json.loads(done.stdout)["cases"]:
                names = ("layers", "seed", "context", "context_grad_dtype")
                row = {name: case["settings"][name] for name in names}
                error = case["first_step"]["gradient_error"]
                yield row | {"against": case["against"], "gradient_error": error}


PARTS = {
    "nodes": nodes_part,
    "slices": slices_part,
    "pairs": pairs_part,
    "crossing": crossing_part,
    "precision": precision_part,
}


def measure(options):
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        writer = None
        with open(options.folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            for row in PARTS[name]():
                if writer is None:
                    writer = csv.DictWriter(file, list(row), lineterminator="\n")
                    writer.writeheader()
                writer.writerow(row)
                file.flush()


# What was measured.


def rows_of(folder, part):
    return read_table(folder / f"{part}.csv", "measure")


def by(rows, *names):
    """{values of these columns: the row}; the last one counts."""
    return {tuple(row[name] for name in names): row for row in rows}


def in_order(rows, name):
    return list(dict.fromkeys(row[name] for row in rows))


def number(row, name):
    return float(row[name])


def step_text(row):
    """Seconds; * where the case is not VALID or doubted."""
    return f"{number(row, 'median_s'):.2f}{'' if row['verdict'] == 'VALID' else '*'}"


def nodes_rows(rows):
    """For each length and schedule: one rank a sequence, two, and the ratio of the steps."""
    found = by(rows, "seq", "schedule", "rate", "context")
    rates = in_order(rows, "rate")
    for seq in sorted(in_order(rows, "seq"), key=int):
        for schedule in in_order(rows, "schedule"):
            cells, one, two = [], None, None
            for rate in rates:
                here = [found.get((seq, schedule, rate, n)) for n in ("1", "2")]
                if all(here):
                    one, two = here
                    ratio = number(one, "median_s") / number(two, "median_s")
                    cells += [step_text(one), step_text(two), f"{ratio:.2f}"]
                else:
                    cells += ["-"] * 3
            if one:
                for name, unit in (("bytes_between", MIB), ("bytes_inside", MIB)):
                    cells.append(" / ".join(f"{number(r, name) / unit:.1f}" for r in (one, two)))
                memory = [number(r, "memory_measured") / MIB for r in (one, two)]
                cells.append(" / ".join(f"{size:.1f}" for size in memory))
                yield [count_text(int(seq)), f"`{schedule}`", *cells]


def print_nodes(rows):
    head = ["S", "schedule"]
    for rate in in_order(rows, "rate"):
        speed = WIRE_TEXTS[rate]
        head += [f"{speed}: n = 1, s", f"{speed}: n = 2, s", f"{speed}: rate"]
    head += ["between, MiB", "inside, MiB", "memory, MiB"]
    print_table(head, nodes_rows(rows))


WIRE_TEXTS = {
    "50mbit": "50 Mbit/s",
    "100mbit": "100 Mbit/s",
    "1gbit": "1 Gbit/s",
}


def print_slices(rows):
    """For each schedule the step of every place, and memory of the last one."""
    found = by(rows, "ranks", "rate", "seq", "schedule")
    places = list(dict.fromkeys((row["ranks"], row["rate"], row["seq"]) for row in rows))
    lines = []
    for schedule in in_order(rows, "schedule"):
        here = [found[(*place, schedule)] for place in places]
        memory = number(here[-1], "memory_measured") / MIB
        lines.append([f"`{schedule}`", *map(step_text, here), f"{memory:.1f}"])
    head = [
        f"{ranks} nodes, {WIRE_TEXTS[rate]}, {count_text(int(seq))}: s"
        for ranks, rate, seq in places
    ]
    print_table(["schedule", *head, "memory, MiB"], lines)


def print_pairs(rows):
    """Medians over the runs."""
    lines = []
    for seq in in_order(rows, "seq"):
        used, waits = [], []
        for n in ("1", "2"):
            here = [row for row in rows if (row["seq"], row["context"]) == (seq, n)]
            used.append(statistics.median(number(row, "median_s") for row in here))
            waits = [number(row, "exposed_context_s") / number(row, "median_s") for row in here]
        low, high = 100 * min(waits), 100 * max(waits)
        seconds = [f"{size:.2f}" for size in used]
        ratio = f"{used[0] / used[1]:.3f}"
        lines.append(
            [count_text(int(seq)), len(here), *seconds, ratio, f"{low:.1f} to {high:.1f} %"]
        )
    head = ["S", "runs of each", "n = 1, s", "n = 2, s", "rate", "waits"]
    print_table(head, lines)


def print_crossing(rows):
    found = by(rows, "seq", "context", "schedule")
    lines = []
    for seq, context in dict.fromkeys((row["seq"], row["context"]) for row in rows):
        pair = [found[seq, context, schedule] for schedule in ("tawpipe", "1f1b")]
        tokens = int(seq) * int(pair[0]["micro_batches"])
        sent = [number(row, "bytes_between") for row in pair]
        assert all(row["bytes_between"] == row["planned_between"] for row in pair)
        first = "weights" if sent[0] < sent[1] else "pipeline"
        lines.append([tokens, context, *(f"{size / MIB:.2f}" for size in sent), first])
    print_table(["tokens a round", "n", "`tawpipe`, MiB", "`1f1b`, MiB", "sends less"], lines)


def print_precision(rows):
    lines = []
    for layers in in_order(rows, "layers"):
        here = [row for row in rows if row["layers"] == layers]
        base = [number(row, "gradient_error") for row in here if "float64" in row["against"]]
        base = statistics.median(base)
        for context in ("2", "4", "8"):
            cells = []
            for kind in ("bf16", "fp32"):
                errors = [
                    number(row, "gradient_error")
                    for row in here
                    if (row["context"], row["context_grad_dtype"]) == (context, kind)
                    and "serial" in row["against"]
                ]
                added = (base**2 + statistics.median(errors) ** 2) ** 0.5
                cells += [f"{statistics.median(errors):.1e}", f"{added / base - 1:+.0%}"]
            lines.append([layers, context, f"{base:.1e}", *cells])
    head = ["L", "n", "bf16 itself", "sums in bf16", "they add", "sums in fp32", "these add"]
    print_table(head, lines)


def tables(options):
    print("# docs/long.md\n\n## Measured: two nodes\n")
    print_nodes(rows_of(options.folder, "nodes"))
    print("## Measured: pipelines that pass slices\n")
    print_slices(rows_of(options.folder, "slices"))
    print("## Measured: what sharing costs\n")
    print_pairs(rows_of(options.folder, "pairs"))
    print("## Weight passing or a pipeline\n")
    print_crossing(rows_of(options.folder, "crossing"))
    print("## Precision of the summed gradients\n")
    print_precision(rows_of(options.folder, "precision"))


# Predicted, and drawn.


def print_predicted(options):
    print_predictions(options.minitaw)


def name_axes(axes, title):
    axes.set(yscale="log", xlabel="S")
    axes.set_title(title, loc="left", fontsize=9)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def draw_measured(axes, rows):
    """Tokens/s at the slower links, relative to the fastest of each length."""
    rows = [row for row in rows if row["rate"] == "100mbit"]
    best = {}
    for row in rows:
        best[row["seq"]] = max(best.get(row["seq"], 0.0), number(row, "tokens_per_s"))
    for i, schedule in enumerate(in_order(rows, "schedule")):
        for n, dashes in (("1", "-"), ("2", "--")):
            here = [row for row in rows if (row["schedule"], row["context"]) == (schedule, n)]
            axes.plot(
                [int(row["seq"]) for row in here],
                [number(row, "tokens_per_s") / best[row["seq"]] for row in here],
                dashes,
                color=COLOURS[i],
                marker=MARKERS[i],
                label=f"{schedule}, n = {n}",
            )
    title = "measured on two nodes of two ranks, 100 Mbit/s: tokens/s, of the fastest"
    name_axes(axes, title)
    axes.set(yscale="linear", ylim=(0, 1.05))
    mark_counts(axes, sorted({int(row["seq"]) for row in rows}))


def draw_memory(axes, program):
    """Of a rank of TawPipe, 8 B parameters on 8 devices."""
    for i, n in enumerate((1, 2, 4, 8)):
        sizes = []
        for seq in LENGTHS:
            settings = (f"seq={seq}K", f"context={n}", f"micro_batches={TOKENS // seq}")
            (planned,) = plan_8b(program, "schedule=tawpipe", *settings)
            sizes.append(device_gb(planned))
        label = f"n = {n}"
        axes.plot(
            [K * seq for seq in LENGTHS],
            sizes,
            color=COLOURS[3 + i],
            marker=MARKERS[3 + i],
            label=label,
        )
    for size in (80, 141):
        axes.axhline(size, color="0.4", linewidth=0.8)
        axes.text(K * LENGTHS[0], size, f"{size} GB", va="bottom", fontsize=8, color="0.3")
    name_axes(axes, "predicted GB a device, 8 B parameters on 8 devices, TawPipe")
    mark_counts(axes, [K * seq for seq in LENGTHS])


def picture(options):
    drawn = new_figure(10, 3.6)
    measured, memory = drawn.subplots(1, 2)
    draw_measured(measured, rows_of(options.folder, "nodes"))
    draw_memory(memory, options.minitaw)
    for axes in (measured, memory):
        axes.grid(True, **GRID)
    legends = [legend_of_panel(drawn, axes, 4.2) for axes in (measured, memory)]
    drawn.set_figheight(3.6 + max(legends))
    save(drawn, options.picture)


def main():
    parser = parser_of(__doc__)
    verbs = parser.add_subparsers(required=True)
    for name, work in (
        ("measure", measure),
        ("tables", tables),
        ("predict", print_predicted),
        ("picture", picture),
    ):
        verb = verbs.add_parser(name)
        verb.set_defaults(work=work)
        if name != "predict":
            verb.add_argument("folder", type=pathlib.Path)
        if name == "measure":
            verb.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS))
        if name == "picture":
            verb.add_argument("picture", type=pathlib.Path)
        if name in ("predict", "picture"):
            add_program(verb)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    end(main)
