# SPDX-License-Identifier: BSD-3-Clause
"""What is compared of a case, and what the differences mean (docs/compare.md)."""

import math
from dataclasses import dataclass, field

from .intervals import Interval
from .record import array, rows_of

OUTCOMES = ["none", "same", "better", "ambiguous", "worse"]  # the later, the more serious
MEANING = {
    "": "none",
    "INVALID": "none",
    "OFF": "none",
    "SAME": "same",
    "VALID": "same",
    "FASTER": "better",
    "LESS": "better",
    "REPAIRED": "better",
    "AMBIGUOUS": "ambiguous",
    "SLOWER": "worse",
    "MORE": "worse",
    "WRONG": "worse",
    "BROKEN": "worse",
}
MIB = 2**20
# The largest resident set and the device hold more than the step: libraries, the launcher, whatever
# the system gave. Below this many bytes a difference says nothing.
NOISE_OF_PROCESS = 32 * MIB
# Aspect: column, units, and how many bytes do not matter.
BYTES = {
    "memory": ("memory_measured", "B", 0),
    "process peak": ("process_peak", "B", NOISE_OF_PROCESS),
    "device memory": ("device_used", "B", NOISE_OF_PROCESS),
    "bytes inside": ("bytes_inside", "B/step", 0),
    "bytes between": ("bytes_between", "B/step", 0),
}
# How far losses of the same computation may lie apart, relatively: what `run` allows against the
# serial reference, in the first step; a hundred times that (fp32; ten times, bf16) after steps that
# feed the differences back.
LOSS_TOLERANCE = {"fp32": (1e-6, 1e-4), "bf16": (1e-3, 1e-2)}


@dataclass
class Rules:
    """What the user asks of a comparison: options of the command."""

    threshold: float = 0.05  # the least relative difference of step times that matters
    memory_threshold: float = 0.05  # the same of memory
    confidence: float = 0.95  # of the interval of the ratio
    quantile: float = 0.0  # of the samples of a block, that stands for it; 0: the fastest
    allow: list = field(default_factory=list)  # names of WHAT_MATTERS that may differ
    # What becomes of cases of the base that the new side lacks: "list" or "fail".
    missing: str = "list"
    looks: int = 1  # how often one compares, at most, while more is measured


@dataclass
class Surety:
    """How sure the intervals of one comparison have to be.

    To say SAME of all cases, each must be within the threshold by itself. To say SLOWER or FASTER
    of one of many takes more: one of twenty intervals of 95 % misses by chance. The same holds for
    many looks.
    """

    confidence: float
    looks: int
    count: int  # intervals: of the cases, and of all together

    @property
    def alone(self):
        return 1 - (1 - self.confidence) / self.looks

    @property
    def together(self):
        """Of each interval, so that all of them hold at once with the confidence asked for."""
        return 1 - (1 - self.alone) / self.count


@dataclass
class Aspect:
    """One thing that is compared of a case. Figures are NaN where there are none."""

    name: str
    units: str = ""
    base: float = math.nan
    new: float = math.nan
    word: str = ""  # of MEANING; empty: nothing to compare
    reason: str = ""  # one sentence, for words that need one
    ratio: Interval = None  # of the time: new / base

    @property
    def outcome(self):
        return MEANING[self.word]

    @property
    def severity(self):
        return OUTCOMES.index(self.outcome)


# Step times.


def judge(ratio, sure, rules, count=1):
    """What a ratio means, and why.

    `ratio` is its interval taken alone, `sure` the wider one of `count` that hold at once, or None
    if there are too few measurements. SAME needs the whole of the former within the threshold,
    SLOWER and FASTER the whole of the latter beyond it.
    """
    slow, fast = 1 + rules.threshold, 1 / (1 + rules.threshold)
    said = f"step time: new / base = {ratio.estimate:.4g}, from {ratio.low:.4g} to {ratio.high:.4g}"
    if fast <= ratio.low and ratio.high <= slow:
        return "SAME", ""
    if sure and sure.low > slow:
        return "SLOWER", said
    if sure and sure.high < fast:
        return "FASTER", said
    limit = f"{100 * rules.threshold:.4g} %"
    way = "slower" if ratio.low > 1 else "faster"
    if ratio.low > slow or ratio.high < fast:
        seen = (
            f"{way} by more than {limit} if it stood alone, but one of {count} intervals "
            "may miss by chance"
        )
    elif ratio.low > 1 or ratio.high < 1:
        seen = f"{way}, by less or by more than the threshold of {limit}"
    else:
        seen = f"unknown: slower, faster, or the same within {limit}"
    return "AMBIGUOUS", f"{said}: {seen}; measure more"


