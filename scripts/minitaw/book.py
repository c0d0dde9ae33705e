# SPDX-License-Identifier: BSD-3-Clause
"""What a page of results is made of: all cases with one name and one look, and the kinds of blocks
that report.html lays out, beside paragraphs (str), figures (lists of pictures) and texts to unfold
(dict)."""

from dataclasses import dataclass, field

import pandas

from .drawing import styles_of
from .numbers import NO_FIGURE, count_text, exists
from .record import array, cases, rows_of
from .settings import TOLD, setting_text, telling


@dataclass
class Box:
    """Of the head of a page: a line with one strong word or number, and lines below it."""

    look: str = ""  # "good", "doubt", "bad"
    before: str = ""
    strong: str = ""
    after: str = ""
    lines: list = field(default_factory=list)


@dataclass
class Table:
    caption: str
    head: list
    rows: list  # [(case, [text, ...])]


@dataclass
class Picture:
    title: str
    address: str
    wide: bool = False


@dataclass
class Failures:
    rows: list  # [(status, reason, cases)]


class Book:
    """All cases, with one name (`line`) and one look on the whole page."""

    def __init__(self, runs):
        every_setting = ["schedule", "seq", *TOLD]
        found = cases(runs)
        self.files = list(found.file.unique())
        self.sessions = [session for file in self.files for session in file.sessions]
        is_double = found.groupby(every_setting).file.nunique().max() > 1
        letters = found.file.map(lambda file: f" ({file.letter})" if is_double else "")
        names = [name for name in telling(found, every_setting) if name != "schedule"]
        self.cases = found.assign(
            line=found.schedule + letters,
            told=[told_by(case, names) for case in rows_of(found)],
            status=[worst_status(some) for some in found.runs],
        )
        self.valid = self.cases[found.valid]
        self.styles = styles_of(self.cases.line)

    def with_array(self, name):
        """The cases that have this array, and of each a repetition with it."""
        runs = [run_with(case, name) for case in rows_of(self.cases)]
        known = [run is not None for run in runs]
        return self.cases[known], list(filter(lambda run: run is not None, runs))


def told_by(case, names):
    """The settings that tell a case from others of its schedule: "512 tokens, 2 ranks"."""
    return ", ".join(
        f"{count_text(case.seq)} tokens" if name == "seq" else setting_text(name, case[name])
        for name in names
    )


def worst_status(runs):
    return next((run.status for run in runs if not run.valid), runs[0].status)


def run_with(case, name):
    """The first repetition that has this array, a valid one if there is one; None without."""
    runs = sorted(case.runs, key=lambda run: not run.valid)
    return next((run for run in runs if array(run, name).size), None)


def table(caption, some, columns, more=()):
    """A row for each case, whose settings stand in a first cell: columns of their own would push
    the figures off a phone. columns: {name: (title, text of a value)}; more: {title: texts}. Those
    in which no case has a figure are left out."""
    ended = some.median_s > 0
    cells = pandas.DataFrame(index=some.index)
    for name, (title, text) in columns.items():
        values = zip(some[name].tolist(), ended)
        cells[title] = [text(one) if known and exists(one) else NO_FIGURE for one, known in values]
    cells = cells.assign(**dict(more))
    cells = cells.loc[:, (cells != NO_FIGURE).any()]
    return Table(caption, list(cells), list(zip(some.itertuples(), cells.to_numpy().tolist())))
