# SPDX-License-Identifier: BSD-3-Clause
"""Intervals of ratios end where the tables of the distributions say; from that it follows what they
cover, whatever the distribution. And what they mean."""

import math

import numpy
import pandas
import pytest
from minitaw.aspects import Rules, judge
from minitaw.compare import threshold
from minitaw.intervals import Interval, Times


def ends_of(are_paired, base, new, confidence):
    """The interval between these logarithms: low end, middle, high end."""
    times = Times(are_paired, pandas.Series(base, dtype=float), pandas.Series(new, dtype=float))
    found = times.ratio(confidence)
    return found and tuple(round(math.log(end), 9) for end in found)


@pytest.mark.parametrize(
    "confidence, ranks",
    [
        (0.90, {5: 1, 6: 1, 9: 2, 17: 5, 100: 42}),
        (0.95, {5: 0, 6: 1, 9: 2, 17: 5, 100: 40}),
        (0.99, {6: 0, 8: 1, 9: 1, 17: 3, 100: 37}),
    ],
)
def test_pairs_end_at_ranks_of_the_binomial_distribution(confidence, ranks):
    """The most values k that may lie outside at each end while P(fewer than k of n coins show
    heads) <= (1 - confidence) / 2."""
    for n, rank in ranks.items():
        shuffled = numpy.random.default_rng(n).permutation(range(1, n + 1)) / 100
        ends = rank / 100, (n + 1) / 200, (n + 1 - rank) / 100
        assert ends_of(True, [0] * n, shuffled, confidence) == (ends if rank else None), n


@pytest.mark.parametrize(
    "n, m, ranks",
    [
        (3, 3, [0, 0, 0]),
        (4, 4, [2, 1, 0]),
        (5, 6, [6, 4, 2]),
        (7, 16, [31, 27, 19]),
        (50, 50, [1011, 966, 876]),
    ],
)
def test_others_end_at_ranks_of_mann_and_whitney(n, m, ranks):
    """As the exact tables have them; the differences of these samples are 0 .. n m - 1, of which
    the normal distribution says for 50 and 50: 1250 - 1.645 (1.960, 2.576) sqrt(2500 101 / 12),
    less than one off."""
    for confidence, rank in zip((0.9, 0.95, 0.99), ranks):
        base, new = -numpy.arange(n) / 1e4, n * numpy.arange(m) / 1e4
        found = ends_of(False, base, new, confidence)
        ends = rank and ((rank - 1) / 1e4, (n * m - rank) / 1e4)
        assert (found and (found[0], found[2])) == (ends or None), confidence


@pytest.mark.parametrize(
    "low, high, says",
    [
        (0.96, 1.04, "SAME"),
        (1.051, 1.2, "SLOWER step time"),
        (0.8, 0.951, "FASTER step time"),
        (0.96, 1.06, "AMBIGUOUS unknown"),
        (1, 1.06, "AMBIGUOUS unknown"),
        (1.018, 1.121, "AMBIGUOUS slower, by less or by more than the threshold of 5 %"),
        (0.8, 0.953, "AMBIGUOUS faster, by less or by more than the threshold of 5 %"),
    ],
)
def test_an_interval_is_judged_by_the_threshold(low, high, says):
    interval = Interval(low, (low + high) / 2, high)
    word, why = judge(interval, interval, Rules(threshold("5%")))
    expected, _, reason = says.partition(" ")
    assert word == expected and reason in why


def test_one_of_many_must_be_beyond_the_threshold_with_them_all():
    for alone, sure in ((0.8, 0.9), (0.7, 1)), ((1.1, 1.2), (1, 1.3)):
        low, high = Interval(alone[0], 1, alone[1]), Interval(sure[0], 1, sure[1])
        assert judge(low, high, Rules(), 3)[0] == "AMBIGUOUS"
