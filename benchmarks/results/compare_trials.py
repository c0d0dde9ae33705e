#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How often `scripts/perf-gate` is right: the gate of docs/compare.md, tried many times over on
this machine.

Each try is a call of scripts/perf-gate as it is, with its stages, for one program on both sides:
unchanged, with computation made slower, or with communication made slower. A library before MPI and
BLAS does that (slower.c): it spends a share of the processor time between matrix products once
more, or some microseconds before each message.

    scripts/env benchmarks/results/compare_trials.py build/host/minitaw --tries 20
    scripts/env benchmarks/results/compare_trials.py --histories KEPT --tries 100
    scripts/env benchmarks/results/compare_trials.py --drawn
        results/2-core-xeon/2026-11-21-small/bundle.tar.gz

An unchanged program must not be a REGRESSION, a slower one not SAME; AMBIGUOUS is no error. Exit
code 1 if one is wrong.

With --drawn nothing is run: pairs of neighbouring runs (repetitions, or files as --keep leaves
them) are drawn, who is the base by lot, and the samples of each from its own; the slow one's are
multiplied. That tries the statistics on recorded noise, in a minute.

With --histories the one-rank records that --keep left are histories for scripts/trend: 30
neighbours of the unchanged program, which should have no mark, and 15 with 15 of the program that
computes slower after them, which should have one, there.

