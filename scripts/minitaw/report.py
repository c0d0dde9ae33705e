# SPDX-License-Identifier: BSD-3-Clause
"""What result files say, as a page that report.html lays out (docs/report.md)."""

import pathlib

import jinja2

from .book import Book
from .command import Parser, ending, write_file, write_stdout
from .numbers import listed, plural
from .provenance import program_of
from .record import load_all
from .sections import SECTIONS
from .settings import shared_settings


def origin_of(book):
    """Program, machine, dates and links, a line each."""
    sessions = book.sessions
    programs = dict.fromkeys(map(program_of, sessions))
    ranks = max((len(session.get("devices", [])) for session in sessions), default=0)
    nodes = max((len(set(session.get("nodes", []))) for session in sessions), default=0)
    devices = dict.fromkeys(text for session in sessions for text in session.get("devices", []))
    dates = sorted(session["started"] for session in sessions if session.get("started"))
    links = dict.fromkeys(" ".join(session.get("links", [])) for session in sessions)
    shaped = listed(filter(None, links), 3)
    return [
        f"miniTaw {listed(programs, 3)}",
        f"{plural(ranks, 'rank')} on {plural(nodes, 'node')}: {listed(devices, 3)}",
        " to ".join(dict.fromkeys([*dates[:1], *dates[-1:]])),
        *[f"links between nodes: {shaped}"] * bool(shaped),
    ]


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
        shared=shared_settings(book.cases),
        sections={name: make(book) for name, make in SECTIONS.items()},
    )
    return text + "\n"


def main(words=None):
    parser = Parser(
        prog="report",
        description="Writes what result files say as one page, for a browser, a phone or paper "
        "(docs/report.md).",
    )
    parser.add_argument("files", metavar="FILE.h5", nargs="+", help="result file of minitaw run")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT.html",
        type=ending(".html"),
        default="report.html",
        help="default: %(default)s",
    )
    options = parser.parse_args(words)
    write_file(options.output, page(load_all(options.files)))
    write_stdout(f"{options.output}\n")
