# SPDX-License-Identifier: BSD-3-Clause
"""What a page of results is made of: all cases with one name and one look, and the kinds of blocks
that report.html lays out, beside paragraphs (str), figures (lists of pictures) and texts to unfold
(dict)."""

from dataclasses import dataclass

from .drawing import styles_of
from .numbers import NO_FIGURE, count_text, exists, listed
from .settings import TOLD, grouped, setting_text, telling, values_of


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
    """All cases, with one name and one look for each line on the whole page."""

    def __init__(self, results):
        every_setting = ("schedule", "seq", *TOLD)
        self.results = results
        self.cases = [case for result in results for case in result.cases]
        self.valid = [case for case in self.cases if case.valid]
        self.sessions = [session for result in results for session in result.sessions]

        same = grouped(self.cases, lambda case: values_of(case, every_setting)).values()
        self.with_file = any(len({case.file.letter for case in some}) > 1 for some in same)
        self.styles = styles_of(map(self.naming, self.cases))
        told = telling(self.cases, every_setting)
        self.told = [name for name in told if name != "schedule"]

        shaped = (" ".join(session.get("links", [])) for session in self.sessions)
        links = dict.fromkeys(filter(None, shaped))
        self.links = [f"links between nodes: {listed(links, 3)}"] if links else []

    def naming(self, case):
        return case["schedule"] + (f" ({case.file.letter})" if self.with_file else "")

    def telling(self, case):
        """The settings that tell this case from others of its schedule: "512 tokens, 2 ranks"."""
        texts = []
        for name in self.told:
            if name == "seq":
                texts.append(f"{count_text(case['seq'])} tokens")
            else:
                texts.append(setting_text(name, case[name]))
        return ", ".join(texts)


def table(caption, head, cases, cells_of):
    """A row for each case, whose settings stand in a first cell: columns of their own would push
    the figures off a phone. Columns in which no case has a figure are left out."""
    rows = [cells_of(case) for case in cases]
    used = [i for i in range(len(head)) if any(row[i] != NO_FIGURE for row in rows)]
    cells = [[row[i] for i in used] for row in rows]
    return Table(caption, [head[i] for i in used], list(zip(cases, cells)))


def figures_table(caption, columns, cases, more=(), more_of=lambda case: []):
    """Columns of the summary, {name: (title, text of a value)}, and more."""

    def cells_of(case):
        found = []
        for name, (_, text) in columns.items():
            is_known = exists(case[name]) and case["median_s"] > 0
            found.append(text(case[name]) if is_known else NO_FIGURE)
        return found + more_of(case)

    head = [title for title, _ in columns.values()]
    return table(caption, [*head, *more], cases, cells_of)
