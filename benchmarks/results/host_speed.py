#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How close a step on the host comes to the rate of sgemm, and how it compares with another
program, all in one run.

    OMP_NUM_THREADS=2 scripts/env benchmarks/results/host_speed.py measure build/host TABLE.csv
        inputs/performance/host*.toml [--peer STEP.py]
    scripts/env benchmarks/results/host_speed.py tables
        results/2-core-xeon/2026-11-22-host/host.csv

For each case of the decks, in turn: minitaw run between two rates of a square sgemm
(minitaw_kernels), and the peer. A peer is a Python program that takes --layers, --hidden, --heads,
--kv-heads, --ffn, --vocab, --seq, --accumulate, --steps, --threads, --no-recompute and prints a
JSON object with tokens_per_s; it has no answer to keep-attention. Peak memory is that of the whole
process, as the kernel counts it (maximum resident set).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from pages import end, parser_of, print_table, read_table, set_words, write_table
from minitaw.command import BadInput
from minitaw.record import cases, load

GIGA = 1e9
SIZES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq")
HEAD = ("H", "S", "recompute", "tokens/s", "of sgemm", "MiB", "peer, tokens/s", "peer, MiB",
        "ratio", "ratio at sgemm's rate")  # fmt: skip
SGEMM = ("--benchmark_filter=limit/matmul/fp32", "--dtype", "fp32", "--triad-mib", "16",
         "--benchmark_format=json")  # fmt: skip


# Measuring.


def measured(command):
    """Standard output of a command, and its peak memory in MiB."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise BadInput(f"{' '.join(map(str, command))} failed: {out}")
    return out, usage.ru_maxrss / 1024


def cases_of(build, deck):
    """The settings that minitaw plan finds in the deck."""
    out, _ = measured([build / "minitaw", "plan", deck, "--json"])
    return [case["settings"] for case in json.loads(out)["cases"]]


def sgemm_rates(build):
    """GFLOP/s of the fastest call, and of all calls of half a second: others on the processor are
    in the second only."""
    out, _ = measured([build / "benchmarks/minitaw_kernels", *SGEMM])
    (found,) = json.loads(out)["benchmarks"]
    return found["FLOP/s"] / GIGA, found["mean FLOP/s"] / GIGA


def measure_own(build, deck, case):
    """Runs the case between two measurements of sgemm."""
    before = sgemm_rates(build)
    settings = set_words(f"{name}={case[name]}" for name in (*SIZES, "recompute"))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "result.h5"
        _, memory = measured([build / "minitaw", "run", deck, *settings, "-o", file])
        row = cases(load(file)).iloc[0]
    after = sgemm_rates(build)
    return {
        "sgemm": max(before[0], after[0]),
        "sgemm_mean": (before[1] + after[1]) / 2,
        "tokens_per_s": row["tokens_per_s"],
        "gflops": row["tflops_causal"] * 1e3,
        "mib": memory,
    }


def measure_peer(peer, case):
    options = {f"--{name.replace('_', '-')}": case[name] for name in SIZES} | {
        "--micro-batch": case["micro_batch"],
        "--accumulate": case["micro_batches"],
        "--steps": case["steps"],
        "--warmup": case["warmup"],
        "--threads": os.environ.get("OMP_NUM_THREADS", "0"),
        "--device": "cpu",
        "--dtype": "fp32",
    }
    words = [str(word) for option in options.items() for word in option]
    words += ["--no-recompute"] if case["recompute"] == "none" else []
    out, memory = measured([sys.executable, peer, *words])
    return {"peer_tokens_per_s": json.loads(out)["tokens_per_s"], "peer_mib": memory}


def measure(options):
    """Writes the table after each case; the peer's columns are empty where it did not run."""
    rows = []
    for deck in options.decks:
        for case in cases_of(options.build, deck):
            row = {name: case[name] for name in (*SIZES, "recompute")}
            row |= measure_own(options.build, deck, case)
            row |= {"peer_tokens_per_s": "", "peer_mib": ""}
            if options.peer and case["recompute"] != "keep-attention":
                row |= measure_peer(options.peer, case)
            rows.append(row)
            write_table(options.table, rows)


# The table.


def flops_done(sizes, recompute):
    """FLOPs per token of what the program computes, products only: attention backward takes 5 of
    them, not the 4 of the model's count; `block` computes again all but w2, `keep-attention` all
    but w2 and attention."""
    layers, hidden, heads, kv_heads, ffn, vocab, seq = sizes
    projections = hidden * hidden * (2 + 2 * kv_heads / heads)
    again = 0 if recompute == "none" else 2 * (projections + 2 * hidden * ffn)
    attention = (9 if recompute == "block" else 7) * seq * hidden
    block = 6 * (projections + 3 * hidden * ffn) + again + attention
    return layers * block + 6 * hidden * vocab


def cells_of(row):
    done = flops_done([int(row[name]) for name in SIZES], row["recompute"]) / GIGA
    names = ("sgemm", "tokens_per_s", "gflops", "mib")
    sgemm, rate, gflops, memory = (float(row[name]) for name in names)
    cells = [row[name] for name in ("hidden", "seq", "recompute")]
    cells += [f"{rate:.0f}", f"{gflops / sgemm:.2f}", f"{memory:.0f}"]
    if not row["peer_tokens_per_s"]:
        return cells + ["-"] * 4
    peer = float(row["peer_tokens_per_s"])
    return cells + [
        f"{peer:.0f}",
        f"{float(row['peer_mib']):.0f}",
        f"{rate / peer:.2f}",
        f"{sgemm / done / peer:.2f}",
    ]


def tables(options):
    print("# docs/performance.md\n\n## One rank on a host\n")
    print_table(HEAD, map(cells_of, read_table(options.table)))


def main():
    parser = parser_of(__doc__)
    verbs = parser.add_subparsers(required=True)
    for work in (measure, tables):
        verb = verbs.add_parser(work.__name__)
        verb.set_defaults(work=work)
        if work == measure:
            verb.add_argument("build", type=pathlib.Path)
        verb.add_argument("table", type=pathlib.Path)
        if work == measure:
            verb.add_argument("decks", nargs="+")
            verb.add_argument("--peer")
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    end(main)
