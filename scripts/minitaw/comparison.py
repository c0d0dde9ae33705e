# SPDX-License-Identifier: BSD-3-Clause
"""Two results compared: all cases that both have, what follows for all of them, and what a reader
should know beyond the figures (docs/compare.md)."""

from dataclasses import dataclass

import pandas

from .aspects import RISK, SEVERITY, Aspect, Rules, all_aspects, compare_times, worst
from .command import BadInput
from .intervals import mean_times, times_of
from .matching import WHAT_MATTERS, match_cases, value_of
from .numbers import percent, plural
from .record import cases
from .settings import EFFORT

WORDS = {"worse": "REGRESSION", "ambiguous": "AMBIGUOUS", "better": "FASTER"}  # all others: SAME
# Of provenance: what is noted where it differs.
PROGRAM = ("version", "git_hash", "build_type", "compiler", "compiler_flags", "kokkos", "mpi",
           "nccl", "driver")  # fmt: skip
ONE_FILE = (
    "there is one file of each: what changed on the machine from one to the other counts as a "
    "change of the program; measure base and new in turn, in several files of each"
)


@dataclass
class Comparison:
    rules: Rules
    cases: list  # of Match
    only_base: list
    only_new: list
    notes: list  # what differs without mattering; one line each
    count: int  # of intervals: one of each case with times, and one of all together
    together: Aspect = None  # time of all, by the geometric mean of the ratios; of several cases

    @property
    def missing(self):
        """Labels of the cases of the base that count because the new side lacks them."""
        return self.only_base if self.rules.missing == "fail" else []

    def is_together(self, outcome):
        """All cases together can be slower or faster where no single one is clear."""
        return self.together is not None and self.together.outcome == outcome

    @property
    def outcome(self):
        """Of all cases: a regression counts most, then an ambiguous one, then one that is faster."""
        if self.missing or self.is_together("worse"):
            return "worse"
        found = max((match.outcome for match in self.cases), key=SEVERITY)
        if found == "ambiguous" and self.is_together("better") and not self.can_be_slower:
            found = "better"
        return "ambiguous" if self.rules.not_measured and found in ("same", "better") else found

    @property
    def can_be_slower(self):
        """Any case, by more than the threshold."""
        times = [match.aspects["time"] for match in self.cases]
        limit = 1 + self.rules.threshold
        return any(time.ratio is None or time.ratio.high > limit for time in times if time.word)

    @property
    def word(self):
        return WORDS.get(self.outcome, "SAME")

    def text(self):
        """ "SAME: ...", "REGRESSION: 1 of 6 cases, first case 3 (tawpipe, ...): ..." """
        why = [self.excluded()] if self.word == "SAME" else [*self.reasons()]
        why += [f"not measured: {name}" for name in self.rules.not_measured]
        return f"{self.word}: {'; '.join(why)}"

    def reasons(self):
        some = [match for match in self.cases if match.outcome == self.outcome]
        if some:
            # Of those that are not decided the one that looks slowest tells most.
            is_open = self.outcome == "ambiguous"
            one, which = (max(some, key=slowness), "such as") if is_open else (some[0], "first")
            time = one.aspects["time"]
            aspect = time if self.outcome == "better" else worst(one.aspects.values())
            count = f"{len(some)} of {plural(len(self.cases), 'case')}"
            yield f"{count}, {which} case {one.case.case} ({one.label}): {aspect.reason}"
        if self.outcome != "ambiguous" and self.is_together(self.outcome):
            yield f"all {len(self.cases)} cases together: {self.together.reason}"
        if self.missing:
            count = len(self.missing)
            yield f"{count} of the base's cases missing in the new one, first {self.missing[0]}"

    def excluded(self):
        """What SAME means of times: the largest slowdown that is not excluded, and of which
        case."""
        judged = [match for match in self.cases if match.aspects["time"].word == "SAME"]
        if not judged:
            return "in what was compared; no step times were"
        most = max(judged, key=lambda match: match.aspects["time"].ratio.high)
        slower = max(most.aspects["time"].ratio.high - 1, 0)
        which = f" (case {most.case.case})" if len(judged) > 1 else ""
        rest = len(self.cases) - len(judged)
        others = f"; times of {plural(rest, 'case')} were not compared" if rest else ""
        return (
            f"no step time of {plural(len(judged), 'case')} is longer by more than "
            f"{percent(slower)}{which}, {100 * (1 - RISK):.4g} % sure{others}"
        )


