# SPDX-License-Identifier: BSD-3-Clause
"""The predicted tables of docs/long.md: which lengths fit, how fast, how much is exposed."""

import csv
import functools

from pages import DECKS, MACHINES, ROOT, cases_of, predict, print_table, set_words
from minitaw.numbers import count_text

GB = 1e9
K = 1024
LENGTHS = (32, 64, 128, 256, 512, 1024)  # K tokens
SHARERS = (1, 2, 4, 8)  # ranks a sequence
LLAMA, H100 = DECKS / "long-8b.toml", MACHINES / "dgx-h100.toml"
ONE_NODE = ["nodes=1"]
RECORDS = "results/2-core-epyc/2026-11-26-long"
TOKENS = 8 * K  # K a step
SMALL, LARGE = 80, 141  # GB of a device
# torchtitan, 8 B parameters on 8 H100: tokens/s a GPU.
PUBLISHED = {(32, 1): 3890, (64, 2): 2540, (128, 4): 1071, (256, 8): 548}
KINDS = ("weights", "gradients", "optimiser", "activations", "buffers", "context")
ROUNDS = 8  # of a step: embedding and LM head pass once
# Blocks, width, feed-forward, groups of eight ranks.
MODELS = [(48, 1024, 3072, 2), (48, 1024, 3072, 3), (48, 4096, 11008, 3), (48, 4096, 11008, 6)]


def share(part, digits=1):
    return f"{100 * part:.{digits}f} %"


@functools.cache
def plan_8b(program, *settings):
    return cases_of(program, "plan", LLAMA, *set_words(settings), "--device-memory", "80G")


@functools.cache
def predict_8b(program, *settings):
    return predict(program, LLAMA, H100, settings, ONE_NODE)


def device_gb(case):
    """What the rank that needs most takes of its device, estimated libraries included."""
    device = case["device"]
    return (device["arena_bytes"] + device["libraries_estimate_bytes"]) / GB


def fit_text(size):
    """GB; bold where they are more than the smaller device has."""
    return f"{size:.0f}" if size <= SMALL else f"**{size:.0f}**"


def cell_8b(planned, predicted):
    size = device_gb(planned)
    if size > LARGE:
        return f"**{size:.0f}** GB"
    rate = predicted["tokens_per_s"] / predicted["settings_ranks"]
    return f"{rate:.0f}, {share(predicted['exposed']['context'])}, {fit_text(size)} GB"


def print_8b(program):
    """For each schedule: lengths and ranks a sequence, TOKENS a step."""
    for schedule in ("tawpipe", "fsdp", "1f1b"):
        rows = []
        for seq in LENGTHS:
            row = [f"{count_text(seq * K)}"]
            for n in SHARERS:
                sizes = (f"seq={seq}K", f"context={n}", f"micro_batches={TOKENS // seq}")
                settings = (f"schedule={schedule}", *sizes)
                (planned,), (case,) = plan_8b(program, *settings), predict_8b(program, *settings)
                ranks = int(case["settings"]["ranks"])
                row.append(cell_8b(planned, case | {"settings_ranks": ranks}))
            rows.append(row)
        print_table([f"`{schedule}`, S", *(f"n = {n}" for n in SHARERS)], rows)


def print_million(program):
    rows = []
    for ranks in (8, 16, 32):
        sizes = ("seq=1M", "context=8", f"ranks={ranks}", f"groups={ranks // 8}")
        for case in plan_8b(program, *sizes, "schedule=tawpipe,fsdp:hierarchical=on,1f1b"):
            parts = case["memory_bytes"]["worst"]
            device = case["device"]
            libraries = device["libraries_estimate_bytes"] / GB
            rows.append([
                ranks,
                f"`{case['settings']['schedule']}`",
                *(f"{parts[kind] / GB:.1f}" for kind in KINDS),
                f"{libraries:.1f}",
                fit_text(device_gb(case)),
                f"{device['largest_seq'] // K}K" if device["largest_seq"] else "none",
            ])  # fmt: skip
    head = ["ranks", "schedule", *KINDS, "libraries", "GB in all", "longest S in 80 GiB"]
    print_table(head, rows)


def print_published(program):
    rows = []
    first = None
    for (seq, n), published in PUBLISHED.items():
        sizes = (f"seq={seq}K", f"context={n}", f"micro_batches={8 // n}", "schedule=fsdp")
        rates = [
            predict_8b(program, *sizes, f"recompute={kind}")[0]["tokens_per_s"] / 8
            for kind in ("block", "keep-attention")
        ]
        first = first or (published, *rates)
        texts = [
            f"{rate:.0f} ({rate / base:.2f})" for rate, base in zip((published, *rates), first)
        ]
        rows.append([f"{seq}K", n, *texts, f"{rates[0] / published:.1f}"])
    print_table(
        ["S", "n", "published", "predicted", "`keep-attention`", "predicted over published"], rows
    )


def rate_of(case):
    return case["tokens_per_s"] / int(case["settings"]["ranks"])


