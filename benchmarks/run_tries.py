#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How often `minitaw run` names a rank with 40 % of a core, and nobody else (docs/results.md, "Who
holds the step up").

    scripts/env python3 benchmarks/run_tries.py FOLDER [--quota 20] [--quiet 40] [--quickstart 5]

quota: two nodes of one rank, 1 Gbit/s between them, and a limit on one rank (needs root). quiet:
the same without the limit. quickstart: the deck of the quickstart, 24 cases on four ranks of this
machine. Keeps the result files in FOLDER, goes on with what is there, and prints the table.
"""

import argparse
import pathlib
import random
import subprocess
import sys

import screen_tries

ROOT = screen_tries.ROOT
sys.path.insert(0, str(ROOT / "scripts"))
from minitaw.record import load  # noqa: E402

DECK = ROOT / "inputs/quickstart.toml"
TWO_NODES = [
    ROOT / "scripts/cluster",
    "--nodes",
    "2",
    "--ranks-per-node",
    "1",
    "--rate",
    "1gbit",
    "--",
]
SMALL = {"ranks": "2", "schedule": "tawpipe,fsdp,1f1b", "seq": "256", "layers": "4"}
WORDS = {
    "quota": "a rank with 40 % of a core",
    "quiet": "none",
    "quickstart": "none, four ranks on two cores",
}


def run(launcher, settings, output):
    words = [*launcher, screen_tries.PROGRAM, "run", DECK, "-o", output]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"the run failed: {done.stderr}{done.stdout[-500:]}")


def attempt(kind, output):
    """Writes a result; its name ends with the rank that is slow."""
    if kind == "quickstart":
        return run(["mpiexec", "-n", "4"], {}, output)
    thread = None
    if kind == "quota":
        thread = screen_tries.when_there(int(output.stem[-1]), screen_tries.limit)
    run(TWO_NODES, SMALL, output)
    return thread and thread.join()


def names(path):
    """Ranks and links that the end of the run names."""
    result = load(path)
    named = {case["culprit"] for case in result.cases} - {""}
    return [
        name
        for name in sorted(named)
        if any(text.startswith(name + " ") for text in result.stands_out)
    ]


def table(folder):
    print("| fault | runs | cases | named | nobody else named |\n|---|---|---|---|---|")
    for kind, words in WORDS.items():
        paths = sorted(folder.glob(f"{kind}-*.h5"))
        found = [names(path) for path in paths]
        cases = sum(len(load(path).cases) for path in paths)
        planted = [
            [f"rank {path.stem[-1]} (node {path.stem[-1]})"] if kind == "quota" else []
            for path in paths
        ]
        right = sum(set(one) <= set(some) for one, some in zip(planted, found))
        alone = sum(set(some) <= set(one) for one, some in zip(planted, found))
        print(
            f"| {words} | {len(paths)} | {cases} | {right if kind == 'quota' else '-'} | {alone} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path)
    for kind, tries in (("quota", 20), ("quiet", 40), ("quickstart", 5)):
        parser.add_argument(f"--{kind}", type=int, default=tries)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for kind in WORDS:
        for number in range(len(list(options.folder.glob(f"{kind}-*.h5"))), getattr(options, kind)):
            output = options.folder / f"{kind}-{number:03}-{random.randrange(2)}.h5"
            attempt(kind, output)
            print(f"{output.stem}: {load(output).stands_out}", flush=True)
    table(options.folder)


if __name__ == "__main__":
    main()
