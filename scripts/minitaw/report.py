# SPDX-License-Identifier: BSD-3-Clause
"""What result files say: as a page, which report.html lays out, or as a picture of its charts
(docs/report.md)."""

import pathlib
import textwrap

import jinja2

from . import charts
from .book import Book
from .command import PICTURES, BadInput, Parser, suffix_of, write_file, write_stdout
from .drawing import save
from .numbers import bytes_text, count_text, figure, listed, plural, seconds_text
from .provenance import program_of
from .record import FORBIDDEN, fastest, load_all, quietest
from .sections import SECTIONS
from .settings import MODEL, grouped, panels, setting_text, shared_settings, telling, values_of

CHART_WIDTH = 6.5  # inches, of a column of a picture
TITLE_WIDTH = 80  # letters above such a column


# The top: may this result be quoted, and what is its figure of merit.


def kind_of(verdict):
    """The class of style sheets."""
    if verdict == "VALID":
        return "good"
    return "doubt" if verdict.startswith("VALID") else "bad"


def merits_of(book):
    """The figure of merit of each model, which its settings tell from the others."""
    names = telling(book.valid, MODEL)
    models = grouped(book.valid, lambda case: values_of(case, names))
    return [
        {
            "case": fastest(some),
            "quiet": quietest(some),
            "model": ", ".join(map(setting_text, names, key)),
        }
        for key, some in models.items()
    ]


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


def top(book):
    shared = shared_settings(book.cases)
    lengths = {case["seq"] for case in book.cases}
    if len(lengths) == 1:
        shared.append(f"{count_text(*lengths)} tokens in a sequence")
    return {
        "verdicts": [(result, result.verdict, kind_of(result.verdict)) for result in book.results],
        "merits": merits_of(book),
        "origin": origin_of(book),
        "shared": shared,
    }


def clean(value):
    """Of texts that a page shows."""
    return FORBIDDEN.sub("\ufffd", value) if type(value) is str else value


def page(results):
    """The whole page as text."""
    book = Book(results)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=clean,
    )
    environment.filters |= {
        "figure": figure,
        "bytes": bytes_text,
        "seconds": seconds_text,
        "plural": plural,
    }
    text = environment.get_template("report.html").render(
        title="miniTaw: " + ", ".join(result.path.stem for result in results),
        book=book,
        top=top(book),
        sections={name: make(book) for name, (_, make) in SECTIONS.items()},
        titles={name: title for name, (title, _) in SECTIONS.items()},
        count=len(book.cases),
    )
    return text + "\n"


# The charts of the page as one picture.


def picture_title(book, parts):
    """What all cases share, the shape of links, and what is left out or in doubt."""
    bad = len(book.cases) - len(book.valid)
    doubtful = sum(bool(case.doubt) for case in book.valid)
    said = [", ".join(shared_settings(book.valid)), *book.links]
    if bad:
        said.append(f"{bad} of {plural(len(book.cases), 'case')} not valid, left out")
    if doubtful:
        count = f"{doubtful} of {plural(len(book.valid), 'case')}"
        said.append(f"{count} in doubt (noisy or no warm-up)")
    if parts > charts.MOST_PANELS:
        said.append(f"the first {charts.MOST_PANELS} of {parts} panels")
    return "; ".join(said)


def picture(results):
    """A column of panels for each setting but schedule and sequence length."""
    book = Book(results)
    if not book.valid:
        raise BadInput(f"{results[0].path} has no valid case to draw ({len(book.cases)} in all)")
    every = panels(book.valid)
    columns = [
        (name, charts.charts_of(some, book.styles, book.naming))
        for name, some in every[: charts.MOST_PANELS]
    ]
    if len(columns) == 1:  # two by two
        ((_, found),) = columns
        columns = [("", found[0::2]), ("", found[1::2])]
    drawn = charts.chart_figure(columns, CHART_WIDTH)
    title = textwrap.fill(picture_title(book, len(every)), TITLE_WIDTH * len(columns))
    drawn.suptitle(title, fontsize="medium")
    return drawn


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
    results = load_all(options.files)
    drawn = picture(results) if set(outputs.values()) & set(PICTURES) else None
    for output, suffix in outputs.items():
        if suffix in PICTURES:
            save(drawn, output)
        else:
            write_file(output, page(results))
        write_stdout(f"{output}\n")