def print_paper(program):
    """Of each width, length and schedule the fastest number of ranks a sequence that fits."""
    deck, machine = DECKS / "long.toml", MACHINES / "tawpipe-paper.toml"
    best = {}
    for case in predict(program, deck, machine, ["micro_batches=24"]):
        hidden, seq, name = (case["settings"][key] for key in ("hidden", "seq", "schedule"))
        known = best.setdefault((int(hidden), int(seq)), {}).setdefault(name, None)
        if case["fits"] and (known is None or rate_of(case) > rate_of(known)):
            best[int(hidden), int(seq)][name] = case
    rows = []
    for (hidden, seq), cases in sorted(best.items()):
        row = [f"{hidden}, {count_text(seq)}"]
        for case in cases.values():
            text = "-"
            if case:
                exposed = case["exposed"]
                text = f"{rate_of(case):.0f} (n = {case['settings']['context']}, "
                text += f"{share(exposed['context'])} of {share(sum(exposed.values()))})"
            row.append(text)
        rows.append(row)
    names = next(iter(best.values()))
    print_table(["H, S", *(f"`{name}`" for name in names)], rows)


def between(case, *kinds):
    return sum(case["bytes_per_step"]["between"][kind] for kind in kinds)


def print_crossing(program):
    """Tokens a round from which weight passing sends less, by formula and by the bytes of a
    plan."""
    rows = []
    for layers, hidden, ffn, groups in MODELS:
        for n in (1, 8):
            ranks = 8 * groups
            sizes = [f"layers={layers}", f"hidden={hidden}", f"ffn={ffn}", f"ranks={ranks}"]
            sizes += [f"groups={groups}", f"context={n}", f"seq={4 * n}K"]
            sizes += [f"micro_batches={ROUNDS * ranks // n}", "schedule=tawpipe,1f1b"]
            passing, pipeline = cases_of(program, "plan", DECKS / "long.toml", *set_words(sizes))
            tokens = ranks * 4 * K  # a round
            sent = between(passing, "weights", "gradients")
            crossing = tokens * sent / between(pipeline, "activations")
            busiest = [case["busiest_out"]["bytes"] for case in (passing, pipeline)]
            of_busiest = tokens * busiest[0] / busiest[1]
            formula = 18 * layers * hidden
            rows.append([
                f"L = {layers}, H = {hidden}",
                groups,
                n,
                f"{formula / 1e6:.2f} M",
                f"{crossing / 1e6:.2f} M",
                f"{formula * (groups - 1) / groups / 1e6:.2f} M",
                f"{of_busiest / 1e6:.2f} M",
            ])  # fmt: skip
    head = ["model", "D", "n", "18 L H", "planned, all nodes", "18 L H (D - 1) / D",
            "planned, busiest node"]  # fmt: skip
    print_table(head, rows)


SLICES = (
    "1f1b",
    "1f1b:slices=4:cut=even",
    "1f1b:slices=4",
    "1f1b:slices=16:cut=even",
    "1f1b:slices=16",
)


def print_slices(program):
    """Idle time of eight stages, by the order alone, and what the worst rank takes."""
    lines = []
    for schedule in SLICES:
        idle, sizes = [], []
        for seq in (32, 128, 512):
            settings = (f"seq={seq}K", "micro_batches=8", "context=1", f"schedule={schedule}")
            (planned,) = plan_8b(program, *settings)
            idle.append(share(planned["idle"]["share"]))
            sizes.append(f"{device_gb(planned):.0f}")
        lines.append([f"`{schedule}`", *idle, *sizes])
    lengths = ("32K", "128K", "512K")
    print_table(
        ["schedule", *(f"{k}: idle" for k in lengths), *(f"{k}: GB" for k in lengths)], lines
    )


WIRES = {  # as measured: what is left of it for data, and lengths (K)
    "50mbit": ("50 Mbit/s", "48.8 Mbit/s", (1, 4, 8)),
    "1gbit": ("1 Gbit/s", "976 Mbit/s", (1, 4, 8)),
}


def print_slice_errors(program):
    """Steps that two nodes took, and by how much the predicted ones are off."""
    with open(ROOT / RECORDS / "slices.csv", encoding="utf-8", newline="") as file:
        measured = {
            (row["rate"], int(row["seq"]) // 1024, row["schedule"]): float(row["median_s"])
            for row in csv.DictReader(file)
            if row["ranks"] == "2"
        }
    cells, head = {}, []
    for rate, seq in [(rate, seq) for rate, (_, _, lengths) in WIRES.items() for seq in lengths]:
        name, link, _ = WIRES[rate]
        head.append(f"{name}, {seq}K")
        for case in predict(
            program,
            ROOT / "inputs/wires/slices.toml",
            MACHINES / "cluster-2x1.toml",
            ["ranks=2", "groups=2", f"seq={seq}K"],
            [f"between.rate={link}"],
        ):
            schedule = case["settings"]["schedule"]
            step = measured[rate, seq, schedule]
            cells.setdefault(schedule, []).append(f"{100 * (case['step_s'] / step - 1):+.1f} %")
    print_table(["schedule", *head], [[f"`{name}`", *row] for name, row in cells.items()])


def print_predictions(program):
    print("# docs/long.md\n\n## Measured and predicted: slices\n")
    print_slice_errors(program)
    print("## Planned: idle time of slices\n")
    print_slices(program)
    print("## Predicted: Llama 3.1 8B on eight H100\n")
    print_8b(program)
    print("## Predicted: a sequence of a million tokens\n")
    print_million(program)
    print("## Predicted and published\n")
    print_published(program)
    print("## Predicted: the paper's machine\n")
    print_paper(program)
    print("## Planned: weight passing or a pipeline\n")
    print_crossing(program)
