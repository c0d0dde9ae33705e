# SPDX-License-Identifier: BSD-3-Clause
"""scripts/report: the page is sound whatever the file, its numbers are the file's,
and it says clearly when it cannot be written. The figures themselves are looked at in
check_browser.py."""

import base64
import functools
import itertools
import math
import re
import tracemalloc
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from unittest import mock

from support import SAMPLE, process, refused, run_checks
import files
import numpy
import pandas
from minitaw import charts, drawing, record, sealed, sections
from minitaw.book import Book
from minitaw.events import measured_timeline
from minitaw.provenance import session_texts
from minitaw.record import load, load_all
from minitaw.report import origin_of
from minitaw.report import page as write_page
from minitaw.sections import charts_of

CHARTS = "Bytes, throughput, memory and time"
ALWAYS = {"Cases", "Provenance"}
OF_VALID = {CHARTS, "Bytes moved", "Where the time went", "Memory", "Timelines", "Energy"}
EVIL = "<script>alert('x')</script> & \"quotes\" ]]> -->"

IMAGE = "data:image/svg+xml;base64,"


def text_of(element):
    return re.sub("[ \n]+", " ", "".join(element.itertext()).replace("\u200b", "")).strip()


def tree_of(text):
    """The page as a tree, after the checks that hold for every page: it reaches out for nothing,
    and its links end."""
    doctype, markup = text.split("\n", 1)
    assert doctype == "<!DOCTYPE html>"
    tree = ElementTree.fromstring(markup)
    assert not re.search(r"//|@import|url\(", text_of(tree.find("head/style")))
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids)), "an id is used twice"
    for element in tree.iter():
        assert element.tag not in ("script", "link", "iframe"), element.tag
        assert not any(name.startswith("on") for name in element.keys()), element.keys()
        assert element.get("href", "#" + ids[0]).removeprefix("#") in ids, element.get("href")
        assert element.get("src", IMAGE).startswith(IMAGE), element.get("src")
    for figure in tree.iter("figure"):
        check_figure(figure)
    return tree


def check_figure(figure):
    """A title, which is the label of the drawing too, and an axis with a unit; no coordinate that
    is none."""
    title, (image,) = text_of(figure.find("figcaption")), figure.iter("img")
    assert title and image.get("alt") == title, title
    drawn = base64.b64decode(image.get("src").removeprefix(IMAGE))
    texts = text_of(ElementTree.fromstring(drawn))
    assert re.search(r"\[[^\]]+\]|since the step began|ranks", texts), (title, texts)
    assert not re.search(rb'="[^"]*\b(nan|inf)\b', drawn), title


def sections_of(tree):
    return {text_of(e) for e in tree.iter("h2")}


def tables_of(tree):
    """{caption: rows of texts}, the head first."""
    return {
        text_of(table.find("caption")): [
            [text_of(cell) for cell in row] for row in table.iter("tr")
        ]
        for table in tree.iter("table")
    }


@functools.cache
def report(name):
    """The page, without a new process: that takes longer than the page. It is kept for
    check_browser.py."""
    text = write_page(load(name))
    Path(Path(name).stem + ".html").write_text(text, encoding="utf-8")
    return tree_of(text)


def check_program():
    """As users call it; the same file gives the same page, byte for byte."""
    report(SAMPLE)
    assert process("report", SAMPLE, "-o", "called.html").stdout == "called.html\n"
    assert Path("called.html").read_bytes() == Path("sample.html").read_bytes()
    refused("report", SAMPLE, "-o", "page.png", says="must end in .html")


# Numbers.

UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "%": 0.01, "B": 1, "KiB": 2**10, "MiB": 2**20}


def agrees(text, value):
    """Four digits of "12 407 MiB"; one of an error."""
    number, _, unit = text.partition(" ")
    found = float(number.replace("\u202f", "")) * UNITS.get(unit, 1)
    near = 0.5 if "e-" in text else 1.01e-3
    return abs(found - value) <= near * abs(value) + 0.0005 * (unit == "%")


