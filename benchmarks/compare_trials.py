#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How often `scripts/compare` is right: the gate of docs/compare.md, tried many times over on this machine.

Each try measures three programs in turn: the base, the same program again, and the same program made slower for real. The
slow one runs with a library in front of the matrix products that spends a share of the processor time between them once more.
The base must come out SAME against itself and a REGRESSION against the slow one. That a slow-down is found which is planted
by arithmetic is told as well: scaled samples scale the interval of the ratio.

    scripts/env benchmarks/compare_trials.py build/host/minitaw --tries 100
    scripts/env benchmarks/compare_trials.py --drawn results/2-core-xeon/2026-11-21-small/bundle.tar.gz

With --drawn nothing is run: pairs of neighbouring runs (repetitions, or files as --keep leaves them) are drawn, who is the base by lot, and
the samples of each from its own; the slow one's are multiplied. That tries the statistics on recorded noise, in a minute.

Prints one line for each try and the counts at the end; with --limit it ends in time and says how many tries there were.
"""

import argparse
import collections
import contextlib
import copy
import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "scripts"))
import minitaw.bundle  # noqa: E402
import minitaw.command  # noqa: E402
import minitaw.compare  # noqa: E402
import minitaw.record  # noqa: E402

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
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
  if (share < 0) share = atof(getenv("SLOWER_BY"));
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
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="the program that is tried")
    parser.add_argument("--drawn", nargs="+", metavar="RESULT", help="draw samples from result files or bundles instead of running anything")
    parser.add_argument("--samples", type=int, help="drawn for each run: inputs/gate.toml takes 40 (default: as many as were recorded)")
    parser.add_argument("--seed", type=int, help="of what is drawn (default: another one each time; it is printed)")
    parser.add_argument("--deck", default=REPOSITORY / "inputs" / "gate.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as minitaw run --set")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--least", type=int, default=9, help="pairs before the first look (default: 9)")
    parser.add_argument("--most", type=int, default=48, help="pairs after which it stays AMBIGUOUS (default: 48)")
    parser.add_argument("--slower", type=float, default=0.10, help="share of processor time that is planted (default: 0.10)")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no new try begins")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for all files of all tries (default: none is kept)")
    options = parser.parse_args()
    if (options.program is None) == (options.drawn is None):
        parser.error("name a program, or results after --drawn")
    return options


def build_shim(folder):
    library = folder / "libslower.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-ldl"], input=SHIM, text=True, check=True)
    return library


def measure(options, output, shim=None):
    """One run of the deck, as the examples for CI do it."""
    environment = {"OMP_NUM_THREADS": "1"} | ({"LD_PRELOAD": str(shim), "SLOWER_BY": str(options.slower)} if shim else {})
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), options.program, "run", options.deck, "-o", output]
    command += [word for override in options.set for word in ("--set", override)]
    if options.ranks > 1:  # one rank needs no launcher, which takes as long to start as a tiny deck
        command = ["mpiexec", "-n", str(options.ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{output}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def compare(options, base, fresh):
    """scripts/compare, without a new process."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = minitaw.command.call("compare", ["--json", "--base", *map(str, base), "--new", *map(str, fresh)])
    if code not in (0, 1):
        sys.exit(code)
    return json.loads(said.getvalue())


def one_try(options, folder, shim):
    """Runs of the three programs, in an order that turns from pair to pair, until both comparisons are decided."""
    names = ["base", "same", "slow"]
    files = {name: [] for name in names}
    verdicts = {}
    for pair in range(options.most):
        for k in range(3):
            name = names[(pair + k) % 3]
            if name in verdicts:
                continue
            files[name].append(folder / f"{name}-{pair:03}.h5")
            measure(options, files[name][-1], shim if name == "slow" else None)
        if pair + 1 < options.least:
            continue
        for name in names[1:]:
            if name in verdicts:
                continue
            found = compare(options, files["base"], files[name])
            if found["outcome"] != "ambiguous" or pair + 1 == options.most:
                verdicts[name] = found | {"pairs": pair + 1}
        if len(verdicts) == 2:
            break
    return verdicts


def ratios(verdict):
    return [case["aspects"]["time"]["ratio"] for case in verdict["cases"]]


