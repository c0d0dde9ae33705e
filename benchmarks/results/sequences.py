# SPDX-License-Identifier: BSD-3-Clause
"""Predictions for long sequences: which lengths fit a device and how fast (docs/long.md), beside
steps that were measured here and rates that others published (docs/predict.md)."""

from statistics import geometric_mean

from pages import (
    DECKS,
    MACHINES,
    ROOT,
    cases_of,
    predict,
    print_table,
    rate_of,
    read_table,
    set_words,
)
from minitaw.numbers import count_text

GB = 1e9
K = 1024
LENGTHS = (32, 64, 128, 256, 512, 1024)  # K tokens
SHARERS = (1, 2, 4, 8)  # ranks a sequence
LLAMA, H100 = DECKS / "long-8b.toml", MACHINES / "dgx-h100.toml"
TOKENS = 8 * K  # K a step
CLOSE = 0.05  # relative error of a step that counts as near
SMALL, LARGE = 80, 141  # GB of a device
# torchtitan, 8 B parameters on 8 H100: tokens/s a GPU.
PUBLISHED = {(32, 1): 3890, (64, 2): 2540, (128, 4): 1071, (256, 8): 548}
# Of 8 B parameters, S = 8K: who, nodes of 8, n, micro-batch, micro-batches of a context
# group, recomputation, tokens/s a GPU. NVIDIA/dgxc-benchmarking, llama3.1/README_8b.md;
# pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md.
PUBLISHED_8K = [
    ("NeMo 24.09", 1, 2, 1, 32, "none", 10153),
    ("NeMo 24.09", 16, 2, 1, 32, "none", 10006),
    ("torchtitan", 1, 1, 2, 1, "keep-attention", 6667),
    ("torchtitan", 16, 1, 2, 1, "keep-attention", 6514),
]
MEASURED = ROOT / "results/2-core-epyc/2026-11-26-long/slices.csv"
RATES = {"50mbit": "50 Mbit/s", "1gbit": "1 Gbit/s"}
WIRES = {"50mbit": "48.8 Mbit/s", "1gbit": "976 Mbit/s"}  # what is left of a rate for data


def predict_8b(program, *settings):
    return predict(program, LLAMA, H100, settings, ["nodes=1"])


def cell_8b(program, *settings):
    """Rate, and GB that the worst rank takes with libraries."""
    words = [*set_words(settings), "--device-memory", "80G"]
    (planned,), (case,) = cases_of(program, "plan", LLAMA, *words), predict_8b(program, *settings)
    device = planned["device"]
    size = (device["arena_bytes"] + device["libraries_estimate_bytes"]) / GB
    text = f"({size:.0f})" if size <= SMALL else f"(**{size:.0f}**)"
    return text if size > LARGE else f"{rate_of(case):.0f} {text}"


def print_8b(program):
    """For each schedule: lengths and ranks a sequence, TOKENS a step."""
    for schedule in ("tawpipe", "1f1b"):
        rows = []
        for seq in LENGTHS:
            row = [count_text(seq * K)]
            for n in SHARERS:
                sizes = (f"seq={seq}K", f"context={n}", f"micro_batches={TOKENS // seq}")
                row.append(cell_8b(program, f"schedule={schedule}", *sizes))
            rows.append(row)
        print_table([f"`{schedule}`, S", *(f"n = {n}" for n in SHARERS)], rows)


def print_published(program):
    rows = []
    for (seq, n), published in PUBLISHED.items():
        sizes = (f"seq={seq}K", f"context={n}", f"micro_batches={8 // n}", "schedule=fsdp")
        (case,) = predict_8b(program, *sizes, "recompute=block")
        rate = rate_of(case)
        rows.append([f"{seq}K", n, published, f"{rate:.0f}", f"{rate / published:.1f}"])
    print_table(["S", "n", "published", "predicted", "ratio"], rows)


def print_published_8k(program):
    rows = []
    for who, nodes, n, batch, count, recompute, published in PUBLISHED_8K:
        ranks = 8 * nodes
        sizes = {
            "ranks": ranks,
            "group_size": 8,
            "replicas": max(1, ranks // 32),
            "seq": "8K",
            "context": n,
            "micro_batch": batch,
            "micro_batches": ranks // n * count,
            "recompute": recompute,
            "schedule": "fsdp",
        }
        settings = [f"{key}={value}" for key, value in sizes.items()]
        (case,) = predict(program, LLAMA, H100, settings, [f"nodes={nodes}"])
        rate = rate_of(case)
        rows.append([who, ranks, n, recompute, published, f"{rate:.0f}", f"{rate / published:.2f}"])
    head = ["who", "GPUs", "n", "`recompute`", "published", "predicted", "ratio"]
    print_table(head, rows)


def print_errors(program):
    """Of two nodes: by how much measured ratings, geometric means over lengths, are off those
    predicted, in %; and how many of the steps are close."""
    places, steps_off, ratios = {}, [], {}
    for row in read_table(MEASURED):
        if row["ranks"] == "2":
            place = places.setdefault((row["rate"], row["seq"]), {})
            schedule = row["schedule"].removesuffix(":hierarchical=on")  # groups have one rank
            place[schedule] = float(row["median_s"])
    for (rate, seq), steps in places.items():
        for case in predict(
            program,
            ROOT / "inputs/wires/slices.toml",
            MACHINES / "cluster-2x1.toml",
            ["ranks=2", "groups=2", f"seq={seq}"],
            [f"between.rate={WIRES[rate]}"],
        ):
            schedule = case["settings"]["schedule"]
            ratio = case["step_s"] / steps[schedule]
            steps_off.append(abs(ratio - 1))
            ratios.setdefault(rate, {}).setdefault(schedule, []).append(ratio)
    ratings = {
        schedule: [geometric_mean(of_rate[schedule]) for of_rate in ratios.values()]
        for schedule in next(iter(ratios.values()))
    }
    rows = [
        [f"`{schedule}`", *(f"{100 * (ratio - 1):+.1f}" for ratio in some)]
        for schedule, some in ratings.items()
    ]
    print_table(["schedule", *(RATES[rate] for rate in ratios)], rows)
    close = sum(off <= CLOSE for off in steps_off)
    print(f"{close} of {len(steps_off)} steps are within {100 * CLOSE:.0f} %")
    found = [rating - 1 for of_schedule in ratings.values() for rating in of_schedule]
    print(f"the worst of these {len(found)} ratings fell short by {-100 * min(found):.1f} %\n")


def print_tables(program):
    print("# docs/long.md\n\n## Predicted: Llama 3.1 8B on eight H100\n")
    print_8b(program)
    print("# docs/predict.md\n\n## Predicted and measured\n")
    print_errors(program)
    print("## Predicted and published\n")
    print_published(program)
    print_published_8k(program)