def check_numbers():
    """Every figure of the tables of cases is the file's, rounded; none of one that failed."""
    tables = tables_of(report(SAMPLE))
    with sealed.opened(SAMPLE) as file:
        runs = {name: one[:] for name, one in record.columns_of(file["runs"]).items()}
    shown = {"All cases": sections.FIGURES, "More figures": sections.MORE_FIGURES}
    for caption, names in shown.items():
        known = [name for name in names if numpy.isfinite(runs[name]).any()]
        for i, (named, *cells) in enumerate(tables[caption][1:]):
            mark = "!" if runs["verdict"][i].startswith(b"VALID (") else "✘"
            assert named.startswith(f"{mark} {i} {runs['schedule'][i].decode()}"), named
            for name, cell in zip(known, cells, strict=True):
                value = runs[name][i]
                there = math.isfinite(value) and runs["median_s"][i] > 0
                assert agrees(cell, value) if there else cell == "–", (name, cell, value)
        assert i == 6


def made(name, cases, **session):
    """The page of a file that is made of runs of the sample."""
    return report(files.make(SAMPLE, f"{name}.h5", cases, session))


def check_sample():
    tree = report(SAMPLE)
    assert sections_of(tree) == ALWAYS | OF_VALID | {"Left out"}, sections_of(tree)
    # Of case 4; tests/record/sample.hpp: the pairs of ranks send 0 to 4, 5 to 9, ... 40 to 44.
    bytes_table = "Bytes {} groups of a step, all ranks together"
    for caption, figures in (
        ("Parts of a step, mean over ranks", [0.5, 0.125, 0.0625, 0.0625, 0.1875, 0, 0.3125]),
        (bytes_table.format("between"), [340, 60, 64, 68, 72, 76]),
        (bytes_table.format("inside"), [650, 120, 125, 130, 135, 140]),
    ):
        named, *cells = tables_of(tree)[caption][5]
        assert named.startswith("! 4 tawpipe") and len(cells) == len(figures), (named, cells)
        assert all(map(agrees, cells, figures)), (cells, figures)
    energy = tables_of(tree)["Energy of the timed steps"]
    assert energy[1][1:] == ["600.0", "0.1250", "made up 1.2"], energy
    shown = text_of(tree)
    for words in (
        "RESULT: INVALID: 1 of 7 cases, first case 6",
        "Rank 2 is slowest in 6 runs.",
        "figure of merit: 2730.67 tokens/s (tawpipe, ",
        "All cases share: 3 ranks, groups 1+2, ",
        "Case 4: tawpipe, 3 ranks in groups 1+2, 512 tokens",
        "The file has more, of cases 0, 2: ",
    ):
        assert words in shown, words


def check_ranks():
    """Memory of the worst, the median and the least of three ranks, and what the worst has of each
    kind."""
    memory = [[100, *[1] * 6], [1, 200, *[1] * 5], [3, *[1] * 6]]
    arrays = {"memory/measured": memory, "idle_ticks": [0, 1, 2]}
    tree = made("ranks", [(0, {"bytes_between": 0, "groups": "3"}, arrays)])
    head, row = tables_of(tree)["Memory of the worst rank, and of others"]
    kinds = "weights gradients optimiser activations buffers tokens context".split()
    assert head[1:] == ["worst rank", *kinds, "median rank", "least", "ticks without work"]
    sizes = [206, 1, 200, 1, 1, 1, 1, 1, 106, 9]
    assert row[1:] == [*(f"{size} B" for size in sizes), "1.00 of 17"], row
    assert not any(caption.startswith("Bytes between") for caption in tables_of(tree))


