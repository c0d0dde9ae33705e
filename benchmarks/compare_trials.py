#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How often `scripts/perf-gate` is right: the gate of docs/compare.md, tried many times over on
this machine.

Each try is a call of scripts/perf-gate as it is, with its stages, for one program on both sides:
unchanged, with computation made slower, or with communication made slower. A library before MPI and
BLAS does that: it spends a share of the processor time between matrix products once more, or some
microseconds before each message.

    scripts/env benchmarks/compare_trials.py build/host/minitaw --tries 20
    scripts/env benchmarks/compare_trials.py --histories KEPT --tries 100
    scripts/env benchmarks/compare_trials.py --drawn results/2-core-xeon/2026-11-21-small/bundle.tar.gz

An unchanged program must not be a REGRESSION, a slower one not SAME; AMBIGUOUS is no error. Exit
code 1 if one is wrong.

With --drawn nothing is run: pairs of neighbouring runs (repetitions, or files as --keep leaves
them) are drawn, who is the base by lot, and the samples of each from its own; the slow one's are
multiplied. That tries the statistics on recorded noise, in a minute.

With --histories the one-rank records that --keep left are histories for scripts/trend: 30
neighbours of the unchanged program, which should have no mark, and 15 with 15 of the program that
computes slower behind them, which should have one, there.

Prints one line for each try and a table at the end; with --limit it ends in time and says how many
tries there were.
"""

import argparse
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
import sys
import tempfile
import time

import numpy

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(REPOSITORY / "scripts"), str(REPOSITORY / "scripts/lib")]
import minitaw.bundle  # noqa: E402
import minitaw.compare  # noqa: E402
import minitaw.record  # noqa: E402
import minitaw.trend  # noqa: E402
import perf_gate  # noqa: E402

SHIM = r"""/* Makes a program slower: SLOWER_BY, a share of the processor time between matrix products, and
   SLOWER_US before a message. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

typedef void (*Product)(const char *, const char *, const int *, const int *, const int *, const float *, const float *,
                        const int *, const float *, const int *, const float *, float *, const int *);

static double processor_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Looking at the clock costs as much as a small product: so it is done after every 32nd. */
static void spend(void) {
  static _Thread_local double before = 0;
  static _Thread_local int calls = 0;
  static double share = -1;
  if (share < 0) share = getenv("SLOWER_BY") ? atof(getenv("SLOWER_BY")) : 0;
  if (++calls % 32 != 0) return;
  const double now = processor_time();
  const double until = now + share * (now - before);
  while (processor_time() < until) {
  }
  before = processor_time();
}

