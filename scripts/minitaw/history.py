# SPDX-License-Identifier: BSD-3-Clause
"""Where a history of measurements of one case changes for good: by more than the noise between
runs, and by more than chance (docs/compare.md)."""

import math
from dataclasses import dataclass

import numpy
from scipy.stats import mannwhitneyu

from .intervals import blocks_of, quantiles_of
from .numbers import plural
from .record import Case

RISK = 0.05  # that a history without a change has a mark
LEAST_CHANGE = 0.03  # that is marked
SCATTERS = 2  # a change is at least so many times the scatter between runs: loads last
RECENT = 10  # runs in which a change must show, and for which --fail tells it
NORMAL = 1.4826  # standard deviations of a normal distribution in its median deviation
MOST_RUNS = 1000


@dataclass
class Change:
    ratio: float  # new / base of the fastest steps
    before: int  # runs of the level before

    @property
    def word(self):
        return "slower" if self.ratio > 1 else "faster"

    def text(self):
        before = f"the {plural(self.before, 'run')} before"
        return f"{self.word}: step {self.ratio - 1:+.1%} against {before}"


@dataclass
class Run:
    """A record's measurement of a case."""

    case: Case
    fastest: float  # s, step: the median over repetitions of the fastest of each
    change: Change = None  # that begins here

    @property
    def counts(self):
        """A noisy one tells more about what else ran than about the program."""
        return "noisy" not in self.case.doubt


def runs_of(cases):
    """In the order of their dates. Each stands for itself by as many samples as the others have."""
    ordered = sorted(cases, key=lambda case: case["started"])
    blocks = [blocks_of([case]) for case in ordered]
    count = min(len(block) for some in blocks for block in some)
    found = []
    for case, some in zip(ordered, blocks):
        fastest = math.exp(numpy.median(quantiles_of(some, count, 0)))
        found.append(Run(case, fastest))
    return found


def scatter_of(*levels):
    """Of runs around the median of their level: the standard deviation, if they were normal."""
    off = [abs(level - numpy.median(level)) for level in levels]
    return NORMAL * float(numpy.median(numpy.concatenate(off)))


def change_at(before, after, risk):
    """The probability that chance alone orders these logarithms of steps so; None if they show no
    change."""
    shift = numpy.median(after) - numpy.median(before)
    scatter = scatter_of(before, after)
    if abs(shift) < max(math.log1p(LEAST_CHANGE), SCATTERS * scatter):
        return None
    chance = mannwhitneyu(before, after).pvalue
    return chance if chance <= risk else None


def tests_of(count):
    """How many comparisons so many runs lead to."""
    return sum(min(end - 1, RECENT) for end in range(2, count + 1))


def found_at(steps, risk):
    """Where levels begin, run after run as the history grew.

    Each time the newest 1 to 10 runs are compared with all before, back to the last change, by the
    test of Mann and Whitney. All these comparisons share the risk.
    """
    each = risk / max(tests_of(len(steps)), 1)
    begins = [0]
    for end in range(2, len(steps) + 1):
        begin, found = begins[-1], []
        for at in range(max(begin + 1, end - RECENT), end):
            chance = change_at(steps[begin:at], steps[at:end], each)
            if chance is not None:
                found.append((chance, at))
        if found:
            begins.append(min(found)[1])
    return begins[1:]


def deviation(level):
    return float(abs(level - numpy.median(level)).sum())


def placed(steps, begins):
    """Each begin once more, with the runs that came later: where the runs deviate least from the
    levels on both sides."""
    bounds = [0, *begins, len(steps)]
    for i in range(1, len(bounds) - 1):
        low, high = bounds[i - 1], bounds[i + 1]

        def off(at):
            return deviation(steps[low:at]) + deviation(steps[at:high])

        bounds[i] = min(range(low + 1, high), key=off)
    return bounds


def mark(runs, risk):
    """Marks the changes of a history at the first run of the new level."""
    counted = [run for run in runs if run.counts]
    steps = numpy.log([run.fastest for run in counted])
    bounds = placed(steps, found_at(steps, risk))
    for low, at, high in zip(bounds, bounds[1:], bounds[2:]):
        shift = numpy.median(steps[at:high]) - numpy.median(steps[low:at])
        counted[at].change = Change(math.exp(shift), at - low)


def levels(runs):
    """Counted runs between changes."""
    parts = [[]]
    for run in runs:
        if run.change:
            parts.append([])
        if run.counts:
            parts[-1].append(run)
    return parts


def newest(runs):
    """The newest change, and how many counted runs it has lasted; None if there is none."""
    changes = [run for run in runs if run.change]
    return (changes[-1], len(levels(runs)[-1])) if changes else None


def least_count(risk):
    """The fewest runs of which a change can be marked: all of the newer half beyond all of the
    older one."""
    for count in range(2, MOST_RUNS):
        newer = min(count // 2, RECENT)
        if 2 / math.comb(count, newer) <= risk / tests_of(count):
            return count
    return MOST_RUNS