def words(verdict):
    return [case["aspects"]["time"]["word"] for case in verdict["cases"]]


def scaled_is_found(verdict, factor):
    """Whether the same measurements, those of the new side scaled, would be a regression."""
    return any(ratio["low"] * factor > 1 + verdict["threshold"] for ratio in ratios(verdict))


def describe(verdict):
    figures = ", ".join(f"{r['estimate']:.3f} [{r['low']:.3f}, {r['high']:.3f}]" for r in ratios(verdict))
    return f"{verdict['comparison'].split(':')[0]:10} {verdict['pairs']:3} pairs  {figures}"


def drawn_run(result, repetition, numbers, chance, factor, count):
    """A run of these cases: so many samples, or as many as the repetition has, drawn from its own with replacement, times `factor`."""
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
    numbers, sides = chance.permutation(len(runs[0][0].cases))[:2], ([], [])
    for pairs in range(1, options.most + 1):
        first = chance.integers(len(runs) - 1)
        order = (first, first + 1) if chance.random() < 0.5 else (first + 1, first)
        for side, number, times in zip(sides, order, (1, factor)):
            side.append(drawn_run(*runs[number], numbers, chance, times, options.samples))
        if pairs >= options.least:
            found = minitaw.compare.compare(*sides, minitaw.compare.Rules())
            if found.outcome != "ambiguous":
                break
    return found.text().partition(":")[0], pairs


def try_drawn(options):
    results = [minitaw.bundle.check(path) if path.endswith("gz") else minitaw.record.load(path) for path in options.drawn]
    runs = [(result, repetition) for result in results for repetition in range(result.cases[0]["repeats"])]
    if len(runs) < 2:
        sys.exit(f"one run is recorded in {options.drawn}; two or more are needed")
    seed = numpy.random.SeedSequence(options.seed).entropy
    chance = numpy.random.default_rng(seed)
    print(f"seed {seed}: {len(runs)} recorded runs of {len(results[0].cases)} cases, two of which are drawn in each of {options.tries} tries")
    for what, factor in (("against itself", 1), (f"samples times {1 + options.slower:g}", 1 + options.slower)):
        verdicts = [drawn_verdict(options, runs, chance, factor) for _ in range(options.tries)]
        counts, pairs = collections.Counter(word for word, _ in verdicts), sorted(count for _, count in verdicts)
        print(f"{what}: {dict(counts)}; pairs until decided: median {pairs[len(pairs) // 2]}, at most {pairs[-1]}", flush=True)


def main():
    options = arguments()
    if options.drawn:
        return try_drawn(options)
    counts = {"same": {}, "slow": {}, "scaled": 0}
    planted, tries, begun = [], 0, time.time()
    with tempfile.TemporaryDirectory() as scratch:
        shim = build_shim(pathlib.Path(scratch))
        while tries < options.tries and time.time() - begun < options.limit:
            folder = (options.keep or pathlib.Path(scratch)) / f"{tries:03}"
            folder.mkdir(parents=True, exist_ok=True)
            before = time.time()
            verdicts = one_try(options, folder, shim)
            tries += 1
            for name in ("same", "slow"):
                word = verdicts[name]["comparison"].split(":")[0]
                counts[name][word] = counts[name].get(word, 0) + 1
            counts["scaled"] += scaled_is_found(verdicts["same"], 1 + options.slower)
            planted.append([r["estimate"] for r in ratios(verdicts["slow"])])
            print(f"{tries:4} {time.time() - before:6.1f} s  load {os.getloadavg()[0]:4.1f}  itself: {describe(verdicts['same'])}")
            print(f"{'':28}slower: {describe(verdicts['slow'])}", flush=True)
            if not options.keep:
                for file in folder.iterdir():
                    file.unlink()
    print(f"{tries} tries in {time.time() - begun:.0f} s")
    print(f"against itself: {counts['same']}")
    print(f"against the program made slower for real: {counts['slow']}")
    middle = [sorted(column)[len(column) // 2] for column in zip(*planted)]
    print(f"by (medians of the estimates, each case): {', '.join(f'{ratio:.3f}' for ratio in middle)}")
    print(f"found if the samples are multiplied by {1 + options.slower:g} instead: {counts['scaled']}")


if __name__ == "__main__":
    main()
