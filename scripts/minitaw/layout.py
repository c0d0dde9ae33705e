# SPDX-License-Identifier: BSD-3-Clause
"""What a result file may hold, and has to: layout.txt as data (docs/results.md)."""

import functools
import pathlib
from dataclasses import dataclass, field

KINDS = {"text": "text", "time": "text", "real": "real", "amount": "real"}  # all others: integer


@dataclass
class Entry:
    """A line of layout.txt."""

    path: str  # in its group: of the summary, of a case, of a session
    type: str
    units: str = "text"
    axes: tuple = ()  # of a scalar none
    of_valid: bool = False  # an array that a valid case has
    required: bool = True

    @property
    def kind(self):
        return KINDS.get(self.type, "integer")


@dataclass
class Layout:
    """The entries of each part of a file, by their paths in it."""

    columns: dict = field(default_factory=dict)
    of_case: dict = field(default_factory=dict)
    of_session: dict = field(default_factory=dict)
    settings: list = field(default_factory=list)  # names of columns

    def add(self, line):
        path, kind, units, shape, presence = line.split()
        folder, _, name = path.partition("/")
        axes = () if shape == "-" else tuple(shape.rstrip("!").split(","))
        entry = Entry(name, kind, units, axes, shape.endswith("!"), presence == "required")
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


@functools.cache
def layout():
    found = Layout()
    table = pathlib.Path(__file__).with_name("layout.txt")
    for line in table.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            found.add(line)
    return found
