# SPDX-License-Identifier: BSD-3-Clause
"""What result files say: as a page, which report.html lays out, or as a picture of its charts
(docs/report.md)."""

import pathlib
from dataclasses import replace

import jinja2

from .book import Book, left_out, not_valid
from .charts import MOST_PANELS, chart_figure
from .command import PICTURES, BadInput, Parser, suffix_of, write_file, write_stdout
from .drawing import save
from .numbers import count_text, listed, plural
from .provenance import program_of
from .record import load_all
from .sections import SECTIONS, charts_of
from .settings import panels, shared_settings

CHART_WIDTH = 6.5  # inches, of a column of a picture


# The page.


def origin_of(book):
    """Program, machine, dates and links, a line each."""
    sessions = book.sessions
    programs = dict.fromkeys(map(program_of, sessions))
    ranks = max((len(session.get("devices", [])) for session in sessions), default=0)
    nodes = max((len(set(session.get("nodes", []))) for session in sessions), default=0)
    devices = dict.fromkeys(text for session in sessions for text in session.get("devices", []))
    dates = sorted(session["started"] for session in sessions if session.get("started"))
    return [
        f"miniTaw {listed(programs, 3)}",
        f"{plural(ranks, 'rank')} on {plural(nodes, 'node')}: {listed(devices, 3)}",
        " to ".join(dict.fromkeys([*dates[:1], *dates[-1:]])),
        *book.links,
    ]


def shared_by(book):
    """Texts of the settings that all cases have in common."""
    found = shared_settings(book.cases)
    if book.cases.seq.nunique() == 1:
        found.append(f"{count_text(int(book.cases.seq.iloc[0]))} tokens in a sequence")
    return found


def page(runs):
    """The whole page as text."""
    book = Book(runs)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["plural"] = plural
    text = environment.get_template("report.html").render(
        book=book,
        origin=origin_of(book),
        shared=shared_by(book),
        sections={name: make(book) for name, make in SECTIONS.items()},
    )
    return text + "\n"


# The charts of the page as one picture.


def picture_title(book, parts):
    """What all cases share, the shape of links, and what is in doubt."""
    doubtful = (book.valid.doubt != "").sum()
    said = [", ".join(shared_settings(book.valid)), *book.links]
    if doubtful:
        count = f"{doubtful} of {plural(len(book.valid), 'case')}"
        said.append(f"{count} in doubt (noisy or no warm-up)")
    if parts > MOST_PANELS:
        said.append(f"the first {MOST_PANELS} of {parts} panels")
    return "; ".join(filter(None, said))


def picture(book, note):
    """A column of panels for each setting but schedule and sequence length."""
    if book.valid.empty:
        raise BadInput(f"{book.files[0].path} has no valid case to draw ({len(book.cases)} in all)")
    every = panels(book.valid)
    columns = []
    for name, some in every[:MOST_PANELS]:
        found = charts_of(book, some)
        columns.append([chart and replace(chart, title=name) for chart in found])
    rows = [columns[0][:2], columns[0][2:]] if len(columns) == 1 else list(zip(*columns))
    rows = [row for row in rows if any(row)]
    return chart_figure(rows, CHART_WIDTH, picture_title(book, len(every)), note)


def main(words=None):
    parser = Parser(
        prog="report",
        description="Writes what result files say as one page, for a browser, a phone or paper, or "
        "its charts as a picture (docs/report.md).",
    )
    parser.add_argument("files", metavar="FILE.h5", nargs="+", help="result file of minitaw run")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        action="append",
        help="a page (.html), or a picture (.png, .svg, .pdf); may be repeated "
        "(default: report.html)",
    )
    options = parser.parse_args(words)
    names = options.output or ["report.html"]
    outputs = {name: suffix_of(name, *PICTURES, ".html", "") for name in names}
    runs = load_all(options.files)
    for output, suffix in outputs.items():
        if suffix in PICTURES:
            book = Book(runs)
            note = left_out(not_valid(book.cases), len(book.cases))
            save(picture(book, note), output)
            write_stdout(f"{output}\n" + (note and f"{note}\n"))
        else:
            write_file(output, page(runs))
            write_stdout(f"{output}\n")
