# SPDX-License-Identifier: BSD-3-Clause
"""Has a result become slower, larger or wrong against another one? For people, programs and CI jobs
(docs/compare.md)."""

import argparse
import json
import math
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field

import numpy

from .command import BadInput, Parser, plural, write_file, write_stdout
from .intervals import Interval, Times, mean_times, needed, ratio_of, times_of, typical
from .record import FORBIDDEN, cell_text, describe, load

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
# Settings that must agree, and of provenance what must: names that --allow takes.
WHAT_MATTERS = [
    "dtype",
    "grad_dtype",
    "recompute",
    "attention",
    "transport",
    "seed",
    "learning_rate",
    "clip_norm",
    "device",
    "processor",
    "nodes",
    "build_type",
    "threads",
    "links",
]
VARIANT = WHAT_MATTERS[:8]
EFFORT = ("steps", "warmup", "repeats")  # how well a case is measured
# The largest resident set and the device hold more than the step: libraries, the launcher, whatever
# the system gave. Below this many bytes a difference says nothing.
NOISE_OF_PROCESS = 32 << 20
# How far losses of the same computation may lie apart, relatively: what `run` allows against the
# serial reference, in the first step; a hundred times that after steps that feed the differences
# back.
LOSS_TOLERANCE = {"fp32": (1e-6, 1e-4), "bf16": (1e-3, 1e-2)}


@dataclass
class Rules:
    threshold: float = 0.05  # the least relative difference of step times that matters
    memory_threshold: float = 0.05  # the same of memory
    confidence: float = 0.95  # of the interval of the ratio
    quantile: float = 0.0  # of the samples of a block, that stands for it; 0: the fastest
    allow: list = field(default_factory=list)  # names of WHAT_MATTERS that may differ
    missing: str = (
        "list"  # what becomes of cases of the base that the new side lacks: "list" or "fail"
    )
    looks: int = 1  # how often one compares, at most, while more is measured


