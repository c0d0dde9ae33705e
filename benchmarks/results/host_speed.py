#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How close a step on the host comes to the rate of sgemm, and how it compares with another
program, all in one run.

    OMP_NUM_THREADS=2 scripts/env benchmarks/results/host_speed.py build/host
        inputs/performance/host*.toml [--peer STEP.py] [--rounds 3] -o OUT

For each case of the decks, in turn and several times over: minitaw run between two rates of a
square sgemm (minitaw_kernels), and the peer. A peer is a Python program that takes --layers,
--hidden, --heads, --kv-heads, --ffn, --vocab, --seq, --accumulate, --steps, --threads,
--no-recompute and prints a JSON object with tokens_per_s and version; it has no answer to
keep-attention. The fastest of the rounds stands for each; the table is Markdown. OUT gets a result
file per round, and rounds.json with everything measured. Peak memory is that of the whole process,
as the kernel counts it (maximum resident set).
"""

import json
import os
import pathlib
import subprocess
import sys

from pages import end, markdown, parser_of, set_words
from minitaw.command import BadInput
from minitaw.record import load

GIGA = 1e9
COLUMNS = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq")
HEAD = ("L", "H", "V", "S", "recompute", "sgemm, GFLOP/s", "its mean", "token/s", "model GFLOP/s",
        "of sgemm", "done", "done, of the mean", "MiB", "peer, token/s", "MiB", "ratio",
        "ratio at sgemm's rate")  # fmt: skip
SGEMM = ("--benchmark_filter=limit/matmul/fp32", "--dtype", "fp32", "--triad-mib", "16",
         "--benchmark_format=json")  # fmt: skip


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


def flops_done(case):
    """FLOPs per token of what the program computes, products only: attention backward takes 5 of
    them, not the 4 of the model's count; `block` computes again all but w2, `keep-attention` all
    but w2 and attention."""
    layers, hidden = case["layers"], case["hidden"]
    ffn = sum(case["ffn_per_layer"]) / layers
    projections = hidden * hidden * (2 + 2 * case["kv_heads"] / case["heads"])
    again = 0 if case["recompute"] == "none" else 2 * (projections + 2 * hidden * ffn)
    attention = (9 if case["recompute"] == "block" else 7) * case["seq"] * hidden
    block = 6 * (projections + 3 * hidden * ffn) + again + attention
    return layers * block + 6 * hidden * case["vocab"]


def measure_own(build, deck, case, file):
    """Runs the case as the next one of the file, between two measurements of sgemm."""
    before = sgemm_rates(build)
    settings = [f"{name}={case[name]}" for name in (*COLUMNS, "recompute")]
    _, memory = measured([build / "minitaw", "run", deck, *set_words(settings), "-o", file])
    row = load(str(file)).cases[-1]
    after = sgemm_rates(build)
    return {
        "sgemm": max(before[0], after[0]),
        "sgemm_mean": (before[1] + after[1]) / 2,
        "tokens_per_s": row["tokens_per_s"],
        "gflops": row["tflops_causal"] * 1e3,
        "mib": memory,
    }


def measure_peer(peer, case):
    options = {f"--{name.replace('_', '-')}": case[name] for name in COLUMNS} | {
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
    found = json.loads(out)
    return {"tokens_per_s": found["tokens_per_s"], "version": found["version"], "mib": memory}


def best(rounds):
    return max(rounds, key=lambda one: one["tokens_per_s"])


def row_of(result):
    """One line of the table; the peer's columns are empty where it did not run."""
    case, own = result["case"], best(result["own"])
    sgemm = max(one["sgemm"] for one in result["own"])
    done = flops_done(case) / GIGA
    rate = own["tokens_per_s"] * done
    cells = [case["layers"], case["hidden"], case["vocab"], case["seq"], case["recompute"]]
    cells += [
        f"{sgemm:.0f}",
        f"{own['sgemm_mean']:.0f}",
        f"{own['tokens_per_s']:.0f}",
        f"{own['gflops']:.0f}",
        f"{100 * own['gflops'] / sgemm:.0f} %",
        f"{rate:.0f}",
        f"{100 * rate / own['sgemm_mean']:.0f} %",
        f"{own['mib']:.0f}",
    ]
    if not result["peer"]:
        return cells + ["-"] * 4
    peer = best(result["peer"])
    peer_rate = peer["tokens_per_s"]
    return cells + [
        f"{peer_rate:.0f}",
        f"{peer['mib']:.0f}",
        f"{own['tokens_per_s'] / peer_rate:.2f}",
        f"{sgemm / done / peer_rate:.2f}",
    ]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("decks", nargs="+")
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    files = [options.output / f"round{turn}.h5" for turn in range(options.rounds)]
    for file in files:
        file.unlink(missing_ok=True)
    results = []
    cases = [(deck, case) for deck in options.decks for case in cases_of(options.build, deck)]
    for deck, case in cases:
        result = {"case": case, "own": [], "peer": []}
        for file in files:
            result["own"].append(measure_own(options.build, deck, case, file))
            if options.peer and case["recompute"] != "keep-attention":
                result["peer"].append(measure_peer(options.peer, case))
        results.append(result)
        rounds = json.dumps(results, indent=1)
        (options.output / "rounds.json").write_text(rounds, encoding="utf-8")
    print(markdown(HEAD, map(row_of, results)))


if __name__ == "__main__":
    end(main)
