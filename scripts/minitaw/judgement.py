# SPDX-License-Identifier: BSD-3-Clause
"""What samples and bytes say of the runs and cases of a result, whatever the file says."""

import math

import numpy

from .numbers import percent, plural
from .record import array, cases, judged, rows_of, samples, tokens_of, took_time

LEAST_SAMPLES = 3  # of a valid run
WIDEST_SPREAD = 0.1  # of its quartiles, to the median
TOLERANCE = 1e-9  # of a median, relatively


def judgement(seconds, warmup):
    """VALID, or with doubts."""
    q1, median, q3 = numpy.quantile(seconds, [0.25, 0.5, 0.75])
    spread = (q3 - q1) / median
    doubts = ["no warm-up"] if warmup == 0 else []
    if spread > WIDEST_SPREAD:
        doubts.append(f"noisy: quartiles {percent(spread, 0)} of the median apart")
    return f"VALID ({'; '.join(doubts)})" if doubts else "VALID"


def verdict_of(run):
    seconds = samples(run)
    if run.status != "ok":
        return f"INVALID: {run.status}"
    if len(seconds) < LEAST_SAMPLES:
        return f"INVALID: {plural(len(seconds), 'timed step')}, {LEAST_SAMPLES} are needed"
    if not took_time(seconds):
        return "INVALID: not all steps took time"
    if not numpy.array_equal(array(run, "bytes/planned"), array(run, "bytes/counted")):
        return "INVALID: the bytes counted are not those planned"
    return judgement(seconds, run.warmup)


def median(seconds):
    return float(numpy.median(seconds)) if len(seconds) else math.nan


def recomputed(runs):
    """The runs with the verdicts and medians of their samples."""
    rows = rows_of(runs)
    medians = [median(samples(run)) for run in rows]
    return judged(runs.assign(verdict=list(map(verdict_of, rows)), median_s=medians))


def cases_of(runs):
    """Cases with what all their samples say together: `step`, the median, how many seconds were
    `timed`, and whether they are noisy."""
    found = cases(runs)
    seconds = [numpy.concatenate(list(map(samples, case.runs))) for case in rows_of(found)]
    verdicts = [
        judgement(some, case.warmup) if case.valid else case.verdict
        for case, some in zip(rows_of(found), seconds)
    ]
    step = numpy.array(list(map(median, seconds)))
    timed = step * list(map(len, seconds))
    return judged(found.assign(step=step, timed=timed, verdict=verdicts))


def rate_of(case):
    """Tokens per second, by what all samples say."""
    return tokens_of(case) / case.step


def misjudged(said, found):
    """Where a file says other than its samples and bytes."""
    off = abs(said.median_s - found.median_s) > TOLERANCE * found.median_s
    differs = (said.valid != found.valid) | ((said.doubt == "") != (found.doubt == "")) | off
    for told, run in zip(rows_of(said[differs]), rows_of(found[differs])):
        yield (
            f"run {run.run} says {told.verdict}, step {told.median_s:.6g} s, but its samples and "
            f"bytes say {run.verdict}, step {run.median_s:.6g} s"
        )