@dataclass
class Surety:
    """How sure the intervals of one comparison have to be.

    To say SAME of all cases, each must be within the threshold by itself. To say SLOWER or FASTER
    of one
    of many takes more: one of twenty intervals of 95 % misses by chance. The same holds for many
    looks.
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


@dataclass
class Match:
    """A case that both sides have."""

    sides: tuple  # base and new: for every file of a side the cases of it, usually one
    differs: list  # names of WHAT_MATTERS
    times: Times = None
    aspects: dict = None  # by name, always the same ones in the same order

    def __post_init__(self):
        self.cases = [all_of(files) for files in self.sides]
        self.case = self.cases[0][0]
        self.label = label_of(self.case)

    def worst(self, names=None):
        """The most serious of these aspects, the first of equal ones."""
        return max(
            (self.aspects[name] for name in names or self.aspects),
            key=lambda aspect: OUTCOMES.index(aspect.outcome),
        )

    @property
    def outcome(self):
        """Less memory alone, or a case that is valid again, makes nothing faster."""
        outcome = self.worst().outcome
        return (
            "same" if outcome == "better" and self.aspects["time"].outcome != "better" else outcome
        )


@dataclass
class Comparison:
    rules: Rules
    cases: list
    only_base: list
    only_new: list
    notes: list  # what differs without mattering; one line each
    together: Aspect = None  # time of all, by the geometric mean of the ratios; of several cases

    @property
    def missing(self):
        """Labels of the cases of the base that count because the new side lacks them."""
        return self.only_base if self.rules.missing == "fail" else []

    @property
    def surety(self):
        timed = len(timed_of(self.cases))
        return Surety(self.rules.confidence, self.rules.looks, max(timed + (timed > 1), 1))

    @property
    def outcome(self):
        """Of all cases: a regression counts most, then an ambiguous one, then one that is faster.

        All cases together can be slower where no single one is clear. What else they are follows
        from the cases.
        """
        outcomes = [case.outcome for case in self.cases] + ["worse"] * len(self.missing)
        if self.together and self.together.outcome == "worse":
            outcomes.append("worse")
        return max(outcomes, key=OUTCOMES.index, default="none")

    @property
    def word(self):
        return {"worse": "REGRESSION", "ambiguous": "AMBIGUOUS", "better": "FASTER"}.get(
            self.outcome, "SAME"
        )

    def text(self):
        """ "SAME: ...", "REGRESSION: 1 of 6 cases, first case 3 (tawpipe, ...): ..." """
        return (
            f"{self.word}: {self.excluded() if self.word == 'SAME' else '; '.join(self.reasons())}"
        )

    def reasons(self):
        some = [c for c in self.cases if c.outcome == self.outcome]
        if some:
            # Of those that are not decided the one that looks slowest tells most.
            ambiguous = self.outcome == "ambiguous"
            one = max(some, key=slowness) if ambiguous else some[0]
            aspect = one.aspects["time"] if self.outcome == "better" else one.worst()
            yield (
                f"{len(some)} of {plural(len(self.cases), 'case')}, "
                f"{'such as' if ambiguous else 'first'} "
                f"case {one.case['case']} ({one.label}): {aspect.reason}"
            )
        if self.outcome == "worse" and self.together and self.together.outcome == "worse":
            yield f"all {len(self.cases)} cases together: {self.together.reason}"
        if self.missing:
            count = len(self.missing)
            yield f"{count} of the base's cases missing in the new one, first {self.missing[0]}"

    def excluded(self):
        """What SAME means of times: the largest slowdown that is not excluded, and of which
        case."""
        judged = [c for c in self.cases if c.aspects["time"].word == "SAME"]
        if not judged:
            return "in what was compared; no step times were"
        most = max(judged, key=lambda c: c.aspects["time"].ratio.high)
        percent = 100 * max(most.aspects["time"].ratio.high - 1, 0)
        which = f" (case {most.case['case']})" if len(judged) > 1 else ""
        rest = len(self.cases) - len(judged)
        return (
            f"no step time of {plural(len(judged), 'case')} is longer by more than {percent:.1f} "
            f"%{which}, "
            f"{100 * self.rules.confidence:.4g} % sure"
            + f"; times of {plural(rest, 'case')} were not compared" * (rest > 0)
        )


def slowness(case):
    """How slow a case may be taken to be at least; the least of all where nothing is known."""
    ratio = case.aspects["time"].ratio
    return ratio.low if ratio else 0


def timed_of(cases):
    """Those whose times both sides have."""
    return [case for case in cases if case.times.base and case.times.new]


# Which cases are compared.


def key_of(case):
    """Cases with the same key are the same apart from what matters and from how well they were
    measured; programs may order settings differently."""
    return tuple(
        (name, case[name])
        for name in sorted(case.file.settings)
        if name not in {*EFFORT, *VARIANT, "identity", "group_count"}
    )


def label_of(case):
    return f"{describe(case)}, B {case['micro_batch']}, M {case['micro_batches']}"


def of_ranks(case, column, part):
    return " + ".join(
        sorted({part(text.split(", ")) for text in case.session.get(column, [])[: case["ranks"]]})
    )


VALUES = {
    "attention": lambda case: case["attention_used"],
    "transport": lambda case: case["transport_used"],
    # "device 0, NAME, 79.1 GiB, uuid", whichever of several equal ones it was; or "host, 4 threads"
    "device": lambda case: of_ranks(
        case, "devices", lambda parts: ", ".join(parts[1:3]) if len(parts) > 2 else parts[0]
    ),
    "threads": lambda case: of_ranks(
        case, "devices", lambda parts: parts[1] if len(parts) == 2 else ""
    ),
    "processor": lambda case: of_ranks(case, "cpu", ", ".join),
    "build_type": lambda case: case.session.get("build_type", ""),
    "nodes": lambda case: str(len(set(case.session.get("nodes", [])[: case["ranks"]])) or ""),
    "links": lambda case: " ".join(case.session.get("links", [])) or "not shaped",
}


def value_of(name, case):
    """The value of one of WHAT_MATTERS, as text; empty: not known."""
    return VALUES[name](case) if name in VALUES else cell_text(case[name])


def all_of(runs):
    return [case for file in runs for case in file]


def groups_of(side):
    """{(key, variant): [cases of each file]}"""
    groups = {}
    for number, file in enumerate(side):
        for case in file.cases:
            groups.setdefault(
                (key_of(case), tuple(case[name] for name in VARIANT)), [[] for _ in side]
            )[number].append(case)
    return groups


def match_of(sides, allow):
    match = Match(sides, [])
    for name in WHAT_MATTERS:
        base, new = ({value_of(name, case) for case in cases} - {""} for cases in match.cases)
        if base and new and base != new:
            match.differs.append(name)
            if name not in allow:
                there, here = (" and ".join(sorted(texts)) for texts in (base, new))
                raise BadInput(
                    f"case {match.case['case']} ({match.label}) of {match.case.file.path} has {name} {there}, and {here} in "
                    f"{match.cases[1][0].file.path}; add --allow {name} to compare all the same"
                )
    return match


def match_cases(base, new, allow):
    """(matches, labels only in the base, labels only in the new one). Of cases with one key those
    with equal variants belong together."""
    mine, others = groups_of(base), groups_of(new)
    partner = {this: this for this in mine if this in others}
    free = [that for that in others if that not in partner]
    for this in mine:
        if this not in partner and (like := [that for that in free if that[0] == this[0]]):
            partner[this] = like[0]
            free.remove(like[0])
    if not partner:
        there, here = dict(key_of(base[0].cases[0])), dict(key_of(new[0].cases[0]))
        why = next(
            (
                f"{name} is {cell_text(there[name])} in the first case of one and {cell_text(here.get(name))} in that of the other"
                for name in there
                if there[name] != here.get(name)
            ),
            "their first cases have equal settings",
        )
        raise BadInput(f"{base[0].path} and {new[0].path} have no case in common: {why}")
    matches = [
        match_of((runs, others[partner[this]]), allow)
        for this, runs in mine.items()
        if this in partner
    ]
    left = [runs for this, runs in mine.items() if this not in partner], [
        others[that] for that in free
    ]
    return matches, *([label_of(all_of(runs)[0]) for runs in some] for some in left)


# What is compared of a case.


def judge(ratio, sure, rules, count=1):
    """What a ratio means, and why.

    `ratio` is its interval taken alone, `sure` the wider one of `count` that hold at once, or None
    if
    there are too few measurements. SAME needs the whole of the former within the threshold, SLOWER
    and
    FASTER the whole of the latter beyond it.
    """
    slow, fast = 1 + rules.threshold, 1 / (1 + rules.threshold)
    said = f"step time: new / base = {ratio.estimate:.4g}, from {ratio.low:.4g} to {ratio.high:.4g}"
    if fast <= ratio.low and ratio.high <= slow:
        return "SAME", ""
    if sure and (sure.low > slow or sure.high < fast):
        return "SLOWER" if sure.low > slow else "FASTER", said
    limit = f"{100 * rules.threshold:.4g} %"
    way = "slower" if ratio.low > 1 else "faster"
    if ratio.low > slow or ratio.high < fast:
        seen = f"{way} by more than {limit} if it stood alone, but one of {count} intervals "
        seen += "may miss by chance"
    elif ratio.low > 1 or ratio.high < 1:
        seen = f"{way}, by less or by more than the threshold of {limit}"
    else:
        seen = f"unknown: slower, faster, or the same within {limit}"
    return "AMBIGUOUS", f"{said}: {seen}; measure more"


def compare_times(times, rules, surety):
    if not times.base or not times.new:
        return Aspect("time", "s")
    sides = [*map(math.exp, typical(times))]
    if math.isinf(rules.threshold):
        return Aspect(
            "time",
            "s",
            *sides,
            "OFF",
            "times are not judged (--threshold off)",
            ratio_of(times, surety.alone),
        )
    return Aspect("time", "s", *sides, *judge_times(times, rules, surety))


def judge_times(times, rules, surety):
    """Word, reason and interval."""
    ratio, sure = (ratio_of(times, confidence) for confidence in (surety.alone, surety.together))
    if not ratio:
        counts = " and ".join(map(str, dict.fromkeys([len(times.base), len(times.new)])))
        least = needed(times, surety.alone)
        return (
            "AMBIGUOUS",
            f"{counts} {times.unit} are too few for a confidence of {surety.alone:.4g}: {least} "
            "are needed",
            None,
        )
    word, reason = judge(ratio, sure, rules, surety.count)
    # Samples of one repetition scatter less than runs do: two runs of the same program came out
    # SLOWER or FASTER in up to 40 of 100 comparisons on a busy machine
    # (docs/decisions/0011-comparing-times.md). Nor can they be SAME.
    if times.unit == "samples":
        said = f"step time: new / base = {ratio.estimate:.4g}"
        return (
            "AMBIGUOUS",
            f"{said}; one repetition of each does not show how much runs differ: measure several "
            "files of each, in turn",
            ratio,
        )
    if not sure and word == "AMBIGUOUS":
        reason += f", {needed(times, surety.together)} of each or more"
    return word, reason, ratio


def compare_verdicts(match):
    """Whether the case ended valid in all files of each side."""
    was, now = (next((case for case in cases if not case.valid), None) for cases in match.cases)
    why = next((f"{case['verdict']} in {case.file.path}" for case in (now, was) if case), "")
    if was and now:
        return Aspect("verdict", word="INVALID", reason="invalid on both sides: " + why)
    return Aspect("verdict", word="BROKEN" if now else "REPAIRED" if was else "VALID", reason=why)


# Aspect: column, units, and how many bytes do not matter.
BYTES = {
    "memory": ("memory_measured", "B", 0),
    "process peak": ("process_peak", "B", NOISE_OF_PROCESS),
    "device memory": ("device_used", "B", NOISE_OF_PROCESS),
    "bytes inside": ("bytes_inside", "B/step", 0),
    "bytes between": ("bytes_between", "B/step", 0),
}


def compare_bytes(match, name, rules):
    """Medians over the valid runs; of memory, differences below the threshold do not matter."""
    column, units, floor = BYTES[name]
    sides = [[case[column] for case in cases if case.valid] for cases in match.cases]
    base, new = (float(numpy.median(side)) if side else math.nan for side in sides)
    if not all(sides) or (
        units == "B" and not (base > 0 and new > 0)
    ):  # memory of 0 bytes is not known
        return Aspect(name, units, base, new)
    if abs(new - base) > max(rules.memory_threshold * base if units == "B" else 0, floor):
        return Aspect(
            name,
            units,
            base,
            new,
            "MORE" if new > base else "LESS",
            f"{name} {base / 2**20:.4g} MiB -> {new / 2**20:.4g} MiB",
        )
    return Aspect(name, units, base, new, "SAME")


def compare_losses(match):
    """Losses of the first step and of the last one that both have, within what the rounding of the
    type explains. Of the valid run that has taken the most steps."""
    sides = [
        max((case.get("losses") for case in cases if case.valid), key=len, default=[])
        for cases in match.cases
    ]
    last = min(map(len, sides)) - 1
    tolerances = LOSS_TOLERANCE.get(match.case["dtype"], LOSS_TOLERANCE["fp32"])
    for name, at, tolerance in zip(("first loss", "last loss"), (0, last), tolerances):
        if last < 0 or {"dtype", "seed", "learning_rate"} & set(match.differs):
            yield Aspect(name, "nat/token")
            continue
        base, new = (float(losses[at]) for losses in sides)
        same = abs(new - base) <= tolerance * abs(base) < math.inf
        yield Aspect(
            name,
            "nat/token",
            base,
            new,
            *(
                ("SAME",)
                if same
                else (
                    "WRONG",
                    f"{name} {base:.9g} -> {new:.9g} nat/token, more than {tolerance:.0e} apart",
                )
            ),
        )


def notes_on(base, new, matches, only_base, only_new):
    """What a reader should know beyond the figures."""
    notes = []

    def note(name, there, here):
        if there != here:
            notes.append(
                f"{name} = "
                + " -> ".join(" and ".join(sorted(texts)) or "none" for texts in (there, here))
            )

    sessions = [[session for file in side for session in file.sessions] for side in (base, new)]
    for name in (
        "version",
        "git_hash",
        "build_type",
        "compiler",
        "compiler_flags",
        "kokkos",
        "mpi",
        "nccl",
        "cuda",
        "driver",
    ):
        note(name, *({session.get(name, "") for session in side} - {""} for side in sessions))
    for name in ("libraries", "environment"):
        there, here = (
            {text for session in side for text in session.get(name, [])} for side in sessions
        )
        note(name, there - here, here - there)
    for name in EFFORT:  # need not agree, but may explain why a side scatters more
        note(
            name,
            *(
                {str(case[name]) for match in matches for case in match.cases[side]}
                for side in (0, 1)
            ),
        )
    for name in WHAT_MATTERS:
        if match := next((match for match in matches if name in match.differs), None):
            notes.append(
                f"{name} = {value_of(name, match.case)} -> {value_of(name, match.cases[1][0])}, as allowed"
            )
    return (
        notes
        + [f"only in the base: {label}" for label in only_base]
        + [f"only in the new one: {label}" for label in only_new]
    )


def compare(base, new, rules):
    """Raises BadInput if the two sides cannot be compared."""
    matches, only_base, only_new = match_cases(base, new, rules.allow)
    for match in matches:
        match.times = times_of(match, rules.quantile)
    found = Comparison(
        rules, matches, only_base, only_new, notes_on(base, new, matches, only_base, only_new)
    )
    for match in matches:
        aspects = [
            compare_verdicts(match),
            compare_times(match.times, rules, found.surety),
            *(compare_bytes(match, name, rules) for name in BYTES),
            *compare_losses(match),
        ]
        match.aspects = {aspect.name: aspect for aspect in aspects}
    if found.outcome == "none":
        raise BadInput(
            f"{base[0].path} and {new[0].path} have no case in common that is valid on either side"
        )
    found.together = compare_together(found)
    found.notes += notes_on_times(timed_of(matches), base, new)
    return found


def compare_together(found):
    """The time of all cases; None of one case, or where the cases were not measured together."""
    timed = timed_of(found.cases)
    times = mean_times([case.times for case in timed]) if len(timed) > 1 else None
    aspect = compare_times(times, found.rules, found.surety) if times else None
    return aspect if aspect and aspect.ratio else None


def notes_on_times(timed, base, new):
    """What the measurements cannot show."""
    units = {case.times.unit for case in timed}
    if "samples" in units:
        yield (
            "there is one repetition only: the interval knows how samples of a run scatter, not "
            "how runs differ; measure base "
            "and new in turn, in several files of each"
        )
    elif "repetitions" in units and len(base) == len(new) == 1:
        yield (
            "there is one file of each: what changed on the machine from one to the other counts "
            "as a change of the program; "
            "measure base and new in turn, in several files of each"
        )


# For people, programs and CI jobs.

ASPECTS = {
    "time": ["time"],
    "memory": ["memory", "process peak", "device memory"],
    "bytes": ["bytes inside", "bytes between"],
    "loss": ["first loss", "last loss"],
    "verdict": ["verdict"],
}
# Columns of the table: unit.
COLUMNS = dict.fromkeys(
    [
        "case",
        "schedule",
        "ranks",
        "groups",
        "seq",
        "B",
        "M",
        "base",
        "new",
        "ratio",
        "low",
        "high",
        *ASPECTS,
    ],
    "",
) | {"seq": "token", "base": "s", "new": "s"}


def row_of(match):
    case, time = match.case, match.aspects["time"]
    ratio = time.ratio or Interval(math.nan, time.new / time.base, math.nan)
    figures = [
        f"{time.base:.4g}",
        f"{time.new:.4g}",
        f"{ratio.estimate:.3f}",
        f"{ratio.low:.3f}",
        f"{ratio.high:.3f}",
    ]
    ranks = (
        f"{case['replicas']}x{case['ranks'] // case['replicas']}"
        if case["replicas"] > 1
        else str(case["ranks"])
    )  # 2x2: two replicas of two
    return [
        str(case["case"]),
        case["schedule"],
        ranks,
        case["groups"],
        *(str(case[name]) for name in ("seq", "micro_batch", "micro_batches")),
        *("-" if figure == "nan" else figure for figure in figures),
        *(match.worst(names).word or "-" for names in ASPECTS.values()),
    ]


def table(matches):
    """Two lines of names and units that begin with #, then one line a case, all aligned."""
    columns = []
    for name, *cells in zip(COLUMNS, COLUMNS.values(), *map(row_of, matches)):
        align = str.ljust if name in ("schedule", "groups", *ASPECTS) else str.rjust
        columns.append([align(cell, max(map(len, [name, *cells]))) for cell in [name, *cells]])
    return "".join(
        f"{'#' if i < 2 else ' '} {' '.join(row)}".rstrip() + "\n"
        for i, row in enumerate(zip(*columns))
    )