void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k, const float *alpha, const float *a,
            const int *lda, const float *b, const int *ldb, const float *beta, float *c, const int *ldc) {
  static Product product = 0;
  if (!product) product = (Product)dlsym(RTLD_NEXT, "sgemm_");
  product(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  spend();
}

/* The program defines MPI_Isend itself, and counts there. */
int PMPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request *request) {
  typedef int (*Send)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
  static Send send = 0;
  static double seconds = -1;
  if (!send) send = (Send)dlsym(RTLD_NEXT, "PMPI_Isend");
  if (seconds < 0) seconds = getenv("SLOWER_US") ? 1e-6 * atof(getenv("SLOWER_US")) : 0;
  const double until = processor_time() + seconds;
  while (processor_time() < until) {
  }
  return send(data, n, type, to, tag, comm, request);
}
"""


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    add(
        "--keep",
        type=pathlib.Path,
        help="folder for all files of all tries (default: none is kept)",
    )
    options = parser.parse_args()
    if [options.program, options.drawn, options.histories].count(None) != 2:
        parser.error("name a program, or results after --drawn, or a folder after --histories")
    return options


def build_shim(folder):
    library = folder / "libslower.so"
    subprocess.run(
        ["mpicc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-ldl"],
        input=SHIM,
        text=True,
        check=True,
    )
    return library


def kinds_of(options):
    """{what is planted: variables of the library}"""
    return {
        "unchanged": "",
        "computing slower": f"SLOWER_BY={options.slower}",
        "communication slower": f"SLOWER_US={options.microseconds}",
    }


def one_try(options, folder, shim, variables):
    """A call of the gate: its verdict, the pairs of each stage, and the ratio of each case."""
    start = "mpiexec -n {ranks} "
    program = shlex.quote(str(pathlib.Path(options.program).resolve()))
    slow = f"env LD_PRELOAD={shlex.quote(str(shim))} {variables} " if variables else ""
    words = [
        REPOSITORY / "scripts/perf-gate",
        "--base-run",
        start + program,
        "--new-run",
        start + slow + program,
        "-o",
        folder,
    ]
    done = subprocess.run([*words, *shlex.split(options.gate)], capture_output=True, text=True)
    if "\nCOMPARISON: " not in done.stdout:
        sys.exit(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    said = [row.split() for row in done.stdout.splitlines() if row.startswith(" ")]
    pairs = {
        title: int(count)
        for title, count in re.findall(r"^minitaw: ([^:]*), pair (\d+)", done.stderr, re.M)
    }
    return (
        done.stdout.rpartition("COMPARISON: ")[2].split(":")[0].strip(),
        pairs,
        [f"{row[9]} [{row[10]}, {row[11]}]" for row in said],
    )


def is_wrong(kind, verdict):
    return verdict == ("REGRESSION" if kind == "unchanged" else "SAME")


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
    numbers, sides = chance.permutation(len(runs[0][0].cases))[:2], ([], [])
    for pairs in range(1, options.most + 1):
        first = chance.integers(len(runs) - 1)
        order = (first, first + 1) if chance.random() < 0.5 else (first + 1, first)
        for side, number, times in zip(sides, order, (1, factor)):
            side.append(drawn_run(*runs[number], numbers, chance, times, options.samples))
        if pairs in looks:
            found = minitaw.compare.compare(*sides, minitaw.compare.Rules(looks=len(looks)))
            if found.outcome != "ambiguous":
                break
    return found.word, pairs


def try_drawn(options):
    results = [
        minitaw.bundle.check(path) if path.endswith("gz") else minitaw.record.load(path)
        for path in options.drawn
    ]
    runs = [
        (result, repetition)
        for result in results
        for repetition in range(result.cases[0]["repeats"])
    ]
    if len(runs) < 2:
        sys.exit(f"one run is recorded in {options.drawn}; two or more are needed")
    seed = numpy.random.SeedSequence(options.seed).entropy
    chance = numpy.random.default_rng(seed)
    print(
        f"seed {seed}: {len(runs)} recorded runs of {len(results[0].cases)} cases, two of which are drawn in each of {options.tries} tries"
    )
    for what, factor in (
        ("against itself", 1),
        (f"samples times {1 + options.slower:g}", 1 + options.slower),
    ):
        verdicts = [drawn_verdict(options, runs, chance, factor) for _ in range(options.tries)]
        counts, pairs = collections.Counter(word for word, _ in verdicts), sorted(
            count for _, count in verdicts
        )
        print(
            f"{what}: {dict(counts)}; pairs until decided: median {pairs[len(pairs) // 2]}, at most {pairs[-1]}",
            flush=True,
        )


def runs_of(files):
    """Of the one-rank case, in the order of their dates, without noisy ones."""
    cases = [
        case
        for file in files
        for case in minitaw.record.load(file).cases
        if case.valid and case["ranks"] == 1
    ]
    return [run for run in minitaw.trend.runs_of(cases) if run.counts] if cases else []


def marks_of(history):
    for run in history:
        run.change = None
    minitaw.trend.mark(history, minitaw.trend.RISK)
    return [at for at, run in enumerate(history) if run.change]


def try_histories(options):
    base = runs_of(options.histories.glob("*/base-*.h5"))
    slow = runs_of(options.histories.glob("*-computing-slower/new-*.h5"))
    if min(len(base) - 29, len(slow) - 14) < 1:
        sys.exit(
            f"{options.histories} has {len(base)} quiet records of the program and {len(slow)} "
            "of the slower one; 30 and 15 are needed"
        )
    chance = numpy.random.default_rng(options.seed)
    found = {
        "30 of one program": collections.Counter(),
        "15, then 15 slower": collections.Counter(),
    }
    for _ in range(options.tries):
        first, one, other = (
            chance.integers(count) for count in (len(base) - 29, len(base) - 14, len(slow) - 14)
        )
        found["30 of one program"][str(marks_of(base[first : first + 30]))] += 1
        found["15, then 15 slower"][
            str(marks_of(base[one : one + 15] + slow[other : other + 15]))
        ] += 1
    print(f"{len(base)} quiet records of the program, {len(slow)} of the slower one")
    for name, counts in found.items():
        print(
            f"{name}: "
            + ", ".join(f"marks {marks} {count} times" for marks, count in counts.most_common())
        )


def table_of(found, seconds, loads):
    """Markdown: a row for each kind."""
    yield (
        "| planted | tries | SAME | FASTER | REGRESSION | AMBIGUOUS | wrong | seconds, median | "
        "at most | load |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for kind, verdicts in found.items():
        if not verdicts:
            continue
        counts = [verdicts.count(word) for word in ("SAME", "FASTER", "REGRESSION", "AMBIGUOUS")]
        wrong = sum(is_wrong(kind, verdict) for verdict in verdicts)
        figures = [
            f"{numpy.median(seconds[kind]):.0f}",
            f"{max(seconds[kind]):.0f}",
            f"{min(loads[kind]):.1f} to {max(loads[kind]):.1f}",
        ]
        yield f"| {' | '.join([kind, *map(str, [len(verdicts), *counts, wrong]), *figures])} |"


def main():
    options = arguments()
    if options.drawn or options.histories:
        return try_drawn(options) if options.drawn else try_histories(options)
    kinds = kinds_of(options)
    found, seconds, loads = ({kind: [] for kind in kinds} for _ in range(3))
    begun = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        shim = build_shim(pathlib.Path(scratch))
        for number, (kind, variables) in itertools.product(range(options.tries), kinds.items()):
            if time.time() - begun > options.limit:
                break
            folder = (
                options.keep or pathlib.Path(scratch)
            ) / f"{number:03}-{kind.replace(' ', '-')}"
            before = time.time()
            verdict, pairs, ratios = one_try(options, folder, shim, variables)
            for list_of, value in (
                (found, verdict),
                (seconds, time.time() - before),
                (loads, os.getloadavg()[0]),
            ):
                list_of[kind].append(value)
            print(
                f"{number:3} {kind:20} {seconds[kind][-1]:6.1f} s  load {loads[kind][-1]:4.1f}  "
                f"{verdict:10} {'WRONG ' * is_wrong(kind, verdict)}"
                f"{', '.join(f'{count} pairs {title}' for title, count in pairs.items())}; "
                f"{', '.join(ratios)}",
                flush=True,
            )
            if not options.keep:
                shutil.rmtree(folder)
    print(
        f"\n{time.strftime('%Y-%m-%d')}, {len(os.sched_getaffinity(0))} cores, "
        f"{time.time() - begun:.0f} s\n\n" + "\n".join(table_of(found, seconds, loads))
    )
    return int(
        any(is_wrong(kind, verdict) for kind, verdicts in found.items() for verdict in verdicts)
    )


if __name__ == "__main__":
    sys.exit(main())