def check_repetitions():
    """A case with several has its medians, and whiskers from the slowest to the fastest."""
    runs = [
        (0, {"case": 0, "repetition": i, "repeats": 3, "tokens_per_s": rate}, {})
        for i, rate in enumerate((100.0, 400.0, 200.0))
    ]
    book = Book(load(files.make(SAMPLE, "repeated.h5", runs)))
    (axes,) = charts_of(book, book.valid)["Throughput"].axes
    assert axes.get_xlabel() == "throughput [token/s], whiskers: repetitions"
    ends = [line.get_xdata()[0] for line in axes.lines]
    assert [axes.patches[0].get_width(), *ends] == [200, 100, 400]


# Cases of all kinds.


def failed(status, reason, **changed):
    """The sample's run without figures, with another status."""
    verdict = f"INVALID: {status}: {reason}"
    return 6, {"status": status, "reason": reason, "verdict": verdict} | changed, {}


def check_statuses():
    """Cases with doubts, and some that failed, in one repetition too: each of these with its
    reason, above the table."""
    verdicts = ["VALID (noisy: a)", "VALID", "VALID (no warm-up; noisy: b)"]
    good = [(0, {"verdict": one, "seq": 1 << i}, {}) for i, one in enumerate(verdicts)]
    bad = [failed("wrong", "loss differs", seq=256), failed("timeout", "no lane moved", seq=512)]
    again = [(0, {"case": 5}, {}), failed("oom", "late", case=5, repetition=1)]
    lost = (0, {"case": 6, "repeats": 2}, {})
    tree = made("statuses", [*good, *bad, *again, lost])
    marks = [row[0][0] for row in tables_of(tree)["All cases"][1:]]
    assert marks == [*"!✔!✘✘✘✘"]
    (listed,) = (text_of(e) for e in tree.iter("ul") if e.get("class") == "failures")
    for said in (
        "wrong: loss differs (case 3 (",
        "timeout: no lane moved (case 4 (",
        "oom: late (case 5 (",
        "INVALID: 1 of 2 repetitions (case 6 (",
    ):
        assert said in listed, (said, listed)
    said = "7 cases: 4 ok, 1 wrong, 1 timeout, 1 oom. Valid with a doubt, noisy: 0; no warm-up and"
    assert f"{said} noisy: 2." in text_of(tree)


def check_few():
    """One case, without energy; none valid."""
    why = "unavailable: this machine counts none"
    none = {"energy": math.nan, "energy_per_token": math.nan, "energy_source": why}
    tree = made("one", [(1, none, {})])
    assert CHARTS in sections_of(tree) and f"Energy: {why}" in text_of(tree)
    tree = made("failed", [failed("oom", "at step 0"), failed("oom", "at step 0", seq=9)])
    assert sections_of(tree) == ALWAYS | {"Left out"}
    left = text_of(next(e for e in tree.iter("section") if e.get("aria-labelledby") == "left-out"))
    assert all(f"{title}: " in left for title in OF_VALID), left


def check_many():
    """More than a page may hold, over several axes: it says what it does not draw."""
    axes = ("tawpipe", "tawpipe:cco=off", "fsdp"), (64, 1024), ("fp32", "bf16")
    cases = [dict(zip(("schedule", "hidden", "dtype"), one)) for one in itertools.product(*axes)]
    with mock.patch.object(sections, "MOST_PANELS", 2):
        tree = made("many", [(0, case, {}) for case in cases])
    assert "2 panels more not drawn" in text_of(tree)
    assert len(re.findall(r"Case \d+: ", text_of(tree))) == 3, "a timeline of each schedule"


def check_texts():
    """Texts that try to be markup."""
    where = {"deck": EVIL, "environment": [f"OMP_X={EVIL}"], "devices": [EVIL] * 3}
    evil = {"schedule": EVIL, "data": EVIL}
    tree = made("texts", [(1, evil, {}), failed("error", EVIL, seq=3, **evil)], **where)
    assert text_of(tree).count(EVIL) > 8


