# SPDX-License-Identifier: BSD-3-Clause
"""Which cases of two results are compared: equal settings and conditions belong together
(docs/compare.md)."""

from dataclasses import dataclass

from .aspects import worst
from .command import BadInput
from .intervals import Times
from .numbers import cell_text
from .record import describe, rows_of, session_of
from .settings import DERIVED, EFFORT, VARIANT


def of_ranks(case, column, part):
    """What the ranks of a case have in a column of its session: " + " between different ones."""
    texts = session_of(case).get(column, [])[: case.ranks]
    return " + ".join(sorted({part(text.split(", ")) for text in texts}))


# "device 0, NAME, 79.1 GiB, uuid" of a device, "host, 4 threads" of a processor.


def device_name(parts):
    """Whichever of several equal ones it was."""
    return ", ".join(parts[1:3]) if len(parts) > 2 else parts[0]


def thread_count(parts):
    return parts[1] if len(parts) == 2 else ""


# Of the machine and the build: what must agree for times to be compared.
MACHINE = {
    "device": lambda case: of_ranks(case, "devices", device_name),
    "processor": lambda case: of_ranks(case, "cpu", ", ".join),
    "nodes": lambda case: str(len({*session_of(case).get("nodes", [])[: case.ranks]}) or ""),
    "build_type": lambda case: session_of(case).get("build_type", ""),
    "threads": lambda case: of_ranks(case, "devices", thread_count),
    "links": lambda case: " ".join(session_of(case).get("links", [])) or "not shaped",
}
# Settings that leave a choice to the program: what it chose.
CHOSEN = {"attention": "attention_used", "transport": "transport_used"}
WHAT_MATTERS = [*VARIANT, *MACHINE]  # names that --allow takes


def value_of(name, case):
    """The value of one of WHAT_MATTERS, as text; empty: not known."""
    if name in MACHINE:
        return MACHINE[name](case)
    return cell_text(case[CHOSEN.get(name, name)])


def values_of(name, cases):
    return {value_of(name, case) for case in rows_of(cases)} - {""}


def label_of(case):
    return f"{describe(case)}, B {case.micro_batch}, M {case.micro_batches}"


@dataclass
class Match:
    """A case that both sides have."""

    sides: tuple  # base and new: a table of the cases of all files of a side
    differs: list  # names of WHAT_MATTERS
    times: Times = None
    aspects: dict = None  # by name

    @property
    def case(self):
        return self.sides[0].iloc[0]

    @property
    def label(self):
        return label_of(self.case)

    @property
    def outcome(self):
        """Less memory alone, or a case that is valid again, makes nothing faster."""
        outcome = worst(self.aspects.values()).outcome
        if outcome == "better" and self.aspects["time"].outcome != "better":
            return "same"
        return outcome


def matched(sides, allow):
    """The match of these cases. Refuses what matters and differs, if it is not allowed."""
    match = Match(sides, [])
    for name in WHAT_MATTERS:
        base, new = (values_of(name, cases) for cases in sides)
        if not base or not new or base == new:
            continue
        match.differs.append(name)
        if name not in allow:
            there, here = (" and ".join(sorted(texts)) for texts in (base, new))
            raise BadInput(
                f"case {match.case.case} ({match.label}) of {match.case.file.path} has {name} "
                f"{there}, and {here} in {sides[1].iloc[0].file.path}; add --allow {name} "
                "to compare all the same"
            )
    return match


def why_none(base, new, names):
    """What two first cases differ in, if no case has a partner."""
    for name in names:
        if base[name] != new[name]:
            return (
                f"{name} is {cell_text(base[name])} in the first case of one and "
                f"{cell_text(new[name])} in that of the other"
            )


def partners(mine, others, count):
    """{group of the base: group of the new one}: those with equal variants belong together, then
    those that are alike in the first `count` values."""
    found = {this: this for this in mine if this in others}
    free = [that for that in others if that not in found]
    for this in mine:
        like = [that for that in free if that[:count] == this[:count]]
        if this not in found and like:
            found[this] = like[0]
            free.remove(like[0])
    return found


def match_cases(base, new, allow):
    """(matches, labels only in the base, labels only in the new one) of two tables of cases."""
    # Cases that agree in these are the same apart from what matters and from how well they were
    # measured.
    names = [one for one in base.file[0].settings if one not in {*EFFORT, *VARIANT, *DERIVED}]
    mine, others = (
        dict(list(side.groupby([*names, *VARIANT], sort=False))) for side in (base, new)
    )
    found = partners(mine, others, len(names))
    if not found:
        why = why_none(base.iloc[0], new.iloc[0], names)
        raise BadInput(f"{base.file[0].path} and {new.file[0].path} have no case in common: {why}")
    matches = [matched((mine[this], others[that]), allow) for this, that in found.items()]
    matches.sort(key=lambda match: match.case.name)  # in the order of the base
    only_base = [label_of(mine[this].iloc[0]) for this in mine if this not in found]
    taken = set(found.values())
    only_new = [label_of(others[that].iloc[0]) for that in others if that not in taken]
    return matches, only_base, only_new
