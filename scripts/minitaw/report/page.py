"""The page: all sections in order, in one file that needs no other."""

import pathlib

from ..command import Parser, put_out, write_file
from ..record import load_all
from .book import Book, LeftOut, head, left_out, title_of
from .costs import parts_section, planned_section, traffic_section
from .markup import Markup, tag
from .origin import counters_section, provenance_section
from .results import cases_section, scaling_section, throughput_section
from .steps import samples_section, timeline_section

SECTIONS = [cases_section, throughput_section, scaling_section, traffic_section, parts_section, planned_section, samples_section,
            timeline_section, counters_section, provenance_section]


def contents(sections):
    return tag("nav", tag("ul", *[tag("li", tag("a", s.title, href=f"#{s.id}")) for s in sections]), aria_label="sections")


def body(book):
    sections = [section(book) for section in SECTIONS]
    there = [section for section in sections if not isinstance(section, LeftOut)]
    gone = [section for section in sections if isinstance(section, LeftOut)]
    rest = tag("section", left_out(gone), aria_labelledby="left-out") if gone else ""
    top = tag("header", tag("h1", title_of(book)), head(book), contents(there))
    return tag("body", top, tag("main", *[s.markup() for s in there], rest), footer())


def footer():
    return tag("footer", tag("p", "Written by scripts/report of miniTaw. Figures without a unit are shares or counts; KiB, MiB, GiB are powers "
                                  "of 1024; lengths as 4K count 1024. What the terms mean: docs/results.md."))


def page(results):
    """The whole page as text."""
    book = Book(results)
    style = pathlib.Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    meta = tag("head", Markup('<meta charset="utf-8"/>'), Markup('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
              tag("title", title_of(book)), tag("style", Markup(style)))
    return Markup("<!DOCTYPE html>\n") + tag("html", meta, body(book), lang="en") + "\n"


def main(words=None):
    parser = Parser(prog="report", description="Writes what result files say as one page: for a browser, a phone or paper (docs/report.md).")
    parser.add_argument("files", metavar="FILE.h5", nargs="+", help="result file of minitaw run")
    parser.add_argument("-o", "--output", metavar="PAGE.html", default="report.html", help="default: %(default)s")
    options = parser.parse_args(words)
    write_file(options.output, page(load_all(options.files)))
    put_out(f"{options.output}\n")
