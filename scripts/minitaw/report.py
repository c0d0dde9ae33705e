# SPDX-License-Identifier: BSD-3-Clause
"""What result files say, as a page that report.html lays out (docs/show.md)."""

import pathlib

import jinja2

from . import screening
from .book import Book, Box
from .check_rules import official
from .command import Parser, ending, write_file, write_stdout
from .numbers import listed, plural
from .provenance import program_of
from .ratings import COLUMNS, ranked, rate_of, texts_of
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


# The head.


def rating_box(found, of):
    """What counts of a result of a size; `of` names its file if there are several."""
    rate = f"{found.rate:.6g} tokens/s" if found.bests else "none"
    lines = [f"official: no: {found.reason}" if found.reasons else "official: yes"]
    if found.network is not None:
        lines.append(f"network figure: {rate_of(found.network):.6g} tokens/s")
    look = "doubt" if found.reasons else "good"
    return Box(look, f"rating of {found.size}{of}: ", rate, lines=lines)


def merit_boxes(file, of):
    for merit in file.figures_of_merit:
        rate, _, rest = merit.partition(" (")
        look = "doubt" if "without doubt" in merit else ""
        said = f"({rest}" if rest else "There is no valid case."
        yield Box(look, f"figure of merit{of}: ", rate, lines=[said])


def result_box(file, count):
    word, _, rest = file.verdict.partition(" ")
    look = "bad" if word != "VALID" else "doubt" if rest else "good"
    name = f"{file.letter}: {file.path.name}" if file.letter else file.path.name
    said = f"{name}, {plural(count, 'case')}"
    return Box(look, "", f"RESULT: {word}", f" {rest}", [said])


def boxes_of(book, offers):
    for file, found in zip(book.files, offers):
        of = f" of {file.letter}" if file.letter else ""
        result = result_box(file, (book.cases.file == file).sum())
        if found.size:
            yield from (rating_box(found, of), result)
        else:
            yield from (result, *merit_boxes(file, of))
    yield Box(lines=list(filter(None, origin_of(book))))


def table_of(files, offers):
    """{title: a text of each file}, where there are several files of one size."""
    sizes = [found.size for found in offers if found.size]
    if len(sizes) == len(set(sizes)):
        return {}
    names = [file.path.name for file in files]
    rows = [texts_of(row) for row in ranked(zip(names, offers))]
    return {title: [row[name] for row in rows] for name, title in COLUMNS.items()}


# The page.


def of_results(runs):
    """What the template needs of result files."""
    book = Book(runs)
    offers = [official(runs[runs.file == file].reset_index()) for file in book.files]
    return {
        "names": [file.path.stem for file in book.files],
        "boxes": list(boxes_of(book, offers)),
        "offers": table_of(book.files, offers),
        "count": len(book.cases),
        "shared": shared_settings(book.cases),
        "sections": {name: make(book) for name, make in SECTIONS.items()},
    }


NO_RESULTS = {"names": [], "boxes": [], "offers": {}, "count": 0, "shared": [], "sections": {}}


def page(runs, screenings=()):
    """The whole page as text. runs: None without result files."""
    content = NO_RESULTS if runs is None else of_results(runs)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    template = environment.get_template("report.html")
    return template.render(content, screenings=screenings) + "\n"


def main(words=None):
    parser = Parser(
        prog="report",
        description="Writes what result files say as one page, for a browser, a phone or paper "
        "(docs/show.md).",
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="result file of minitaw run (.h5), or output of minitaw screen --json (.json)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT.html",
        type=ending(".html"),
        default="report.html",
        help="default: %(default)s",
    )
    options = parser.parse_args(words)
    screenings = [name for name in options.files if name.endswith(".json")]
    results = [name for name in options.files if name not in screenings]
    runs = load_all(results) if results else None
    write_file(options.output, page(runs, list(map(screening.load, screenings))))
    write_stdout(f"{options.output}\n")
