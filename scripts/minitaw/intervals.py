# SPDX-License-Identifier: BSD-3-Clause
"""How much two sets of measurements differ, as intervals that hold for any distribution: step times
of a shared machine are far from normal, and a few of them are always wild."""

import bisect
import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy
import pandas
from scipy.stats import binom, mannwhitneyu

from .record import rows_of, samples

EXACT_UP_TO = 60  # values of both sides together


class Interval(NamedTuple):
    """Of a ratio: what was estimated, and where the true one lies with at least the confidence
    asked for."""

    low: float
    estimate: float
    high: float


def pairs_left_out(n, confidence):
    """The most of n differences of pairs that lie outside at each end with a probability of
    (1 - confidence) / 2 at most: the sign test turned round (Hollander, Wolfe and Chicken,
    "Nonparametric Statistical Methods", section 3.6)."""
    return int(binom.ppf((1 - confidence) / 2, n, 0.5))


def differences_left_out(n, m, confidence):
    """The same of the n m differences between two samples: where the test of Mann and Whitney turns
    (sections 4.2 and 4.3)."""
    method = "exact" if n + m <= EXACT_UP_TO else "asymptotic"

    def chance(u):
        """The probability of two samples of which u pairs are in the wrong order, or fewer."""
        one = numpy.clip(u - m * numpy.arange(n), 0, m) - numpy.linspace(0.5, 0.6, n)
        return mannwhitneyu(one, numpy.arange(m), alternative="less", method=method).pvalue

    return bisect.bisect_right(range(n * m // 2 + 1), (1 - confidence) / 2, key=chance)


# Step times of a case, as both sides of a comparison have measured them.


@dataclass
class Times:
    """Logarithms of seconds, one for each measurement: a pair of files, or a repetition."""

    are_paired: bool
    base: pandas.Series
    new: pandas.Series  # of pairs, values with the same index belong together

    @property
    def unit(self):
        return "pairs of files" if self.are_paired else "repetitions"

    def left_out(self, n, m, confidence):
        if self.are_paired:
            return pairs_left_out(n, confidence)
        return differences_left_out(n, m, confidence)

    def ratio(self, confidence):
        """new / base, the median of all ratios; None if there are too few measurements. Of pairs by
        the sign test: of 12 two on each side may be wrong by any amount. Else the shift of Hodges
        and Lehmann between two samples of the same shape."""
        left_out = self.left_out(len(self.base), len(self.new), confidence)
        if left_out == 0:
            return None
        ordered = numpy.sort(self.differences())
        ends = ordered[left_out - 1], numpy.median(ordered), ordered[-left_out]
        return Interval(*numpy.exp(ends).tolist())

    def differences(self):
        if self.are_paired:
            return self.new - self.base
        return numpy.subtract.outer(self.new.values, self.base.values).ravel()

    def needed(self, confidence):
        """The least number of measurements of each side that have an interval."""
        return next(n for n in itertools.count(1) if self.left_out(n, n, confidence))

    def typical(self):
        """Seconds of each side that agree with the ratio: of pairs that in the middle, or the mean
        of the two there, else the medians."""
        sides = pandas.DataFrame({"base": self.base, "new": self.new})
        if not self.are_paired:
            return numpy.exp(sides.median())
        order = self.differences().sort_values().index
        return numpy.exp(sides.loc[order[(len(order) - 1) // 2 : len(order) // 2 + 1]].mean())


def logarithms(blocks, quantile, count):
    """Of a quantile of the first `count` samples of each block: one with more samples than its
    counterpart could have the faster fastest one by chance alone."""
    found = {at: numpy.quantile(block[:count], quantile) for at, block in blocks.items()}
    return numpy.log(pandas.Series(found, dtype=float))


def blocks_of(cases):
    """Samples of each repetition of the valid ones of these cases: {number of the file: [seconds]}."""
    found = {}
    for case in rows_of(cases[cases.valid]):
        found.setdefault(case.turn, []).extend(map(samples, case.runs))
    return found


def times_of(sides, quantile, are_paired):
    """Of a case that both sides have. A file without a valid case takes its partner along."""
    base, new = map(blocks_of, sides)
    if are_paired:
        pairs = [turn for turn in base if turn in new]
        base, new = (
            {turn: numpy.concatenate(side[turn]) for turn in pairs} for side in (base, new)
        )
    else:
        base, new = (dict(enumerate(sum(side.values(), []))) for side in (base, new))
    count = min(map(len, [*base.values(), *new.values()]), default=0)
    return Times(are_paired, *(logarithms(side, quantile, count) for side in (base, new)))


def mean_times(cases):
    """Of several cases the means of their logarithms, over the pairs that all have: the ratio is
    then the geometric mean of theirs. None if the measurements did not come together."""
    is_one = len({(len(times.base), len(times.new)) for times in cases}) == 1
    if not cases[0].are_paired and not is_one:
        return None
    sides = [[getattr(times, side) for times in cases] for side in ("base", "new")]
    means = (pandas.concat(side, axis=1, join="inner").mean(axis=1) for side in sides)
    return Times(cases[0].are_paired, *means)