def slowness(match):
    """How slow a case may be taken to be at least; the least of all where nothing is known."""
    ratio = match.aspects["time"].ratio
    return ratio.low if ratio else 0


def side_of(files):
    """One table of the cases of all files, `turn` being the number of the file."""
    tables = [runs.assign(turn=turn) for turn, runs in enumerate(files)]
    return cases(pandas.concat(tables, ignore_index=True))


def compare(base, new, rules):
    """Of the runs of each file of both sides. Raises BadInput if they cannot be compared."""
    are_paired = 1 < len(base) == len(new)
    base, new = side_of(base), side_of(new)
    matches, only_base, only_new = match_cases(base, new, rules.allow)
    for match in matches:
        match.times = times_of(match.sides, rules.quantile, are_paired)
    timed = [match.times for match in matches if len(match.times.base) and len(match.times.new)]
    mean = mean_times(timed) if len(timed) > 1 else None
    parts = max(len(timed), 1)
    # That of all together has one half of the risk: it decides where many cases were measured a few
    # times. They share the other half.
    halves = 2 if mean else 1
    for match in matches:
        match.aspects = all_aspects(match, rules, halves * parts)
    found = Comparison(rules, matches, only_base, only_new, [], parts + halves - 1)
    if found.outcome == "none":
        raise BadInput(
            f"{base.file[0].path} and {new.file[0].path} have no case in common that is valid on "
            "either side"
        )
    if mean and mean.ratio(rules.alone):
        found.together = compare_times(mean, rules, halves)
    found.notes = list(notes_on(found, base, new))
    return found


# Notes.


def change_text(name, there, here):
    """ "name = a and b -> c" of two sets of texts."""
    sides = [" and ".join(sorted(texts)) or "none" for texts in (there, here)]
    return f"{name} = {' -> '.join(sides)}"


def texts_of(side, name):
    """Of an entry of all sessions of a side: a text, or a list."""
    for file in side.file.unique():
        for session in file.sessions:
            found = session.get(name, [])
            yield from [found] if isinstance(found, str) else found


def changes_of(found, base, new):
    """(name, texts of the base, texts of the new one) of what may explain a difference."""
    for name in PROGRAM:
        yield name, *({*texts_of(side, name)} - {""} for side in (base, new))
    for name in ("libraries", "environment"):
        there, here = ({*texts_of(side, name)} for side in (base, new))
        yield name, there - here, here - there
    for name in EFFORT:  # need not agree, but may explain why a side scatters more
        values = (pandas.concat([match.sides[i][name] for match in found.cases]) for i in (0, 1))
        yield name, *({*some.astype(str)} for some in values)


def notes_on(found, base, new):
    """What a reader should know beyond the figures, a line each."""
    for file in (*base.file.unique(), *new.file.unique()):
        if "unfinished" in file.verdict:
            yield f"{file.path}: {file.verdict}"
    for name, there, here in changes_of(found, base, new):
        if there != here:
            yield change_text(name, there, here)
    for name in WHAT_MATTERS:
        match = next((match for match in found.cases if name in match.differs), None)
        if match:
            there, here = (value_of(name, side.iloc[0]) for side in match.sides)
            yield f"{name} = {there} -> {here}, as allowed"
    yield from (f"only in the base: {label}" for label in found.only_base)
    yield from (f"only in the new one: {label}" for label in found.only_new)
    if base.turn.max() == new.turn.max() == 0:
        yield ONE_FILE
