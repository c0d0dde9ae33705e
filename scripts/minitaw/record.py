# SPDX-License-Identifier: BSD-3-Clause
"""Result files in memory (docs/results.md), and the words that all commands use of them.

seal.py checks that a file is whole, reader.py its parts.
"""

import functools
import math
import pathlib
import re
import string
from dataclasses import dataclass, field

import numpy

from .layout import layout
from .numbers import plural
from .reader import Reader, guarded
from .seal import opened
from .walk import refuse

# Control characters may be in texts of a file, and nowhere in a page or in XML, not even escaped.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")
# Datasets of a case that are read.
DATASETS = {"seconds", "repetition", "position", "losses", "window/begin", "window/end",
            "memory/measured", "bytes/counted", "idle_ticks"}  # fmt: skip
BYTE_KINDS = 5  # weights, gradients, activations, embedding and head, keys and values


def open_result(name, content=None):
    """An open h5py.File, read only, of a result file, or of its bytes. Raises BadInput for a file
    that is none or damaged."""
    file, size = opened(name, content)
    guarded(name, lambda: Reader(file, size))
    return file


def reading(name, content, read):
    """What read(reader) returns of a result file, or of its bytes. Raises as open_result()."""
    file, size = opened(name, content)
    with file:
        return guarded(name, lambda: read(Reader(file, size)))


@dataclass
class Case:
    """One case. Arrays have length 0 where nothing was measured."""

    file: "Result"
    row: dict  # of /summary
    data: dict = field(default_factory=dict)  # datasets of the case by path, "memory/measured"
    has_timeline: bool = False

    def __getitem__(self, name):
        """A column of the summary; NaN if predictions have none of that name."""
        return self.row.get(name, math.nan)

    def get(self, name):
        """A dataset of the case; empty if there is none."""
        return self.data.get(name, numpy.zeros(0))

    @property
    def label(self):
        """The number, with the letter of its file where there are several."""
        return f"{self.file.letter}{self['case']}"

    @property
    def session(self):
        """Provenance of the session that measured it; a prediction has none."""
        return self.file.sessions[self["session"]] if self.file.sessions else {}

    @property
    def links(self):
        """{what: value} of the shaped links of the job; empty where they are not shaped."""
        return dict(text.partition("=")[::2] for text in self.session.get("links", []))

    @property
    def group_sizes(self):
        return [int(size) for size in self["groups"].split("+")]

    @property
    def valid(self):
        return self["verdict"].startswith("VALID")

    @property
    def doubt(self):
        """What the verdict says in brackets after VALID: noisy, no warm-up, or both."""
        return self["verdict"].removeprefix("VALID").strip(" ()") if self.valid else ""

    @functools.cached_property
    def samples(self):
        """Seconds of each timed step: the slowest rank's."""
        seconds = self.get("seconds")
        return seconds.max(axis=1) if seconds.size else numpy.zeros(0)

    @property
    def repetition(self):
        """Of each sample."""
        return self.get("repetition")

    @property
    def tokens(self):
        """Of a step, all ranks together."""
        return round(self["tokens_per_s"] * self["median_s"]) if self["median_s"] > 0 else 0

    def traffic(self):
        """Counted bytes per step by kind, between groups and inside, none of a case that failed
        before; a valid case has the planned ones."""
        matrix, sizes = self.get("bytes/counted"), self.group_sizes
        if not matrix.size:
            return [numpy.zeros(BYTE_KINDS, int), numpy.zeros(BYTE_KINDS, int)]
        group = numpy.repeat(numpy.arange(len(sizes)), sizes)
        same = group[:, None] == group[None, :]
        return [matrix[chosen].sum(axis=0) for chosen in (~same, same)]


@dataclass
class Result:
    """A file: its sessions (provenance) and cases, and what the columns of its summary are."""

    path: pathlib.Path
    letter: str = ""  # empty where there is one file only
    units: dict = field(default_factory=dict)  # of each column, in the order of the table
    settings: list = field(default_factory=list)  # columns that say what was asked for
    sessions: list = field(default_factory=list)
    cases: list = field(default_factory=list)
    verdict: str = ""  # "VALID", "VALID (doubt)" or "INVALID: reason" of all cases
    slowest: str = ""  # a sentence on the rank that is slow in all cases


def verdict_of(reader, cases):
    """Of all cases as the file says it: VALID, VALID with a doubt, or INVALID, as follows from
    them."""
    said = reader.attribute("summary", "verdict", "")
    follows = "INVALID: "
    if cases and all(case.valid for case in cases):
        follows = "VALID [(]" if any(case.doubt for case in cases) else "VALID$"
    if not isinstance(said, str) or not re.match(follows, said):
        refuse("summary@verdict", "does not follow from the verdicts of the cases")
    return said


# Reading.


def read_case(result, reader, row):
    data = reader.case(row, result.sessions, DATASETS)
    return Case(result, row, data, reader.has(f"cases/{row['case']:04}/timeline"))


def read_result(result, reader):
    """The sessions, the cases, and what the file says of all of them."""
    rows = reader.rows()
    result.units = {name: entry.units for name, entry in layout().columns.items()}
    result.settings = list(layout().settings)
    result.sessions = [reader.session(number) for number in range(reader.sessions)]
    result.cases = [read_case(result, reader, row) for row in rows]
    result.verdict = verdict_of(reader, result.cases)
    result.slowest = reader.attribute("summary", "slowest", "")
    if not isinstance(result.slowest, str):
        refuse("summary@slowest", "is no text")
    return result


def load(name, content=None, letter=""):
    """A result from a file, or from its bytes. Raises BadInput for a file that is missing, no
    result, damaged or of another schema."""
    result = Result(pathlib.Path(name), letter)
    return reading(str(name), content, lambda reader: read_result(result, reader))


def load_all(names):
    """All files, in the order given; with letters (A ... Z, A1 ...) where there are several."""
    if len(names) == 1:
        return [load(names[0])]
    alphabet = string.ascii_uppercase
    found = []
    for number, name in enumerate(names):
        turn, letter = divmod(number, len(alphabet))
        found.append(load(name, letter=f"{alphabet[letter]}{turn or ''}"))
    return found


def read_timeline(case):
    """Columns of the timeline of a case, codes replaced by their names: {name: list}."""
    return reading(case.file.path, None, lambda reader: reader.timeline(case["case"]))


# Which cases the pages name.


def describe(case):
    ranks, tokens = plural(case["ranks"], "rank"), plural(case["seq"], "token")
    context = f", context {case['context']}" if case["context"] > 1 else ""
    return f"{case['schedule']}, {ranks} in groups {case['groups']}, {tokens}{context}"


def fastest(cases):
    """The valid case of the largest rate; None if there is none."""
    valid = (case for case in cases if case.valid)
    return max(valid, key=lambda case: case["tokens_per_s"], default=None)


def quietest(cases):
    """The fastest case without a doubt."""
    return fastest(case for case in cases if not case.doubt)


def reason_of(case):
    """Why a case is not valid, without the word that says so."""
    return case["verdict"].removeprefix("INVALID: ")
