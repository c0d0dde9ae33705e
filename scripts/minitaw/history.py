# SPDX-License-Identifier: BSD-3-Clause
"""Where a history of measurements of one case changes for good: by more than the noise between
runs, and by more than chance (docs/ci.md)."""

import math

import numpy
from scipy.stats import mannwhitneyu, norm

from .numbers import plural
from .record import rows_of, samples

RISK = 0.05  # that a history without a change has a mark
LEAST_CHANGE = 0.03  # that is marked
SCATTERS = 2  # a change is at least so many times the scatter between runs: loads last
# SAME says that no change of 10 % began in the newest runs: this much of it must be seen, as a run
# may be off by the rest.
MOST_UNSEEN = 0.05
RECENT = 10  # runs in which a change must show, and for which --fail tells it
MOST_RUNS = 1000


def history_of(cases):
    """Measurements of one case in the order of their dates, with the column `fastest`: the fastest
    step of as many repetitions and steps as the others have. It was disturbed least, also where most
    steps were."""
    found = cases.sort_values("started", kind="stable", ignore_index=True)
    blocks = [list(map(samples, case.runs)) for case in rows_of(found)]
    repetitions = min(map(len, blocks))
    count = min(len(block) for some in blocks for block in some)
    fastest = [min(block[:count].min() for block in some[:repetitions]) for some in blocks]
    return found.assign(fastest=fastest)


def scatter_of(*levels):
    """Of runs around the median of their level: the standard deviation, if they were normal."""
    off = [abs(level - numpy.median(level)) for level in levels]
    return float(numpy.median(numpy.concatenate(off)) / norm.ppf(0.75))


def shift_at(before, after):
    """Between the medians of these logarithms of steps; 0 if it is less than what counts, or if the
    fastest ones, which were disturbed least, do not show it too."""
    shift = numpy.median(after) - numpy.median(before)
    of_fastest = (min(after) - min(before)) * numpy.sign(shift)
    least = math.log1p(LEAST_CHANGE)
    is_seen = abs(shift) >= max(least, SCATTERS * scatter_of(before, after))
    return float(shift) if is_seen and of_fastest >= least else 0


def change_at(before, after, risk):
    """The probability that chance alone orders these logarithms of steps so; None if they show no
    change."""
    if not shift_at(before, after):
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


def marked(history, risk):
    """With the columns `level`, its number; and of the first measurement of a new one `ratio`,
    new / old of the fastest steps, and `before`, how many measurements the level before has."""
    found = history.assign(level=0, ratio=math.nan, before=0)
    steps = numpy.log(found.fastest.values)
    bounds = placed(steps, found_at(steps, risk))
    for level, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        found.loc[begin : end - 1, "level"] = level
        if level:
            low = bounds[level - 1]
            shift = numpy.median(steps[begin:end]) - numpy.median(steps[low:begin])
            found.loc[begin, ["ratio", "before"]] = math.exp(shift), begin - low
    return found


def levels(history):
    """Logarithms of the fastest steps of each level."""
    return [numpy.log(some.values) for _, some in history.groupby("level").fastest]


def possible(history):
    """(how many of the newest measurements, by which shift) would be a change if more were like
    them; None if there are none."""
    steps = levels(history)[-1]
    begins = range(max(1, len(steps) - RECENT), len(steps))
    found = {at: shift_at(steps[:at], steps[at:]) for at in begins}
    begins = [at for at in begins if found[at]]
    if not begins:
        return None
    at = min(begins, key=lambda at: deviation(steps[:at]) + deviation(steps[at:]))
    return len(steps) - at, found[at]


def least_change(history):
    """That would be seen if it lasted, and how runs scatter around their level."""
    scatter = scatter_of(*levels(history))
    return max(LEAST_CHANGE, math.expm1(SCATTERS * scatter)), scatter


def newest(history):
    """The measurement at which the newest change began; None if there is none."""
    changes = history[history.ratio.notna()]
    return None if changes.empty else changes.iloc[-1]


def word_of(ratio):
    return "slower" if ratio > 1 else "faster"


def change_text(run):
    word = word_of(run.ratio)
    return f"{word}: step {run.ratio - 1:+.1%} against the {plural(int(run.before), 'run')} before"


def least_count(risk):
    """The fewest runs of which a change can be marked: all of the newer half beyond all of the
    older one."""
    for count in range(2, MOST_RUNS):
        newer = min(count // 2, RECENT)
        if 2 / math.comb(count, newer) <= risk / tests_of(count):
            return count
    return MOST_RUNS
