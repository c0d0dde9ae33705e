# SPDX-License-Identifier: BSD-3-Clause
"""What a page of results is made of: all cases with one name and one look, and the kinds of blocks
that report.html lays out, beside paragraphs (str), figures (lists of pictures) and texts to unfold
(dict)."""

from dataclasses import dataclass

import pandas

from .drawing import styles_of
from .numbers import NO_FIGURE, count_text, exists, listed, plural
from .record import array, cases, reason_of
from .settings import TOLD, setting_text, telling


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
        self.files = list(found["file"].unique())
        self.sessions = [session for file in self.files for session in file.sessions]
        in_files = found.groupby(every_setting)["file"].nunique()
        letters = "(" + found["file"].map(lambda file: file.letter) + ")"
        found["line"] = found["schedule"] + (" " + letters if in_files.max() > 1 else "")
        self.told = [name for name in telling(found, every_setting) if name != "schedule"]
        found["told"] = [self.telling(case) for _, case in found.iterrows()]
        found["status"] = [worst_status(some) for some in found["runs"]]
        self.cases, self.valid = found, found[found["valid"]]
        self.styles = styles_of(found["line"])
        shaped = (" ".join(session.get("links", [])) for session in self.sessions)
        links = dict.fromkeys(filter(None, shaped))
        self.links = [f"links between nodes: {listed(links, 3)}"] if links else []

    def with_array(self, name):
        """The cases that have this array, and of each a repetition with it."""
        runs = [run_with(case, name) for _, case in self.cases.iterrows()]
        known = [run is not None for run in runs]
        return self.cases[known], [run for run in runs if run is not None]

    def telling(self, case):
        """The settings that tell this case from others of its schedule: "512 tokens, 2 ranks"."""
        texts = []
        for name in self.told:
            if name == "seq":
                texts.append(f"{count_text(case['seq'])} tokens")
            else:
                texts.append(setting_text(name, case[name]))
        return ", ".join(texts)


def worst_status(runs):
    return next((run["status"] for run in runs if not run["valid"]), runs[0]["status"])


def run_with(case, name):
    """The first repetition that has this array, a valid one if there is one; None without."""
    runs = sorted(case["runs"], key=lambda run: not run["valid"])
    return next((run for run in runs if array(run, name).size), None)


def left_out(reasons, count):
    """What a picture does not show, and why: "left out: 2 of 9 cases (2 × does not fit)"."""
    if not len(reasons):
        return ""
    counts = pandas.Series(reasons).value_counts(sort=False)
    why = listed(f"{number} × {reason}" for reason, number in counts.items())
    return f"left out: {len(reasons)} of {plural(count, 'case')} ({why})"


def not_valid(some):
    return [reason_of(case) for case in some[~some["valid"]].itertuples()]


def table(caption, some, columns):
    """A row for each case, whose settings stand in a first cell: columns of their own would push
    the figures off a phone. columns: {title: texts}; those in which no case has a figure are left
    out."""
    cells = pandas.DataFrame(columns, index=some.index)
    cells = cells.loc[:, (cells != NO_FIGURE).any()]
    return Table(caption, list(cells), list(zip(some.itertuples(), cells.to_numpy().tolist())))


def figures_of(some, columns):
    """{title: texts} of columns {name: (title, text of a value)}."""
    ended = some["median_s"] > 0
    return {
        title: [
            text(value) if known and exists(value) else NO_FIGURE
            for value, known in zip(some[name].tolist(), ended)
        ]
        for name, (title, text) in columns.items()
    }
