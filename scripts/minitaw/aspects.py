# SPDX-License-Identifier: BSD-3-Clause
"""What is compared of a case, and what the differences mean (docs/compare.md)."""

import math
from dataclasses import dataclass, field

from .intervals import Interval
from .record import array, rows_of

OUTCOMES = {  # the later, the more serious
    "none": ["", "INVALID", "OFF"],
    "same": ["SAME", "VALID"],
    "better": ["FASTER", "LESS", "REPAIRED"],
    "ambiguous": ["AMBIGUOUS"],
    "worse": ["SLOWER", "MORE", "WRONG", "BROKEN", "MISSING"],
}
SEVERITY = list(OUTCOMES).index
MEANING = {word: outcome for outcome, words in OUTCOMES.items() for word in words}
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


RISK = 0.05  # that an interval of step times misses the true ratio
MEMORY_THRESHOLD = 0.05


@dataclass
class Rules:
    """What the user asks of a comparison: options of the command."""

    threshold: float = 0.05  # the least relative difference of step times that matters
    quantile: float = 0.0  # of the samples of a block, that stands for it; 0: the fastest
    allow: list = field(default_factory=list)  # names of WHAT_MATTERS that may differ
    # What becomes of cases of the base that the new side lacks: "list" or "fail".
    missing: str = "list"
    looks: int = 1  # how often one compares, at most, while more is measured
    not_measured: list = field(default_factory=list)  # that was to be

    # To say SAME of all cases, each must be within the threshold by itself. To say SLOWER or FASTER
    # of one of many takes more: one of twenty intervals of 95 % misses by chance. The same holds
    # for many looks.

    @property
    def alone(self):
        """The confidence of an interval by itself."""
        return 1 - RISK / self.looks

    def sharing(self, parts):
        """Of one that has one of so many equal parts of the risk."""
        return 1 - RISK / self.looks / parts


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


def worst(aspects):
    """The most serious one, the first of equal ones."""
    return max(aspects, key=lambda aspect: SEVERITY(aspect.outcome))


# Step times.


def judge(ratio, sure, rules):
    """What a ratio means, and why.

    `ratio` is its interval taken alone, `sure` the wider one of several that hold at once, or None
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
            f"{way} by more than {limit} if it stood alone, but one of all intervals may miss by "
            "chance"
        )
    elif ratio.low > 1 or ratio.high < 1:
        seen = f"{way}, by less or by more than the threshold of {limit}"
    else:
        seen = f"unknown: slower, faster, or the same within {limit}"
    return "AMBIGUOUS", f"{said}: {seen}; measure more"


def compare_times(times, rules, parts):
    """By an interval that has one of so many parts of the risk."""
    found = Aspect("time", "s")
    if times.base.empty or times.new.empty:
        return found
    found.base, found.new = times.typical()
    found.ratio = times.ratio(rules.alone)
    if math.isinf(rules.threshold):
        found.word, found.reason = "OFF", "times are not judged (--threshold off)"
    elif not found.ratio:
        found.word = "AMBIGUOUS"
        counts = " and ".join(dict.fromkeys([f"{len(times.base)}", f"{len(times.new)}"]))
        few = f"too few {times.unit} ({counts}) for a confidence of {rules.alone:.4g}"
        found.reason = f"{few}: {times.needed(rules.alone)} are needed"
    else:
        confidence = rules.sharing(parts)
        sure = times.ratio(confidence)
        found.word, found.reason = judge(found.ratio, sure, rules)
        if not sure and found.word == "AMBIGUOUS":
            found.reason += f", {times.needed(confidence)} of each or more"
    return found


# All else.


def compare_verdicts(sides):
    """Whether the case ended valid in all files of each side."""
    was, now = (side[~side.valid] for side in sides)
    if was.empty and now.empty:
        return Aspect("verdict", word="VALID")
    bad = (was if now.empty else now).iloc[0]
    why = f"{bad.verdict} in {bad.file.path}"
    if len(was) and len(now):
        return Aspect("verdict", word="INVALID", reason="invalid on both sides: " + why)
    return Aspect("verdict", word="BROKEN" if len(now) else "REPAIRED", reason=why)


def compare_bytes(sides, name):
    """Medians over the valid runs; of memory, differences below the threshold do not matter."""
    column, units, floor = BYTES[name]
    base, new = (float(side[column][side.valid].median()) for side in sides)
    found = Aspect(name, units, base, new)
    is_memory = units == "B"
    if is_memory and not min(base, new) > 0 or math.isnan(base + new):
        return found
    threshold = MEMORY_THRESHOLD * base if is_memory else 0
    if abs(new - base) <= max(threshold, floor):
        found.word = "SAME"
    else:
        found.word = "MORE" if new > base else "LESS"
        found.reason = f"{name} {base / MIB:.4g} MiB -> {new / MIB:.4g} MiB"
    return found


def compare_losses(sides, differs):
    """Losses of the first step and of the last one that both have, within what the rounding of the
    type explains. Of the valid run that has taken the most steps."""
    longest = []
    for side in sides:
        valid = [array(case, "losses") for case in rows_of(side[side.valid])]
        longest.append(max(valid, key=len, default=[]))
    last = min(map(len, longest)) - 1
    is_another = {"dtype", "seed", "learning_rate"} & set(differs)
    tolerances = LOSS_TOLERANCE.get(sides[0]["dtype"].iloc[0], LOSS_TOLERANCE["fp32"])
    for name, at, tolerance in zip(("first loss", "last loss"), (0, last), tolerances):
        found = Aspect(name, "nat/token")
        if last >= 0 and not is_another:
            base, new = found.base, found.new = [float(losses[at]) for losses in longest]
            is_same = abs(new - base) <= tolerance * abs(base) < math.inf
            found.word = "SAME" if is_same else "WRONG"
            if not is_same:
                apart = f"more than {tolerance:.0e} apart"
                found.reason = f"{name} {base:.9g} -> {new:.9g} nat/token, {apart}"
        yield found


def all_aspects(match, rules, parts):
    """{name: aspect} of a match, always the same ones in the same order."""
    aspects = [
        compare_verdicts(match.sides),
        compare_times(match.times, rules, parts),
        *(compare_bytes(match.sides, name) for name in BYTES),
        *compare_losses(match.sides, match.differs),
    ]
    return {aspect.name: aspect for aspect in aspects}