def judge_times(times, rules, surety):
    """Word, reason and interval of the ratio."""
    ratio = times.ratio(surety.alone)
    if math.isinf(rules.threshold):
        return "OFF", "times are not judged (--threshold off)", ratio
    if not ratio:
        few = times.counts_text()
        needed = times.needed(surety.alone)
        why = f"{few} too few for a confidence of {surety.alone:.4g}: {needed} are needed"
        return "AMBIGUOUS", why, None
    sure = times.ratio(surety.together)
    word, reason = judge(ratio, sure, rules, surety.count)
    if not sure and word == "AMBIGUOUS":
        reason += f", {times.needed(surety.together)} of each or more"
    return word, reason, ratio


def compare_times(times, rules, surety):
    if times.base.empty or times.new.empty:
        return Aspect("time", "s")
    base, new = times.typical()
    return Aspect("time", "s", base, new, *judge_times(times, rules, surety))


# All else.


def compare_verdicts(match):
    """Whether the case ended valid in all files of each side."""
    was, now = (side[~side.valid] for side in match.sides)
    if was.empty and now.empty:
        return Aspect("verdict", word="VALID")
    bad = (was if now.empty else now).iloc[0]
    why = f"{bad.verdict} in {bad.file.path}"
    if len(was) and len(now):
        return Aspect("verdict", word="INVALID", reason="invalid on both sides: " + why)
    return Aspect("verdict", word="BROKEN" if len(now) else "REPAIRED", reason=why)


def compare_bytes(match, name, rules):
    """Medians over the valid runs; of memory, differences below the threshold do not matter."""
    column, units, floor = BYTES[name]
    base, new = (float(side[column][side.valid].median()) for side in match.sides)
    found = Aspect(name, units, base, new)
    is_memory = units == "B"
    is_known = min(base, new) > 0 if is_memory else min(base, new) >= 0
    if not is_known:
        return found
    threshold = rules.memory_threshold * base if is_memory else 0
    if abs(new - base) <= max(threshold, floor):
        found.word = "SAME"
    else:
        found.word = "MORE" if new > base else "LESS"
        found.reason = f"{name} {base / MIB:.4g} MiB -> {new / MIB:.4g} MiB"
    return found


def compare_losses(match):
    """Losses of the first step and of the last one that both have, within what the rounding of the
    type explains. Of the valid run that has taken the most steps."""
    sides = []
    for cases in match.sides:
        valid = [array(case, "losses") for case in rows_of(cases[cases.valid])]
        sides.append(max(valid, key=len, default=[]))
    last = min(map(len, sides)) - 1
    is_another = {"dtype", "seed", "learning_rate"} & set(match.differs)
    tolerances = LOSS_TOLERANCE.get(match.case["dtype"], LOSS_TOLERANCE["fp32"])
    for name, at, tolerance in zip(("first loss", "last loss"), (0, last), tolerances):
        found = Aspect(name, "nat/token")
        if last >= 0 and not is_another:
            found.base, found.new = (float(losses[at]) for losses in sides)
            judge_loss(found, tolerance)
        yield found


def judge_loss(found, tolerance):
    if abs(found.new - found.base) <= tolerance * abs(found.base) < math.inf:
        found.word = "SAME"
        return
    found.word = "WRONG"
    found.reason = (
        f"{found.name} {found.base:.9g} -> {found.new:.9g} nat/token, "
        f"more than {tolerance:.0e} apart"
    )


def all_aspects(match, rules, surety):
    """{name: aspect} of a match."""
    aspects = [
        compare_verdicts(match),
        compare_times(match.times, rules, surety),
        *(compare_bytes(match, name, rules) for name in BYTES),
        *compare_losses(match),
    ]
    return {aspect.name: aspect for aspect in aspects}
