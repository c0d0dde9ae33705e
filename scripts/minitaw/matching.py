# SPDX-License-Identifier: BSD-3-Clause
"""Which cases of two results are compared: equal settings and conditions belong together
(docs/compare.md)."""

from dataclasses import dataclass

from .command import BadInput
from .intervals import Times
from .numbers import cell_text
from .record import describe
from .settings import DERIVED, EFFORT, VARIANT, values_of


def of_ranks(case, column, part):
    """What the ranks of a case have in a column of its session: " + " between different ones."""
    texts = case.session.get(column, [])[: case["ranks"]]
    return " + ".join(sorted({part(text.split(", ")) for text in texts}))


# "device 0, NAME, 79.1 GiB, uuid" of a device, "host, 4 threads" of a processor.


def device_name(parts):
    """Whichever of several equal ones it was."""
    return ", ".join(parts[1:3]) if len(parts) > 2 else parts[0]


def thread_count(parts):
    return parts[1] if len(parts) == 2 else ""


def node_count(case):
    return str(len(set(case.session.get("nodes", [])[: case["ranks"]])) or "")


# Of the machine and the build: what must agree for times to be compared.
MACHINE = {
    "device": lambda case: of_ranks(case, "devices", device_name),
    "processor": lambda case: of_ranks(case, "cpu", ", ".join),
    "nodes": node_count,
    "build_type": lambda case: case.session.get("build_type", ""),
    "threads": lambda case: of_ranks(case, "devices", thread_count),
    "links": lambda case: " ".join(case.session.get("links", [])) or "not shaped",
}
# Settings that leave a choice to the program: what it chose.
CHOSEN = {"attention": "attention_used", "transport": "transport_used"}
WHAT_MATTERS = [*VARIANT, *MACHINE]  # names that --allow takes
NOT_IN_KEY = {*EFFORT, *VARIANT, *DERIVED}


def value_of(name, case):
    """The value of one of WHAT_MATTERS, as text; empty: not known."""
    if name in MACHINE:
        return MACHINE[name](case)
    return cell_text(case[CHOSEN.get(name, name)])


def key_of(case):
    """Cases with the same key are the same apart from what matters and from how well they were
    measured; programs may order settings differently."""
    names = sorted(set(case.file.settings) - NOT_IN_KEY)
    return tuple((name, case[name]) for name in names)


def label_of(case):
    return f"{describe(case)}, B {case['micro_batch']}, M {case['micro_batches']}"


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

    @property
    def new_case(self):
        return self.cases[1][0]

    def worst(self, names=None):
        """The most serious of these aspects, the first of equal ones."""
        some = [self.aspects[name] for name in names or self.aspects]
        return max(some, key=lambda aspect: aspect.severity)

    @property
    def outcome(self):
        """Less memory alone, or a case that is valid again, makes nothing faster."""
        outcome = self.worst().outcome
        if outcome == "better" and self.aspects["time"].outcome != "better":
            return "same"
        return outcome


def all_of(files):
    return [case for file in files for case in file]


def groups_of(side):
    """{(key, variant): [cases of each file]}"""
    groups = {}
    for number, file in enumerate(side):
        for case in file.cases:
            alike = key_of(case), values_of(case, VARIANT)
            groups.setdefault(alike, [[] for _ in side])[number].append(case)
    return groups


def matched(sides, allow):
    """The match of these cases. Refuses what matters and differs, if it is not allowed."""
    match = Match(sides, [])
    for name in WHAT_MATTERS:
        base, new = ({value_of(name, case) for case in cases} - {""} for cases in match.cases)
        if not base or not new or base == new:
            continue
        match.differs.append(name)
        if name not in allow:
            there, here = (" and ".join(sorted(texts)) for texts in (base, new))
            raise BadInput(
                f"case {match.case['case']} ({match.label}) of {match.case.file.path} has {name} "
                f"{there}, and {here} in {match.new_case.file.path}; add --allow {name} "
                "to compare all the same"
            )
    return match


def why_none(base, new):
    """What two first cases differ in, if no case has a partner."""
    there, here = dict(key_of(base)), dict(key_of(new))
    for name in there:
        if there[name] != here.get(name):
            return (
                f"{name} is {cell_text(there[name])} in the first case of one and "
                f"{cell_text(here.get(name))} in that of the other"
            )
    return "their first cases have equal settings"


def partners(mine, others):
    """{group of the base: group of the new one}: those with equal variants belong together, then
    those with equal keys."""
    found = {this: this for this in mine if this in others}
    free = [that for that in others if that not in found]
    for this in mine:
        like = [that for that in free if that[0] == this[0]]
        if this not in found and like:
            found[this] = like[0]
            free.remove(like[0])
    return found


def match_cases(base, new, allow):
    """(matches, labels only in the base, labels only in the new one)."""
    mine, others = groups_of(base), groups_of(new)
    found = partners(mine, others)
    if not found:
        why = why_none(base[0].cases[0], new[0].cases[0])
        raise BadInput(f"{base[0].path} and {new[0].path} have no case in common: {why}")
    matches, only_base = [], []
    for this, files in mine.items():
        if this in found:
            matches.append(matched((files, others[found[this]]), allow))
        else:
            only_base.append(label_of(all_of(files)[0]))
    taken = set(found.values())
    only_new = [label_of(all_of(files)[0]) for that, files in others.items() if that not in taken]
    return matches, only_base, only_new