def check_scaling():
    """Strong and weak scaling, with the efficiency that follows from the rates."""

    def case(ranks, micro_batches, rate, seq=128):
        columns = {"ranks": ranks, "micro_batches": micro_batches, "seq": seq}
        return 1, columns | {"tokens_per_s": rate, "tokens_per_s_rank": rate / ranks}, {}

    few = [case(1, 12, 1000.0), case(2, 12, 1400.0), case(2, 12, 1500.0), case(2, 24, 2100.0)]
    tables = tables_of(made("scaling", [*few, case(4, 6, 9.0, 256)]))
    rows = tables["Strong scaling"][1:] + tables["Weak scaling"][1:]
    assert ["|".join(row[1:]).replace("\u202f", "") for row in rows] == [
        "1|1+2|3072|1000|1.000|100.0 %",
        "2|1+2|3072|1500|1.500|75.0 %",
        "1|1+2|3072|1000|1.000|100.0 %",
        "2|1+2|6144|2100|2.100|105.0 %",
    ]


def check_wrong():
    """A case with a wrong loss has memory and time, but is in no chart."""
    verdict = {"status": "wrong", "verdict": "INVALID: wrong: x", "hidden": 1024}
    tree = made("wrong", [(0, {}, {}), (0, verdict, {})])
    for name in ("Parts of a step, mean over ranks", "Memory of the worst rank, and of others"):
        assert len(tables_of(tree)[name]) == 3, name
    titles = map(text_of, tree.iter("figcaption"))
    assert "Throughput" in titles, "panels of valid cases"


def check_several():
    """Two files with the same settings: their lines are told apart; each has its verdict and its
    sentence on the slowest rank."""
    other = files.make(SAMPLE, "other.h5", [(i, {}, {}) for i in range(4)])
    runs = load_all([SAMPLE, other])
    runs.file[0].slowest, runs.file[7].slowest = "rank 1 is slow", ""
    tree = tree_of(write_page(runs))
    shown = text_of(tree)
    assert "A: Rank 1 is slow." in shown and "B: Rank" not in shown and "tawpipe (B)" in shown
    assert len(tables_of(tree)["All cases"]) == 12
    assert all(f"{words} cases" in shown for words in ("A: sample.h5, 7", "B: other.h5, 4"))


def check_origin():
    """Of several sessions: all versions and devices, the largest job, the first and the last
    day."""
    book = Book(load(SAMPLE))
    names = "version", "git_hash", "started", "devices", "nodes"
    large = "1", "b", "2026-02-02", ["x"] * 4, [0, 0, 1, 1]
    small = "2", "a", "2026-03-03", ["y"], [0]
    first = "1", "b", "2026-01-01"
    book.sessions = [dict(zip(names, session)) for session in (large, small, first)]
    assert origin_of(book) == [
        "miniTaw 1 (b), 2 (a)",
        "4 ranks on 2 nodes: x, y",
        "2026-01-01 to 2026-03-03",
    ]


def check_provenance():
    """Of each session what it had for all and for each rank; the deck of a later one if no session
    before it had the same."""
    file = load(SAMPLE).file[0]
    facts = {"started": "today", "hosts": ["p", "q"], "cores": ["", "0-3"]}
    file.sessions = [facts | {"deck": deck, "environment": ["X=" + deck]} for deck in "aab"]
    texts = session_texts(file)
    assert texts["environment"].split("\n\n")[2].splitlines() == [
        "== session 2, started today",
        "started          today",
        "rank 0           hosts p",
        "rank 1           hosts q, cores 0-3",
        "X=b",
    ]
    assert (texts["deck.toml"], texts["deck-0002.toml"], len(texts)) == ("a", "b", 3), texts


# Charts.