Prints one line for each try and a table at the end; with --limit it ends in time and says how many
tries there were.
"""

import collections
import copy
import dataclasses
import itertools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time

import numpy
from pages import ROOT, end, markdown, parser_of
import perf_gate
from minitaw import bundle
from minitaw.aspects import Rules
from minitaw.command import BadInput
from minitaw.comparison import compare
from minitaw.history import RISK, mark, runs_of
from minitaw.record import load

VERDICTS = ("SAME", "FASTER", "REGRESSION", "AMBIGUOUS")
UNCHANGED = "unchanged"
LEVEL = 15  # runs of a level of a history
SAID = "\nCOMPARISON: "


def parse():
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("program", nargs="?", help="the program that is tried")
    add(
        "--drawn",
        nargs="+",
        metavar="RESULT",
        help="draw samples from result files or bundles instead of running anything",
    )
    add(
        "--histories",
        type=pathlib.Path,
        metavar="KEPT",
        help="try scripts/trend on the records that --keep left in this folder",
    )
    add(
        "--samples",
        type=int,
        help="drawn for each run: inputs/gate.toml takes 40 (default: as many as were recorded)",
    )
    add("--seed", type=int, help="of what is drawn (default: another one each time; it is printed)")
    add("--tries", type=int, default=20, help="of each kind (default: 20)")
    add(
        "--most",
        type=int,
        default=48,
        help="pairs after which a drawn try stays AMBIGUOUS (default: 48)",
    )
    add(
        "--slower",
        type=float,
        default=0.10,
        help="share of processor time that is planted (default: 0.10)",
    )
    add("--microseconds", type=float, default=20, help="planted before each message (default: 20)")
    add("--limit", type=float, default=float("inf"), help="seconds after which no new try begins")
    add(
        "--gate",
        default="",
        metavar="'OPTION ...'",
        help="more options of scripts/perf-gate, such as '--limit 120'",
    )
    add("--keep", type=pathlib.Path, help="folder for all files of all tries (default: none)")
    options = parser.parse_args()
    if [options.program, options.drawn, options.histories].count(None) != 2:
        parser.error("name a program, or results after --drawn, or a folder after --histories")
    return options


# Tries of the gate.


@dataclasses.dataclass
class Try:
    kind: str  # what is planted
    verdict: str
    pairs: dict  # {title of a stage: pairs}
    ratios: list  # texts, of each case
    seconds: float = 0
    load: float = 0

    @property
    def wrong(self):
        return self.verdict == ("REGRESSION" if self.kind == UNCHANGED else "SAME")

    def text(self):
        pairs = ", ".join(f"{count} pairs {title}" for title, count in self.pairs.items())
        word = "WRONG " if self.wrong else ""
        return (
            f"{self.kind:20} {self.seconds:6.1f} s  load {self.load:4.1f}  {self.verdict:10} "
            f"{word}{pairs}; {', '.join(self.ratios)}"
        )


def build_library(folder):
    library = folder / "libslower.so"
    source = pathlib.Path(__file__).with_name("slower.c")
    words = ["mpicc", "-O2", "-shared", "-fPIC", source, "-o", library, "-ldl"]
    subprocess.run(words, check=True)
    return library


def kinds_of(options):
    """{what is planted: variables of the library}"""
    return {
        UNCHANGED: "",
        "computing slower": f"SLOWER_BY={options.slower}",
        "communication slower": f"SLOWER_US={options.microseconds}",
    }


def one_try(options, folder, library, kind, variables):
    """A call of the gate."""
    start = "mpiexec -n {ranks} "
    program = shlex.quote(str(pathlib.Path(options.program).resolve()))
    slow = f"env LD_PRELOAD={shlex.quote(str(library))} {variables} " if variables else ""
    words = [ROOT / "scripts/perf-gate", "--base-run", start + program]
    words += ["--new-run", start + slow + program, "-o", folder, *shlex.split(options.gate)]
    begin = time.time()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if SAID not in done.stdout:
        raise BadInput(f"exit {done.returncode}: {done.stdout}{done.stderr}")
    rows = perf_gate.rows_of(done.stdout)
    looks = re.findall(r"^minitaw: ([^:]*), pair (\d+)", done.stderr, re.M)
    return Try(
        kind=kind,
        verdict=perf_gate.verdict(done.stdout),
        pairs={title: int(count) for title, count in looks},
        ratios=[f"{row[9]} [{row[10]}, {row[11]}]" for row in rows],
        seconds=time.time() - begin,
        load=os.getloadavg()[0],
    )


def table_of(tries):
    head = ["planted", "tries", *VERDICTS, "wrong", "seconds, median", "at most", "load"]
    rows = []
    for kind in dict.fromkeys(one.kind for one in tries):
        some = [one for one in tries if one.kind == kind]
        verdicts = [one.verdict for one in some]
        seconds = [one.seconds for one in some]
        loads = [one.load for one in some]
        rows.append(
            [
                kind,
                len(some),
                *(verdicts.count(word) for word in VERDICTS),
                sum(one.wrong for one in some),
                f"{numpy.median(seconds):.0f}",
                f"{max(seconds):.0f}",
                f"{min(loads):.1f} to {max(loads):.1f}",
            ]
        )
    return markdown(head, rows, rule="--:")


def try_gate(options):
    tries, begin = [], time.time()
    with tempfile.TemporaryDirectory() as scratch:
        library = build_library(pathlib.Path(scratch))
        kept = options.keep or pathlib.Path(scratch)
        every = itertools.product(range(options.tries), kinds_of(options).items())
        for number, (kind, variables) in every:
            if time.time() - begin > options.limit:
                break
            folder = kept / f"{number:03}-{kind.replace(' ', '-')}"
            tries.append(one_try(options, folder, library, kind, variables))
            print(f"{number:3} {tries[-1].text()}", flush=True)
            if not options.keep:
                shutil.rmtree(folder)
    cores, seconds = len(os.sched_getaffinity(0)), time.time() - begin
    print(f"\n{time.strftime('%Y-%m-%d')}, {cores} cores, {seconds:.0f} s\n\n{table_of(tries)}")
    return int(any(one.wrong for one in tries))


# Tries on recorded noise.


def drawn_run(result, repetition, numbers, chance, factor, count):
    """A run of these cases: so many samples, or as many as the repetition has, drawn from its own
    with replacement, times `factor`."""
    run = copy.copy(result)
    run.cases = []
    for case in (result.cases[number] for number in numbers):
        seconds = case.data["seconds"][case.repetition == repetition]
        seconds = seconds[chance.integers(len(seconds), size=count or len(seconds))]
        drawn = {"seconds": factor * seconds, "repetition": numpy.zeros(len(seconds), int)}
        run.cases.append(dataclasses.replace(case, file=run, data=case.data | drawn))
    return run


def drawn_verdict(options, runs, chance, factor):
    """(verdict, pairs) of the gate on drawn pairs of two cases."""
    looks = perf_gate.looks_of(options.most)
    numbers = chance.permutation(len(runs[0][0].cases))[:2]
    base, new = [], []
    for pairs in range(1, options.most + 1):
        first = chance.integers(len(runs) - 1)
        order = (first, first + 1) if chance.random() < 0.5 else (first + 1, first)
        for side, number, times in zip((base, new), order, (1, factor)):
            side.append(drawn_run(*runs[number], numbers, chance, times, options.samples))
        if pairs in looks:
            found = compare(base, new, Rules(looks=len(looks)))
            if found.outcome != "ambiguous":
                break
    return found.word, pairs


def try_drawn(options):
    results = [bundle.check(path) if path.endswith("gz") else load(path) for path in options.drawn]
    runs = []
    for result in results:
        runs += [(result, repetition) for repetition in range(result.cases[0]["repeats"])]
    if len(runs) < 2:
        raise BadInput(f"one run is recorded in {options.drawn}; two or more are needed")
    seed = numpy.random.SeedSequence(options.seed).entropy
    chance = numpy.random.default_rng(seed)
    print(
        f"seed {seed}: {len(runs)} recorded runs of {len(results[0].cases)} cases, two of which "
        f"are drawn in each of {options.tries} tries"
    )
    slow = 1 + options.slower
    for what, factor in (("against itself", 1), (f"samples times {slow:g}", slow)):
        verdicts = [drawn_verdict(options, runs, chance, factor) for _ in range(options.tries)]
        counts = dict(collections.Counter(word for word, _ in verdicts))
        pairs = sorted(count for _, count in verdicts)
        print(
            f"{what}: {counts}; pairs until decided: median {pairs[len(pairs) // 2]}, "
            f"at most {pairs[-1]}",
            flush=True,
        )


def quiet_runs(files):
    """Of the one-rank case, in the order of their dates, without noisy ones."""
    cases = []
    for file in files:
        cases += [case for case in load(file).cases if case.valid and case["ranks"] == 1]
    return [run for run in runs_of(cases) if run.counts] if cases else []


def marks_of(history):
    for run in history:
        run.change = None
    mark(history, RISK)
    return str([at for at, run in enumerate(history) if run.change])


def try_histories(options):
    base = quiet_runs(options.histories.glob("*/base-*.h5"))
    slow = quiet_runs(options.histories.glob("*-computing-slower/new-*.h5"))
    first_of_two, first_of_base, first_of_slow = (
        len(base) - 2 * LEVEL + 1,
        len(base) - LEVEL + 1,
        len(slow) - LEVEL + 1,
    )
    if min(first_of_two, first_of_slow) < 1:
        raise BadInput(
            f"{options.histories} has {len(base)} quiet records of the program and {len(slow)} "
            f"of the slower one; {2 * LEVEL} and {LEVEL} are needed"
        )
    chance = numpy.random.default_rng(options.seed)
    same, changed = collections.Counter(), collections.Counter()
    for _ in range(options.tries):
        first, one, other = map(chance.integers, (first_of_two, first_of_base, first_of_slow))
        same[marks_of(base[first : first + 2 * LEVEL])] += 1
        changed[marks_of(base[one : one + LEVEL] + slow[other : other + LEVEL])] += 1
    print(f"{len(base)} quiet records of the program, {len(slow)} of the slower one")
    for name, counts in (("30 of one program", same), ("15, then 15 slower", changed)):
        said = [f"marks {marks} {count} times" for marks, count in counts.most_common()]
        print(f"{name}: {', '.join(said)}")


def main():
    options = parse()
    if options.drawn:
        return try_drawn(options)
    if options.histories:
        return try_histories(options)
    return try_gate(options)


if __name__ == "__main__":
    end(main)
