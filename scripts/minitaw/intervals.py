# SPDX-License-Identifier: BSD-3-Clause
"""How much two sets of measurements differ, as intervals that hold for any distribution: step times
of a shared machine are far from normal, and a few of them are always wild."""

import itertools
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy
from scipy.special import bdtr, ndtri

EXACT_UP_TO = 50  # values of both sides together
MOST_SAMPLES = 1000  # of one side


class Interval(NamedTuple):
    """Of a difference: what was estimated, and where the true one lies with at least the confidence
    asked for."""

    low: float
    estimate: float
    high: float


def between(values, left_out):
    """The interval between sorted values, `left_out` of which are left out at each end; None if
    there are too few."""
    if left_out == 0:
        return None
    ordered = numpy.sort(values)
    low, high = float(ordered[left_out - 1]), float(ordered[-left_out])
    return Interval(low, float(numpy.median(ordered)), high)


def pairs_left_out(n, confidence):
    """The most values at each end that lie outside with a probability of (1 - confidence) / 2 at
    most: P(0 .. i of n coins show heads)."""
    chances = bdtr(numpy.arange(n // 2), n, 0.5)
    return int((chances <= (1 - confidence) / 2).sum())


def mann_whitney(n, m):
    """P(U = u) of the Mann-Whitney statistic for u = 0 .. n m / 2, when both samples come from one
    distribution: the coefficients of the product of (1 - x^(n + i)) / (1 - x^i) over i = 1 .. m,
    which are exact in these numbers."""
    counts = numpy.zeros(n * m // 2 + 1)
    counts[0] = 1
    for i in range(1, m + 1):
        counts[n + i :] -= counts[: max(len(counts) - n - i, 0)].copy()
        for first in range(min(i, len(counts))):
            counts[first::i] = numpy.cumsum(counts[first::i])
    return counts / math.comb(n + m, m)


def differences_left_out(n, m, confidence):
    """The most differences at each end that lie outside, likewise."""
    risk = (1 - confidence) / 2  # of each end
    if n + m < EXACT_UP_TO:
        return int((numpy.cumsum(mann_whitney(n, m)) <= risk).sum())
    deviation = math.sqrt(n * m * (n + m + 1) / 12)
    return int(max(0.0, n * m / 2 + ndtri(risk) * deviation))


def median_interval(differences, confidence):
    """The median of differences of pairs that are independent of each other; ends at order
    statistics that follow from the binomial distribution alone (the sign test turned round:
    Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods", section 3.6). Of 12 pairs two
    on each side may be wrong by any amount without moving the interval beyond the others. None if
    there are too few: six are needed for 0.95.
    """
    return between(differences, pairs_left_out(len(differences), confidence))


def shift_interval(base, new, confidence):
    """By how much `new` is shifted against `base`, two independent samples of the same shape: the
    median of all differences between one of each (Hodges and Lehmann), and the differences at which
    the Mann-Whitney test turns (Hollander, Wolfe and Chicken, sections 4.2 and 4.3); by its normal
    approximation from 50 values on. None if they are too few: four each are needed for 0.95."""
    differences = numpy.subtract.outer(new, base).ravel()
    return between(differences, differences_left_out(len(base), len(new), confidence))


# Step times of a case, as both sides of a comparison have measured them.


@dataclass
class Times:
    """Step times of a case on both sides: logarithms of seconds."""

    unit: str  # what a value stands for: "pairs of files", "repetitions", "samples"
    base: list
    new: list
    # Of pairs, values with the same index belong together, and these numbers say which they are.
    file: list = field(default_factory=list)

    @property
    def are_paired(self):
        return self.unit == "pairs of files"


def blocks_of(cases):
    """Logarithms of the samples of each repetition of these cases of a file, in the order of
    measurement."""
    found = []
    for case in cases:
        if case.valid:
            for number in numpy.unique(case.repetition):
                found.append(numpy.log(case.samples[case.repetition == number]))
    return found


def quantiles_of(blocks, count, quantile):
    """Of the first `count` samples of each block: one with more samples than its counterpart could
    have the faster fastest one by chance alone."""
    return [float(numpy.quantile(block[:count], quantile)) for block in blocks]


def thinned(blocks):
    """At most a thousand, evenly over their order: the interval looks at all differences of two,
    and more would not narrow it."""
    samples = numpy.sort(numpy.concatenate([*blocks, []]))
    chosen = numpy.linspace(0, len(samples) - 1, min(len(samples), MOST_SAMPLES))
    return samples[chosen.astype(int)].tolist()


def times_of(sides, quantile):
    """Of a case that both sides have: sides[side][file] are its measurements."""
    base, new = ([blocks_of(cases) for cases in files] for files in sides)
    if 1 < len(base) == len(new):
        return paired_times(base, new, quantile)
    base, new = ([block for blocks in side for block in blocks] for side in (base, new))
    if len(base) < 2 or len(new) < 2:
        return Times("samples", thinned(base), thinned(new))
    count = min(map(len, base + new))
    base, new = (quantiles_of(side, count, quantile) for side in (base, new))
    return Times("repetitions", base, new)


def paired_times(base, new, quantile):
    """Of files that were measured in turn; one without a valid case takes its partner along."""
    files = [number for number in range(len(base)) if base[number] and new[number]]
    base, new = ([numpy.concatenate(side[number]) for number in files] for side in (base, new))
    count = min(map(len, base + new), default=0)
    base, new = (quantiles_of(side, count, quantile) for side in (base, new))
    return Times("pairs of files", base, new, files)


def ratio_of(times, confidence):
    """new / base of the step times; None if there are too few measurements."""
    if times.are_paired:
        interval = median_interval(numpy.subtract(times.new, times.base), confidence)
    else:
        interval = shift_interval(times.base, times.new, confidence)
    return interval and Interval(*map(math.exp, interval))


def needed(times, confidence):
    """The least number of measurements of each side that have an interval."""
    for count in itertools.count(1):
        if times.are_paired:
            left_out = pairs_left_out(count, confidence)
        else:
            left_out = differences_left_out(count, count, confidence)
        if left_out:
            return count


def typical(times):
    """A time of each side that agrees with the ratio: of pairs that in the middle, or the mean of
    the two there, else the median."""
    if not times.are_paired:
        return numpy.median(times.base), numpy.median(times.new)
    order = numpy.argsort(numpy.subtract(times.new, times.base))
    middle = order[(len(order) - 1) // 2 : len(order) // 2 + 1]
    return [numpy.mean(numpy.take(side, middle)) for side in (times.base, times.new)]


def mean_times(cases):
    """Of several cases the means of their logarithms: the ratio is then the geometric mean of
    theirs.

    Of pairs those count that all cases have. None if the measurements did not come together.
    """
    shapes = {(case.unit, len(case.base), len(case.new)) for case in cases}
    if all(case.are_paired for case in cases):
        common = sorted(set.intersection(*(set(case.file) for case in cases)))
        chosen = [[case.file.index(file) for file in common] for case in cases]
    elif len(shapes) == 1 and cases[0].unit == "repetitions":
        common, chosen = [], [...] * len(cases)
    else:
        return None

    def means(sides):
        values = [numpy.asarray(side)[some] for side, some in zip(sides, chosen)]
        return numpy.mean(values, axis=0).tolist()

    base, new = means([case.base for case in cases]), means([case.new for case in cases])
    return Times(cases[0].unit, base, new, common)