def limits_of(comparison):
    """By which rules was judged."""
    rules, surety = comparison.rules, comparison.surety
    limits = [
        f"{name}{'off' if math.isinf(value) else f'{100 * value:.4g} %'}"
        for name, value in (("threshold ", rules.threshold), ("memory ", rules.memory_threshold))
    ]
    limits.append(f"confidence {100 * rules.confidence:.4g} %")
    if rules.quantile:
        limits.append(f"quantile {rules.quantile:g}")
    if surety.looks > 1:
        limits.append(f"which is shared by {surety.looks} looks")
    if surety.count > 1:
        limits.append(f"SLOWER and FASTER hold for all {surety.count} intervals at once")
    return ", ".join(limits)


def as_text(comparison, base, new):
    """For people: notes behind #, one aligned row per case, the closing line."""
    mean = comparison.together and comparison.together.ratio
    together = (
        [
            f"all cases together: {comparison.together.word}: new / base = {mean.estimate:.3f}, "
            f"from {mean.low:.3f} to "
            f"{mean.high:.3f} (geometric mean)"
        ]
        if mean
        else []
    )
    reasons = [
        f"case {c.case['case']}: {a.word}: {a.reason}"
        for c in comparison.cases
        for a in c.aspects.values()
        if a.reason and a.word != "OFF"
    ]
    before = "\n# ".join(
        [f"# base: {base}", f"new:  {new}", limits_of(comparison), *comparison.notes]
    )
    behind = "".join(f"# {note}\n" for note in reasons + together)
    return f"{before}\n{table(comparison.cases)}{behind}COMPARISON: {comparison.text()}\n"


