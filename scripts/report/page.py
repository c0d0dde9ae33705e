"""The page: all sections in order, in one file that needs no other."""

import pathlib

from . import cases, counters, head, parts, planned, provenance, samples, scaling, throughput, timeline, traffic
from .book import Book, LeftOut
from .html import Markup, tag

SECTIONS = [cases, throughput, scaling, traffic, parts, planned, samples, timeline, counters, provenance]


def contents(sections):
    return tag("nav", tag("ul", *[tag("li", tag("a", s.title, href=f"#{s.id}")) for s in sections]), aria_label="sections")


def body(book):
    sections = [module.section(book) for module in SECTIONS]
    there = [section for section in sections if not isinstance(section, LeftOut)]
    gone = [section for section in sections if isinstance(section, LeftOut)]
    left_out = tag("section", head.left_out(gone), aria_labelledby="left-out") if gone else ""
    top = tag("header", tag("h1", head.title_of(book)), head.head(book), contents(there))
    return tag("body", top, tag("main", *[s.markup() for s in there], left_out), footer())


def footer():
    return tag("footer", tag("p", "Written by scripts/report.py of miniTaw. Figures without a unit are shares or counts; KiB, MiB, GiB are powers "
                                  "of 1024; lengths as 4K count 1024. What the terms mean: docs/results.md."))


def page(results):
    """The whole page as text."""
    book = Book(results)
    style = pathlib.Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    top = tag("head", Markup('<meta charset="utf-8"/>'), Markup('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
              tag("title", head.title_of(book)), tag("style", Markup(style)))
    return Markup("<!DOCTYPE html>\n") + tag("html", top, body(book), lang="en") + "\n"
