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
    "confidence, n, rank",
    [(0.95, 5, 0), (0.95, 6, 1), (0.95, 9, 2), (0.90, 17, 5), (0.99, 17, 3), (0.95, 100, 40)],
)
def test_pairs_end_at_ranks_of_the_binomial_distribution(confidence, n, rank):
    """The most values k that may lie outside at each end while P(fewer than k of n coins show
    heads) <= (1 - confidence) / 2."""
    shuffled = numpy.random.default_rng(n).permutation(range(1, n + 1)) / 100
    ends = rank / 100, (n + 1) / 200, (n + 1 - rank) / 100
    assert ends_of(True, [0] * n, shuffled, confidence) == (ends if rank else None)


@pytest.mark.parametrize(
    "confidence, n, m, rank",
    [
        (0.95, 3, 3, 0),
        (0.95, 4, 4, 1),
        (0.90, 5, 6, 6),
        (0.99, 5, 6, 2),
        (0.95, 7, 16, 27),
        (0.95, 50, 50, 966),
    ],
)
def test_others_end_at_ranks_of_mann_and_whitney(confidence, n, m, rank):
    """As the exact tables have them; the differences of these samples are 0 .. n m - 1, of which
    the normal distribution says for 50 and 50: 1250 - 1.960 sqrt(2500 101 / 12), less than one
    off."""
    base = -numpy.arange(n) / 1e4
    new = n * numpy.arange(m) / 1e4
    ends = (rank - 1) / 1e4, (n * m - 1) / 2e4, (n * m - rank) / 1e4
    assert ends_of(False, base, new, confidence) == (ends if rank else None)


@pytest.mark.parametrize(
    "low, high, says",
    [
        (0.96, 1.04, "SAME"),
        (1.051, 1.2, "SLOWER step time"),
        (0.8, 0.951, "FASTER step time"),
        (1, 1.06, "AMBIGUOUS unknown"),
        (1.018, 1.121, "AMBIGUOUS slower, by less or by more than the threshold of 5 %"),
        (0.8, 0.953, "AMBIGUOUS faster, by less or by more than the threshold of 5 %"),
    ],
)
def test_an_interval_is_judged_by_the_threshold(low, high, says):
    interval = Interval(low, (low + high) / 2, high)
    word, why = judge(interval, interval, Rules(threshold("5%")))
    expected, _, reason = says.partition(" ")
    assert word == expected
    assert reason in why


def test_one_of_many_must_be_beyond_the_threshold_with_them_all():
    for alone, sure in ((0.8, 0.9), (0.7, 1)), ((1.1, 1.2), (1, 1.3)):
        low = Interval(alone[0], 1, alone[1])
        high = Interval(sure[0], 1, sure[1])
        assert judge(low, high, Rules())[0] == "AMBIGUOUS"
