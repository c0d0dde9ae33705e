"""Intervals of the comparison end where the tables of the distributions say; from that it follows what they cover, whatever the distribution."""

import random

import support  # noqa: F401  finds the package
from minitaw.intervals import median_interval, shift_interval


def check_median_ranks():
    """As scipy.stats.binom.cdf has them: how many values k may lie outside at each end while cdf(k - 1, n, 1/2) <= (1 - confidence) / 2."""
    sizes = [5, 6, 7, 8, 9, 12, 15, 17, 20, 25, 30, 100, 1500]
    expected = {0.90: [1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 11, 42, 718], 0.95: [0, 1, 1, 1, 2, 3, 4, 5, 6, 8, 10, 40, 712],
                0.99: [0, 0, 0, 1, 1, 2, 3, 3, 4, 6, 8, 37, 700]}
    for confidence, ranks in expected.items():
        for n, rank in zip(sizes, ranks):
            interval = median_interval(random.Random(20111741).sample(range(1, n + 1), n), confidence)
            assert (interval is not None) == (rank > 0), (n, confidence)
            assert not interval or interval == (rank, (n + 1) / 2, n + 1 - rank), (n, confidence, interval)


def check_shift_ranks():
    """As scipy.stats.mannwhitneyu(method="exact") has them; the differences of these samples are the numbers 0 .. n m - 1."""
    for n, m, *ranks in ((3, 3, None, 0, 0), (4, 4, 2, 1, 0), (5, 6, 6, 4, 2), (3, 9, 4, 3, 1), (7, 16, 31, 27, 19), (20, 20, 139, 128, 106)):
        for confidence, rank in zip((0.9, 0.95, 0.99), ranks):
            interval = shift_interval([-i for i in range(n)], [n * j for j in range(m)], confidence)
            assert rank is None or (interval is not None) == (rank > 0), (n, m, confidence)
            assert not rank or (interval.low, interval.high) == (rank - 1, n * m - rank), (n, m, confidence, interval)


def check_few():
    assert median_interval([], 0.95) is None and shift_interval([], [1], 0.95) is None
    assert shift_interval([1, 2, 3], [1, 2, 3], 0.95) is None


check_median_ranks()
check_shift_ranks()
check_few()