def check_charts():
    """Bars are as long, and lines and whiskers as high, as the numbers that they stand for: of
    cases 4 and 5, at the longest sequence."""
    book = Book(load(SAMPLE))
    every = [figure.axes[0] for figure in charts_of(book, book.valid).values()]
    moved, rate, memory, parts = every
    assert [axes.get_title("left") or axes.get_xlabel() for axes in every] == [
        "sent between groups at 512 tokens [B/step]",
        "throughput [token/s], whiskers: quartiles",
        "memory of the worst rank [KiB]",
        "step at 512 tokens, mean over ranks [s]",
    ]
    sizes, shares = (60, 64, 68, 72, 76), (0.5, 0.125, 0.0625, 0.0625, 0.1875, 0.3125)
    for axes, lengths in ((moved, sizes), (parts, shares)):
        assert [bar.get_width() for bar in axes.patches] == numpy.repeat(lengths, 2).tolist()
    assert parts.patches[-1].get_x() == 0.9375, "one part begins where the one before ends"
    # Of each schedule the medians, then the ends of the whiskers.
    steps = (2.25, 3, 1.5, 2.75, 3.75, 1.75)
    expected = [[12 * seq / step for seq in (128, 256, 512)] for step in steps]
    assert numpy.allclose([line.get_ydata() for line in rate.lines], expected)
    assert [one.get_label() for one in rate.containers] == ["tawpipe", "ddp"]
    assert memory.lines[0].get_ydata().tolist() == [42323 / 1024] * 3


def check_looks():
    """The colour of a schedule follows from its name; options are shades of it. No two looks of a
    picture are the same, and lines of equal values lie beside each other."""
    names = [*drawing.SCHEDULES, "fsdp:unit=2"]
    styles, others = drawing.styles_of(names), drawing.styles_of(reversed(names))
    assert all(styles[name]["color"] == others[name]["color"] for name in names)
    for looks in (["color"], ["marker", "linestyle"]):
        different = {tuple(style[look] for look in looks) for style in styles.values()}
        assert len(different) == len(names), looks
    pairs = itertools.product(("fsdp", "ddp"), (400, 100, 105, 150))
    points = pandas.DataFrame(pairs, columns=["line", "x"])
    points = points.assign(predicted=False, value=1.0, low=math.nan, high=math.nan)
    (axes,) = charts.lines(points, styles, "y", "x").axes
    assert axes.lines[0].get_xdata().tolist() == [100, 105, 150, 400]
    assert axes.get_xticks().tolist() == [100, 150, 400], "marks do not lie over each other"
    places = [line.get_transform().transform((100, 1))[0] for line in axes.lines]
    assert places[1] - places[0] > 2, places


def of_ranks(ranks):
    """A file of one case, each rank of which sends to six others and does 100 things in a step."""
    sends, acts = numpy.repeat(range(ranks), 6), numpy.repeat(range(ranks), 100)
    arrays = {
        "memory/measured": numpy.ones((ranks, 7)),
        "idle_ticks": numpy.ones(ranks),
        "bytes/from": sends,
        "bytes/to": (sends + numpy.tile(range(1, 7), ranks)) % ranks,
        **{f"bytes/{name}": 1 + 0 * sends for name in ("kind", "planned", "counted")},
        **{f"timeline/{name}": 0 * acts for name in sealed.opened(SAMPLE)["runs/0000/timeline"]},
        "timeline/rank": acts,
        "timeline/end": 1 + acts,
    }
    groups = "+".join(["8"] * (ranks // 8))
    return files.make(SAMPLE, f"{ranks}.h5", [(0, {"ranks": ranks, "groups": groups}, arrays)])


def check_many_ranks():
    """Memory grows no faster than the ranks, and a file is not held in it."""
    peaks = []
    for path in map(of_ranks, (640, 2560)):
        tracemalloc.start()
        book = Book(load(path))
        assert tracemalloc.get_traced_memory()[1] < Path(path).stat().st_size / 2
        for name in ("traffic", "time", "memory", "provenance"):
            assert sections.SECTIONS[name](book), name
        assert len(measured_timeline(book.cases.iloc[0]).events) == 32 * 100
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 6 * peaks[0], peaks  # of the square: 16 times


run_checks(globals())
