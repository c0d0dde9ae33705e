#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How close a step on the host comes to the rate of sgemm, and how it compares with another
program, all in one run.

    OMP_NUM_THREADS=2 scripts/env benchmarks/host_speed.py build/host inputs/performance/host*.toml [--peer STEP.py] [--rounds 3] -o OUT

For each case of the decks, in turn and several times over: minitaw run between two rates of a
square sgemm (minitaw_kernels), and the peer. A peer is a Python program that takes --layers,
--hidden, --heads, --kv-heads, --ffn, --vocab, --seq, --accumulate, --steps, --threads,
--no-recompute and prints a JSON object with tokens_per_s and version; it has no answer to
keep-attention. The fastest of the rounds stands for each; the table is Markdown. OUT gets a result
file per round, and rounds.json with everything measured. Peak memory is that of the whole process,
as the kernel counts it (maximum resident set).
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from minitaw.command import BadInput  # noqa: E402
from minitaw.record import load  # noqa: E402

COLUMNS = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq")
TITLES = (
    "L",
    "H",
    "V",
    "S",
    "recompute",
    "sgemm, GFLOP/s",
    "its mean",
    "token/s",
    "model GFLOP/s",
    "of sgemm",
    "done",
    "done, of the mean",
    "MiB",
    "peer, token/s",
    "MiB",
    "ratio",
    "ratio at sgemm's rate",
)


def measured(command):
    """Standard output of a command, and its peak memory in MiB."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{out}")
    return out, usage.ru_maxrss / 1024


def cases_of(build, deck):
    """The settings that minitaw plan finds in the deck."""
    out, _ = measured([build / "minitaw", "plan", deck, "--json"])
    return [case["settings"] for case in json.loads(out)["cases"]]


def sgemm_rates(build):
    """GFLOP/s of the fastest call, and of all calls of half a second: others on the processor are
    in the second only."""
    out, _ = measured(
        [
            build / "benchmarks/minitaw_kernels",
            "--benchmark_filter=limit/matmul/fp32",
            "--dtype",
            "fp32",
            "--triad-mib",
            "16",
            "--benchmark_format=json",
        ]
    )
    (found,) = json.loads(out)["benchmarks"]
    return found["FLOP/s"] / 1e9, found["mean FLOP/s"] / 1e9


def flops_done(case):
    """FLOPs per token of what the program computes, products only: attention backward takes 5 of
    them, not the 4 of the model's count; `block` computes again all but w2, `keep-attention` all
    but w2 and attention."""
    layers, hidden, ffn = (
        case["layers"],
        case["hidden"],
        sum(case["ffn_per_layer"]) / case["layers"],
    )
    projections = hidden * hidden * (2 + 2 * case["kv_heads"] / case["heads"])
    again = 0 if case["recompute"] == "none" else 2 * (projections + 2 * hidden * ffn)
    attention = (9 if case["recompute"] == "block" else 7) * case["seq"] * hidden
    return (
        layers * (6 * (projections + 3 * hidden * ffn) + again + attention)
        + 6 * hidden * case["vocab"]
    )


def own(build, deck, case, file):
    """Runs the case as the next one of the file, between two measurements of sgemm."""
    before = sgemm_rates(build)
    sets = [word for name in (*COLUMNS, "recompute") for word in ("--set", f"{name}={case[name]}")]
    _, memory = measured([build / "minitaw", "run", deck, *sets, "-o", file])
    row = load(str(file)).cases[-1]
    after = sgemm_rates(build)
    return {
        "sgemm": max(before[0], after[0]),
        "sgemm_mean": (before[1] + after[1]) / 2,
        "tokens_per_s": row["tokens_per_s"],
        "gflops": row["tflops_causal"] * 1e3,
        "mib": memory,
    }


def other(peer, case):
    words = [word for name in COLUMNS for word in (f"--{name.replace('_', '-')}", str(case[name]))]
    words += ["--no-recompute"] if case["recompute"] == "none" else []
    out, memory = measured(
        [
            sys.executable,
            peer,
            *words,
            "--micro-batch",
            str(case["micro_batch"]),
            "--accumulate",
            str(case["micro_batches"]),
            "--steps",
            str(case["steps"]),
            "--warmup",
            str(case["warmup"]),
            "--threads",
            os.environ.get("OMP_NUM_THREADS", "0"),
            "--device",
            "cpu",
            "--dtype",
            "fp32",
        ]
    )
    found = json.loads(out)
    return {"tokens_per_s": found["tokens_per_s"], "version": found["version"], "mib": memory}


def best(rounds):
    return max(rounds, key=lambda r: r["tokens_per_s"])


def cells(result):
    """One line of the table; the peer's columns are empty where it did not run."""
    case, mine = result["case"], best(result["own"])
    sgemm, done = max(own["sgemm"] for own in result["own"]), flops_done(case) / 1e9
    yield from (case["layers"], case["hidden"], case["vocab"], case["seq"], case["recompute"])
    rate = mine["tokens_per_s"] * done
    yield from (
        f"{sgemm:.0f}",
        f"{mine['sgemm_mean']:.0f}",
        f"{mine['tokens_per_s']:.0f}",
        f"{mine['gflops']:.0f}",
        f"{100 * mine['gflops'] / sgemm:.0f} %",
        f"{rate:.0f}",
        f"{100 * rate / mine['sgemm_mean']:.0f} %",
        f"{mine['mib']:.0f}",
    )
    if result["peer"]:
        peer = best(result["peer"])["tokens_per_s"]
        yield from (
            f"{peer:.0f}",
            f"{best(result['peer'])['mib']:.0f}",
            f"{mine['tokens_per_s'] / peer:.2f}",
            f"{sgemm / done / peer:.2f}",
        )
    else:
        yield from "----"


def table(results):
    lines = [TITLES, ["---"] * len(TITLES), *(map(str, cells(result)) for result in results)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("decks", nargs="+")
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    files = [arguments.output / f"round{turn}.h5" for turn in range(arguments.rounds)]
    for file in files:
        file.unlink(missing_ok=True)
    results = []
    cases = [(deck, case) for deck in arguments.decks for case in cases_of(arguments.build, deck)]
    for deck, case in cases:
        result = {"case": case, "own": [], "peer": []}
        for file in files:
            result["own"].append(own(arguments.build, deck, case, file))
            if arguments.peer and case["recompute"] != "keep-attention":
                result["peer"].append(other(arguments.peer, case))
        results.append(result)
        (arguments.output / "rounds.json").write_text(
            json.dumps(results, indent=1), encoding="utf-8"
        )
    print(table(results))


if __name__ == "__main__":
    try:
        main()
    except BadInput as sentence:
        sys.exit(f"host_speed: {sentence}")
