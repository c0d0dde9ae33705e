# SPDX-License-Identifier: BSD-3-Clause
"""What a result file may hold, and has to: layout.txt as data (docs/results.md)."""

import functools
import math
import pathlib
from dataclasses import dataclass, field

import numpy

KINDS = {"text": "text", "time": "text", "real": "real", "amount": "real"}  # all others: integer


@dataclass
class Entry:
    """A line of layout.txt."""

    path: str  # in its group: of the summary, of a case, of a session
    type: str
    units: str = "text"
    axes: tuple = ()  # of a scalar none
    of_valid: bool = False  # an array that a valid case has
    missing: str = "required"

    @property
    def kind(self):
        return KINDS.get(self.type, "integer")

    @property
    def earlier_name(self):
        """That the column had in files of earlier programs; empty if it had none."""
        return self.missing[1:] if self.missing[0] == "~" else ""

    @property
    def equal_column(self):
        """The column whose values stand for it in files of earlier programs; empty if none."""
        return self.missing[1:] if self.missing[0] == "=" else ""

    def default(self):
        """What stands for it in a file of an earlier program."""
        if self.axes not in ((), ("C",)):
            return [] if self.kind == "text" else numpy.zeros(0)
        if self.missing == "none" or self.earlier_name:
            return {"text": "", "real": math.nan}.get(self.kind)
        return {"text": str, "real": float, "integer": int}[self.kind](self.missing)


@dataclass
class Layout:
    """The entries of each part of a file, by their paths in it."""

    columns: dict = field(default_factory=dict)
    of_case: dict = field(default_factory=dict)
    of_session: dict = field(default_factory=dict)
    settings: list = field(default_factory=list)  # names of columns

    def add(self, line):
        path, kind, units, shape, missing = line.split(None, 4)
        folder, _, name = path.partition("/")
        axes = () if shape == "-" else tuple(shape.rstrip("!").split(","))
        entry = Entry(name, kind, units, axes, shape.endswith("!"), missing)
        match folder:
            case "summary":
                self.columns[name] = entry
            case "provenance":
                self.of_session[name] = entry
            case "cases":
                entry.path = name.removeprefix("NNNN/")
                self.of_case[entry.path] = entry
            case "setting":
                self.columns[name] = entry
                self.settings.append(name)
                path = f"settings/{name}"
                self.of_case[path] = Entry(path, kind, units, missing=missing)


@functools.cache
def layout():
    found = Layout()
    table = pathlib.Path(__file__).with_name("layout.txt")
    for line in table.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            found.add(line)
    return found


# Of `minitaw screen`.
SCREENING = {
    "settings": Entry("settings", "text"),
    "verdict": Entry("verdict", "text"),
    "culprits": Entry("culprits", "text", axes=("*",)),
    "node_of_rank": Entry("node_of_rank", "natural", axes=("*",)),
}
# What a screening says of itself; earlier programs said nothing.
SCREENING_SAID = {
    name: Entry(name, "text", missing="none") for name in ("judged", "sure", "not_seen", "next")
}