def finite(value):
    """JSON has no other numbers: null stands for NaN, and for a threshold that is off."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_json(comparison, base, new):
    """One object; figures that do not exist are null."""

    def aspect_json(aspect):
        sides = {
            side: finite(value)
            for side, value in (("base", aspect.base), ("new", aspect.new))
            if aspect.units
        }
        ratio = {"ratio": aspect.ratio and aspect.ratio._asdict()} if aspect.name == "time" else {}
        return {
            "outcome": aspect.outcome,
            "word": aspect.word,
            **({"units": aspect.units} if aspect.units else {}),
            **sides,
            **ratio,
            "reason": aspect.reason,
        }

    cases = [
        {
            "case": c.case["case"],
            "settings": {name: c.case[name] for name in c.case.file.settings if name != "identity"},
            "differs": c.differs,
            "measured_by": c.times.unit,
            "measurements_base": len(c.times.base),
            "measurements_new": len(c.times.new),
            "aspects": {name: aspect_json(aspect) for name, aspect in c.aspects.items()},
        }
        for c in comparison.cases
    ]
    found = {
        "comparison": comparison.text(),
        "outcome": comparison.outcome,
        "base": base,
        "new": new,
        **{
            name: finite(value) for name, value in vars(comparison.rules).items() if name != "allow"
        },
        "together": comparison.together and aspect_json(comparison.together),
        "notes": comparison.notes,
        "only_base": comparison.only_base,
        "only_new": comparison.only_new,
        "cases": cases,
    }
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def as_junit(comparison, strict):
    """JUnit's XML as Jenkins and GitLab read it: a suite for each case, a test for each thing
    compared. What is AMBIGUOUS counts as skipped, with `strict` as failed. The time of a test is
    the step time of the new side, so that a viewer's history shows it.
    """

    def add(parent, tag, text="", **attributes):
        element = xml.SubElement(
            parent, tag, {name: FORBIDDEN.sub("?", value) for name, value in attributes.items()}
        )
        element.text = FORBIDDEN.sub("?", text)
        return element

    def add_test(suite, name, a):
        seconds = numpy.nan_to_num(a.new) if a.name == "time" else 0
        test = add(
            suite, "testcase", classname=f"minitaw.{name}", name=a.name, time=f"{seconds:.9f}"
        )
        figures = (
            f"base {a.base:.9g} {a.units}, new {a.new:.9g} {a.units}"
            if math.isfinite(a.base) or math.isfinite(a.new)
            else ""
        )
        why = {"message": f"{a.word}: {a.reason}" if a.word else "nothing to compare"}
        match tags.get(a.outcome):
            case "failure":
                add(test, "failure", figures, **why, type=a.word)
            case "skipped":
                add(test, "skipped", **why)
            case _:
                add(test, "system-out", f"{a.word} {figures}")

    tags = {"worse": "failure", "ambiguous": "failure" if strict else "skipped", "none": "skipped"}
    root = xml.Element("testsuites", name="minitaw compare")
    for c in comparison.cases:
        name, seconds = f"case {c.case['case']}: {c.label}", numpy.nan_to_num(c.aspects["time"].new)
        suite = add(root, "testsuite", name=name, time=f"{seconds:.9f}")
        for a in c.aspects.values():
            add_test(suite, name, a)
    if comparison.together and comparison.together.outcome == "worse":
        suite = add(root, "testsuite", name="all cases together", time="0.0")
        add_test(suite, "all cases together", comparison.together)
    for label in comparison.missing:
        suite = add(root, "testsuite", name=f"missing: {label}", time="0.0")
        test = add(
            suite, "testcase", classname=f"minitaw.missing: {label}", name="case", time="0.0"
        )
        add(
            test,
            "failure",
            message="MISSING: the base has this case, the new one has not",
            type="MISSING",
        )
    for element in (root, *root):
        counted = {
            "tests": "testcase",
            "failures": "failure",
            "errors": "error",
            **({"skipped": "skipped"} if element is not root else {}),
        }
        element.attrib |= {name: str(len([*element.iter(tag)])) for name, tag in counted.items()}
    xml.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"
    )


def as_markdown(comparison, text):
    """A heading and the text as a block of code, in which no name is read as Markdown or HTML, for
    the summary of a CI job."""
    return f"### miniTaw: {comparison.word}\n\n" + "".join(
        f"    {line}\n" for line in FORBIDDEN.sub(" ", text).splitlines()
    )


def number(low, high):
    """The type of an option: a number, or a percentage, within bounds."""

    def number(text):  # argparse says its name of what is none
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is no number from {low:g} to {high:g}")
        return value

    return number


def threshold(text):
    """A half and more can only be a slip: 5 for 5 %."""
    return math.inf if text == "off" else number(1e-9, 0.499)(text)


def looks(text):
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 to 1000")
    return int(text)


def parse(words):
    parser = Parser(
        prog="compare",
        description="Has the second result become slower, larger or wrong against the first? Exit code 0: no, "
        "or not certainly; 1: yes; 2: nothing can be compared (docs/compare.md).",
    )
    add = parser.add_argument
    add("files", metavar="FILE.h5", nargs="*", help="the base and the new result file")
    add(
        "--base",
        metavar="FILE.h5",
        nargs="+",
        default=[],
        help="several files of the base: the i-th is paired with the i-th --new",
    )
    add(
        "--new",
        metavar="FILE.h5",
        nargs="+",
        default=[],
        help="as many of the new one, measured in turn with them",
    )
    add(
        "--threshold",
        type=threshold,
        help="least relative difference of step times that matters: 0.05, 5%%, or off (%(default)s)",
    )
    add("--memory-threshold", type=threshold, help="the same of memory (%(default)s)")
    add(
        "--confidence",
        type=number(0.5, 0.99999),
        help="of the interval of the ratio of step times (%(default)s)",
    )
    add(
        "--quantile",
        type=number(0, 0.5),
        help="which sample stands for a run: 0 the fastest, 0.5 the median",
    )
    add(
        "--allow",
        metavar="NAME",
        choices=WHAT_MATTERS,
        action="append",
        help="what may differ although it matters: " f"{', '.join(WHAT_MATTERS)}; may be repeated",
    )
    add("--strict", action="store_true", help="AMBIGUOUS fails too")
    add(
        "--looks",
        type=looks,
        metavar="N",
        help="how often you compare at most, as more is measured: the risk is shared by all "
        "(%(default)s)",
    )
    add(
        "--missing",
        choices=["list", "fail"],
        help="what becomes of cases of the base that the new side lacks (%(default)s)",
    )
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add("--junit", metavar="FILE.xml", help="write a test report for CI")
    add("--markdown", metavar="FILE.md", help="write the output for the summary of a CI job")
    parser.set_defaults(**vars(Rules()))
    options = parser.parse_args(words)
    if (len(options.files), bool(options.base), bool(options.new)) not in (
        (2, False, False),
        (0, True, True),
    ):
        raise BadInput(
            "compare takes two files, the base and the new one, or several of each: compare --base a1.h5 a2.h5 --new b1.h5 b2.h5"
        )
    if options.files:
        options.base, options.new = options.files[:1], options.files[1:]
    return options


def main(words=None):
    options = parse(words)
    rules = Rules(**{name: getattr(options, name) for name in vars(Rules())})
    sides = [[load(path) for path in paths] for paths in (options.base, options.new)]
    for file in sides[0] + sides[1]:
        if not file.cases:
            raise BadInput(f"{file.path} holds no case")
    found = compare(*sides, rules)
    heading = [
        paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        for paths in (options.base, options.new)
    ]
    text = as_text(found, *heading)
    if options.junit:
        write_file(options.junit, as_junit(found, options.strict))
    if options.markdown:
        write_file(options.markdown, as_markdown(found, text))
    write_stdout(as_json(found, *heading) if options.json else text)
    return int(found.outcome == "worse" or (options.strict and found.outcome == "ambiguous"))
