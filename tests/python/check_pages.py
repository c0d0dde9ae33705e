# SPDX-License-Identifier: BSD-3-Clause
"""The numbers in tables of docs/ are those that the commands of benchmarks/results print now, of
results/ or predicted: cell by cell, whatever other columns the page has."""

import re
import sys

from support import REPOSITORY
import programs

PROGRAM = sys.argv[4]


def sections(text):
    """The tables of each heading, as heads and rows, and the lines of its lists."""
    found = {}
    for heading, body in re.findall(r"^## (.*)\n((?:(?!# |## ).*\n?)*)", text, re.MULTILINE):
        blocks = re.findall(r"^(\|.*)\n\|[-|]+\n((?:\|.*\n)*)", body, re.MULTILINE)
        found[heading] = [
            (cells(head), [cells(row) for row in rows.splitlines()]) for head, rows in blocks
        ], re.findall(r"^- (.*)", body, re.MULTILINE)
    return found


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def differences(page, printed):
    """Sentences on what the page says and the command does not, or the other way round."""
    there, words = sections(page), " ".join(page.replace("*", "").split())
    for heading, (tables, phrases) in sections(printed).items():
        yield from (
            f"{heading}: does not say {phrase!r}" for phrase in phrases if phrase not in words
        )
        found = there.get(heading, ([], []))[0]
        if len(found) != len(tables):
            yield f"{heading}: {len(found)} tables instead of {len(tables)}"
        for (head, rows), (page_head, page_rows) in zip(tables, found):
            if not set(head) <= set(page_head):
                yield f"{heading}: columns {page_head}, predicted are {head}"
                continue
            own = [
                [row[page_head.index(name)] for name in head]
                for row in page_rows
                if row[0] not in WITHOUT_PREDICTION
            ]
            yield from (
                f"{heading}: the page has {row}, predicted is {new}"
                for row, new in zip(own, rows)
                if row != new
            )
            if len(own) != len(rows):
                yield f"{heading}: {len(own)} rows instead of {len(rows)}"


WITHOUT_PREDICTION = ("correct training",)
PAGE = (
    "## One\n| a | b | c |\n|---|---|---|\n| x | 1 | 2 |\n| correct training | - | - |\n\n"
    "**3 of 4** are near.\n## Two\n| a |\n|---|\n"
)


def notices_every_change():
    printed = "## One\n| a | c |\n|---|---|\n| x | 2 |\n\n- 3 of 4 are near\n"
    assert not list(differences(PAGE, printed))
    row = "| x | 2 |\n"
    for old, new in ((" 2", " 3"), ("3 of", "2 of"), ("c", "d"), (row, row + row), ("One", "Two")):
        assert list(differences(PAGE, printed.replace(old, new))), (old, new)


RESULTS = REPOSITORY / "results"
HOST = RESULTS / "2-core-xeon/2026-11-22-host/host.csv"
LINKS = RESULTS / "2-core-xeon/2026-11-23-links/links.csv"
LONG = RESULTS / "2-core-epyc/2026-11-26-long"
COMMANDS = {  # words, and the pages of which they print
    ("paper.py", "--minitaw", PROGRAM): ["docs/paper.md", "docs/plan.md"],
    ("fastest.py", "tables", "long", "--minitaw", PROGRAM): ["docs/long.md", "docs/predict.md"],
    ("fastest.py", "tables", "rivals"): ["docs/long.md"],
    ("fastest.py", "tables", "sizes"): ["docs/run-rules.md"],
    ("host_speed.py", "tables", HOST): ["docs/performance.md"],
    ("link_speeds.py", "tables", "links", LINKS): ["docs/performance.md"],
    ("link_speeds.py", "tables", "long", LONG / "nodes.csv"): ["docs/long.md"],
    ("link_speeds.py", "tables", "slices", LONG / "slices.csv"): ["docs/long.md"],
}


def wrong_numbers(command, pages):
    name, *words = command
    script = REPOSITORY / "benchmarks/results" / name
    done = programs.call(sys.executable, script, *words, check=True, timeout=None)
    parts = re.split(r"^# (\S+\.md)\n", done.stdout, flags=re.MULTILINE)[1:]
    assert parts[::2] == pages, (command, parts[::2])
    for page, printed in zip(parts[::2], parts[1::2]):
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        yield from (f"{name}: {page}, {what}" for what in differences(text, printed))


def pages_are_true():
    found = [text for command, pages in COMMANDS.items() for text in wrong_numbers(command, pages)]
    assert not found, "\n".join(["benchmarks/results prints other numbers:", *found])


def some_rows_are_predicted_as_they_stand_there():
    script = REPOSITORY / "benchmarks/results/fastest.py"
    for name, every in (("rivals", "197"), ("sizes", "55")):
        words = ["check", name, "--every", every, "--minitaw", PROGRAM]
        programs.call(sys.executable, script, *words, check=True, timeout=None)


notices_every_change()
pages_are_true()
some_rows_are_predicted_as_they_stand_there()
