#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether the pages say what records and predictions say: runs the scripts of this folder, and looks
for every row and sentence that they print in the section of the page that they name.

    scripts/env benchmarks/results/check_pages.py [NAME ...]

Without names all are checked; `paper` and `sequences` take minutes. Exit code 0: all is there; 1:
something is not, and a line says what.
"""

import functools
import re
import sys

from pages import ROOT, add_program, end, output_of, parser_of

HOST = ROOT / "results/2-core-xeon/2026-11-22-host/host.csv"
LINKS = ROOT / "results/2-core-xeon/2026-11-23-links/links.csv"
LONG = ROOT / "results/2-core-epyc/2026-11-26-long"
OF_RECORDS = {
    "host": ["host_speed.py", "tables", HOST],
    "links": ["link_speeds.py", "tables", "links", LINKS],
    "nodes": ["link_speeds.py", "tables", "long", LONG / "nodes.csv"],
    "slices": ["link_speeds.py", "tables", "slices", LONG / "slices.csv"],
    "rivals": ["fastest.py", "tables", "rivals"],
}
OF_THE_PROGRAM = {
    "plan": ["paper.py", "plan"],
    "paper": ["paper.py", "tables"],
    "sequences": ["fastest.py", "tables", "long"],
}
COMMANDS = OF_RECORDS | OF_THE_PROGRAM


def cells_of(line):
    """Of a row of a table, without emphasis."""
    return [cell.strip(" *") for cell in line.strip().strip("|").split("|")]


@functools.cache
def sections_of(page):
    """{heading: its lines}"""
    title, found = "", {}
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        found.setdefault(title, []).append(line)
    return found


def holds(lines, said):
    """A row may stand in a row with more columns, in the same order; a sentence anywhere."""
    if said.startswith("|"):
        rows = (iter(cells_of(line)) for line in lines if line.startswith("|"))
        return any(all(cell in row for cell in cells_of(said)) for row in rows)
    return said.removeprefix("- ") in re.sub(r"\s+", " ", " ".join(lines))


def missing(text):
    """What a script printed and its page does not say: (page, section, line)."""
    page = section = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("# "):
            page, section = line[2:], ""
        elif line.startswith("## "):
            section = line[3:]
        elif not line.startswith("|---"):
            if not holds(sections_of(page).get(section, []), line):
                yield page, section, line


def main():
    parser = parser_of(__doc__)
    add_program(parser)
    parser.add_argument("names", metavar="NAME", nargs="*", choices=[[], *COMMANDS])
    options = parser.parse_args()
    found = []
    for name in options.names or COMMANDS:
        script, *words = COMMANDS[name]
        if name in OF_THE_PROGRAM:
            words += ["--minitaw", options.minitaw]
        path = ROOT / "benchmarks/results" / script
        found += missing(output_of(*map(str, (sys.executable, path, *words))))
    for page, section, line in found:
        print(f"{page}, {section}: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    end(main)
