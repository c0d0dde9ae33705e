#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How often `minitaw run` names a rank with 40 % of a core, and no one else (docs/results.md, "Who
holds the step up").

    scripts/env python3 benchmarks/results/run_tries.py FOLDER [--quota 20] [--quiet 40]
        [--quickstart 5]

quota: two nodes of one rank, 1 Gbit/s between them, and a limit on one rank (needs root). quiet:
the same without the limit. quickstart: the deck of the quickstart, 24 cases on four ranks of this
machine. Keeps the result files in FOLDER, goes on with what is there, and prints the table.
"""

import pathlib
import random

from faults import limit_processor, when_there
from pages import PROGRAM, ROOT, cluster_words, end, markdown, parser_of, set_words
from minitaw.command import output_of
from minitaw.record import load

DECK = ROOT / "inputs/quickstart.toml"
SMALL = ["ranks=2", "schedule=tawpipe,fsdp,1f1b", "seq=256", "layers=4"]
KINDS = {  # what is planted, and how often by default
    "quota": ("a rank with 40 % of a core", 20),
    "quiet": ("none", 40),
    "quickstart": ("none, four ranks on two cores", 5),
}


def run(launcher, settings, output):
    words = [*launcher, PROGRAM, "run", DECK, "-o", output, *set_words(settings)]
    output_of(*map(str, words), cwd=ROOT)


def attempt(kind, output):
    """Writes a result; its name ends with the rank that is slow."""
    if kind == "quickstart":
        run(["mpiexec", "-n", "4"], [], output)
        return
    thread = when_there(PROGRAM, int(output.stem[-1]), limit_processor) if kind == "quota" else None
    run(cluster_words(2, 1, "1gbit"), SMALL, output)
    if thread:
        thread.join()


def named_by(result):
    """Ranks and links that the end of the run names."""
    named = {case["culprit"] for case in result.cases} - {""}
    return {name for name in named if any(t.startswith(name + " ") for t in result.stands_out)}


def planted_in(kind, path):
    rank = path.stem[-1]
    return {f"rank {rank} (node {rank})"} if kind == "quota" else set()


def table(folder):
    rows = []
    for kind, (words, _) in KINDS.items():
        paths = sorted(folder.glob(f"{kind}-*.h5"))
        results = [load(path) for path in paths]
        found = [named_by(result) for result in results]
        planted = [planted_in(kind, path) for path in paths]
        right = sum(one <= some for one, some in zip(planted, found))
        alone = sum(some <= one for one, some in zip(planted, found))
        cases = sum(len(result.cases) for result in results)
        rows.append([words, len(paths), cases, right if kind == "quota" else "-", alone])
    return markdown(("fault", "runs", "cases", "named", "no one else named"), rows)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    for kind, (_, tries) in KINDS.items():
        parser.add_argument(f"--{kind}", type=int, default=tries)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        done = len(list(options.folder.glob(f"{kind}-*.h5")))
        for number in range(done, getattr(options, kind)):
            output = options.folder.resolve() / f"{kind}-{number:03}-{random.randrange(2)}.h5"
            attempt(kind, output)
            print(f"{output.stem}: {load(output).stands_out}", flush=True)
    print(table(options.folder))


if __name__ == "__main__":
    end(main)
