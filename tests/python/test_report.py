# SPDX-License-Identifier: BSD-3-Clause
"""scripts/report: the page is sound whatever the file, and its numbers are the file's."""

import base64
import itertools
import math
import re
import tracemalloc
import xml.etree.ElementTree as xml
from pathlib import Path
from unittest import mock

import numpy
import pandas
import pytest
import samples
from minitaw import charts, drawing, record, report, sealed, sections
from minitaw.book import Book
from minitaw.events import measured_timeline
from minitaw.provenance import session_texts
from programs import MEMORY_KINDS, SAMPLE, output_of, refused, script

CHARTS = "Bytes, throughput, memory and time"
OF_VALID = [CHARTS, "Bytes moved", "Where the time went", "Memory", "Timelines", "Energy"]
EVIL = "<script>alert('x')</script> & \"quotes\" ]]> -->"
IMAGE = "data:image/svg+xml;base64,"


def text_of(element):
    return re.sub("[ \n]+", " ", "".join(element.itertext()).replace("\u200b", "")).strip()


def page_of(*runs, **session):
    """The page of runs of the sample as a tree, which reaches out for nothing, and whose drawings
    have titles, units and no coordinate that is none."""
    path = samples.make(SAMPLE, "page.h5", runs, session) if runs else SAMPLE
    output_of(script("report", path, "-o", "page.html"))
    doctype, markup = Path("page.html").read_text(encoding="utf-8").split("\n", 1)
    assert doctype == "<!DOCTYPE html>"
    tree = xml.fromstring(markup)
    assert not re.search(r"//|@import|url\(", text_of(tree.find("head/style")))
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for element in tree.iter():
        assert element.tag not in ("script", "link", "iframe")
        assert not any(name.startswith("on") for name in element.keys())
        assert element.get("href", "#" + ids[0]).removeprefix("#") in ids
        assert element.get("src", IMAGE).startswith(IMAGE)
    for figure in tree.iter("figure"):
        title, (image,) = text_of(figure.find("figcaption")), figure.iter("img")
        assert title and image.get("alt") == title
        drawn = base64.b64decode(image.get("src").removeprefix(IMAGE))
        assert re.search(r"\[[^\]]+\]|since the step began", text_of(xml.fromstring(drawn))), title
        assert not re.search(rb'="[^"]*\b(nan|inf)\b', drawn), title
    return tree


def headings(tree):
    return {text_of(element) for element in tree.iter("h2")}


def book_of(*runs):
    return Book(record.load(samples.make(SAMPLE, "book.h5", runs) if runs else SAMPLE))


def rows_of(table):
    """Label of a case, then its cells as a page shows them, without thin spaces."""
    return [[case.label, *(text.replace("\u202f", "") for text in row)] for case, row in table.rows]


def test_the_page_of_the_sample():
    tree = page_of()
    assert headings(tree) == {"Cases", "Provenance", *OF_VALID, "Left out"}
    shown = text_of(tree)
    for words in (
        "RESULT: INVALID: 1 of 7 cases, first case 6",
        "Rank 2 is slowest in 6 runs.",
        "figure of merit: 2730.67 tokens/s (tawpipe, ",
        "All cases share: 3 ranks, groups 1+2, ",
        "Case 4: tawpipe, 3 ranks in groups 1+2, 512 tokens",
        "The file has more, of cases 0, 2: ",
        "! 4 tawpipe 512 tokens",
        "✘ 6 tawpipe",
    ):
        assert words in shown
    first = Path("page.html").read_bytes()
    output_of(script("report", SAMPLE, "-o", "again.html"))
    assert Path("again.html").read_bytes() == first
    refused(script("report", SAMPLE, "-o", "page.png"), "must end in .html", name="report")


UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "%": 0.01, "B": 1, "KiB": 2**10, "MiB": 2**20}


def agrees(text, value):
    """Four digits of "12407 MiB"; one of an error."""
    number, _, unit = text.partition(" ")
    found = float(number) * UNITS.get(unit, 1)
    return abs(found - value) <= (0.5 if "e-" in text else 1.01e-3) * abs(value) + 5e-4 * (
        unit == "%"
    )


def test_every_figure_of_a_case_is_that_of_the_file():
    """Rounded; none of one that failed."""
    *_, first, second = sections.cases_section(book_of())
    with sealed.opened(SAMPLE) as file:
        runs = {name: one[:] for name, one in record.columns_of(file["runs"]).items()}
    for table, names in ((first, sections.FIGURES), (second, sections.MORE_FIGURES)):
        known = [name for name in names if numpy.isfinite(runs[name]).any()]
        assert len(table.rows) == 7
        for i, (_, *cells) in enumerate(rows_of(table)):
            for name, cell in zip(known, cells, strict=True):
                value = runs[name][i]
                there = math.isfinite(value) and runs["median_s"][i] > 0
                assert agrees(cell, value) if there else cell == "–", (name, cell, value)


def test_parts_of_a_step_and_kinds_of_bytes():
    """Of case 4; tests/record/sample.hpp: the pairs of ranks send 0 to 4, 5 to 9, ... 40 to 44."""
    book = book_of()
    (step,), (between, inside) = sections.time_section(book), sections.traffic_section(book)
    for table, figures in (
        (step, [0.5, 0.125, 0.0625, 0.0625, 0.1875, 0, 0.3125]),
        (between, [340, 60, 64, 68, 72, 76]),
        (inside, [650, 120, 125, 130, 135, 140]),
    ):
        label, *cells = rows_of(table)[4]
        assert label == "4" and len(cells) == len(figures)
        assert all(map(agrees, cells, figures)), cells
    (energy,) = sections.energy_section(book)
    assert rows_of(energy)[0] == ["0", "600.0", "0.1250", "made up 1.2"]


def test_memory_of_the_worst_the_median_and_the_least_rank():
    memory = [[100, *[1] * 6], [1, 200, *[1] * 5], [3, *[1] * 6]]
    arrays = {"memory/measured": memory, "idle_ticks": [0, 1, 2]}
    (table,) = sections.memory_section(book_of((0, {}, arrays)))
    assert table.head == ["worst rank", *MEMORY_KINDS, "median rank", "least", "ticks without work"]
    sizes = [206, 1, 200, 1, 1, 1, 1, 1, 106, 9]
    assert rows_of(table) == [["0", *(f"{size} B" for size in sizes), "1.00 of 17"]]


def failed(status, reason, **changed):
    """The sample's run without figures, with another status."""
    verdict = f"INVALID: {status}: {reason}"
    return 6, {"status": status, "reason": reason, "verdict": verdict} | changed, {}


def test_doubts_and_failures_are_told_with_their_reasons():
    verdicts = ["VALID (noisy: a)", "VALID", "VALID (no warm-up; noisy: b)"]
    good = [(0, {"verdict": one, "seq": 1 << i}, {}) for i, one in enumerate(verdicts)]
    bad = [failed("wrong", "loss differs", seq=256), failed("timeout", "no lane moved", seq=512)]
    again = [(0, {"case": 5}, {}), failed("oom", "late", case=5, repetition=1)]
    lost = (0, {"case": 6, "repeats": 2}, {})
    said, failures, *_ = sections.cases_section(book_of(*good, *bad, *again, lost))
    assert [(word, why, which.split()[0]) for word, why, which in failures.rows] == [
        ("wrong", "loss differs", "3"),
        ("timeout", "no lane moved", "4"),
        ("oom", "late", "5"),
        ("INVALID", "1 of 2 repetitions", "6"),
    ]
    counts = "7 cases: 4 ok, 1 wrong, 1 timeout, 1 oom."
    doubts = " Valid with a doubt, noisy: 0; no warm-up and noisy: 2."
    assert said.startswith(counts + doubts)


def test_a_page_without_a_valid_case_says_what_it_leaves_out():
    tree = page_of(failed("oom", "at step 0"), failed("oom", "at step 0", seq=9))
    assert headings(tree) == {"Cases", "Provenance", "Left out"}
    (left,) = (e for e in tree.iter("section") if e.get("aria-labelledby") == "left-out")
    assert all(f"{title}: " in text_of(left) for title in OF_VALID)


def test_texts_are_no_markup():
    """And a case without energy says why."""
    where = {"deck": EVIL, "environment": [f"OMP_X={EVIL}"], "devices": [EVIL] * 3}
    evil = {"schedule": EVIL, "data": EVIL}
    why = {"energy": math.nan, "energy_source": "unavailable: none"}
    tree = page_of((1, evil | why, {}), failed("error", EVIL, seq=3, **evil), **where)
    assert text_of(tree).count(EVIL) > 8 and "Energy: unavailable: none" in text_of(tree)


def test_scaling_follows_from_rates():
    def case(ranks, micro_batches, rate, seq=128):
        columns = {"ranks": ranks, "micro_batches": micro_batches, "seq": seq}
        return 1, columns | {"tokens_per_s": rate, "tokens_per_s_rank": rate / ranks}, {}

    few = [case(1, 12, 1000.0), case(2, 12, 1400.0), case(2, 12, 1500.0), case(2, 24, 2100.0)]
    strong, weak = sections.SECTIONS["scaling"](book_of(*few, case(4, 6, 9.0, 256)))
    assert ["|".join(row[1:]) for row in rows_of(strong) + rows_of(weak)] == [
        "1|1+2|3072|1000|1.000|100.0 %",
        "2|1+2|3072|1500|1.500|75.0 %",
        "1|1+2|3072|1000|1.000|100.0 %",
        "2|1+2|6144|2100|2.100|105.0 %",
    ]


def test_files_are_told_apart():
    """Each has its verdict and its sentence on the slowest rank."""
    other = samples.make(SAMPLE, "other.h5", [(i, {}, {}) for i in range(4)])
    runs = record.load_all([SAMPLE, other])
    runs.file[0].slowest, runs.file[7].slowest = "rank 1 is slow", ""
    book = Book(runs)
    said, _, table, _ = sections.cases_section(book)
    assert "A: Rank 1 is slow." in said and "B: Rank" not in said
    assert [case.label for case, _ in table.rows][6:8] == ["A6", "B0"]
    assert {"tawpipe (A)", "tawpipe (B)"} <= set(book.cases.line)


def test_the_origin_has_all_programs_the_largest_job_and_the_days():
    book = book_of()
    names = "version", "git_hash", "started", "devices", "nodes"
    large = "1", "b", "2026-02-02", ["x"] * 4, [0, 0, 1, 1]
    small = "2", "a", "2026-03-03", ["y"], [0]
    first = "1", "b", "2026-01-01"
    book.sessions = [dict(zip(names, session)) for session in (large, small, first)]
    assert report.origin_of(book) == [
        "miniTaw 1 (b), 2 (a)",
        "4 ranks on 2 nodes: x, y",
        "2026-01-01 to 2026-03-03",
    ]


def test_provenance_has_facts_of_all_and_of_each_rank():
    """And the deck of a later session if no session before it had the same."""
    file = record.load(SAMPLE).file[0]
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
    assert (texts["deck.toml"], texts["deck-0002.toml"], len(texts)) == ("a", "b", 3)


# Charts, which are not drawn here.


def test_bars_and_lines_are_as_long_as_their_numbers():
    """Those of cases 4 and 5, at the longest sequence."""
    book = book_of()
    every = [figure.axes[0] for figure in sections.charts_of(book, book.valid).values()]
    assert [axes.get_title("left") or axes.get_xlabel() for axes in every] == [
        "sent between groups at 512 tokens [B/step]",
        "throughput [token/s], whiskers: quartiles",
        "memory of the worst rank [KiB]",
        "step at 512 tokens, mean over ranks [s]",
    ]
    moved, rate, memory, parts = every
    sizes, shares = (60, 64, 68, 72, 76), (0.5, 0.125, 0.0625, 0.0625, 0.1875, 0.3125)
    for axes, lengths in ((moved, sizes), (parts, shares)):
        assert [bar.get_width() for bar in axes.patches] == numpy.repeat(lengths, 2).tolist()
    assert parts.patches[-1].get_x() == 0.9375  # one part begins where the one before ends
    # Of each schedule the medians, then the ends of the whiskers.
    steps = (2.25, 3, 1.5, 2.75, 3.75, 1.75)
    expected = [[12 * seq / step for seq in (128, 256, 512)] for step in steps]
    assert numpy.allclose([line.get_ydata() for line in rate.lines], expected)
    assert [one.get_label() for one in rate.containers] == ["tawpipe", "ddp"]
    assert memory.lines[0].get_ydata().tolist() == [42323 / 1024] * 3


def test_whiskers_of_repetitions_reach_from_the_slowest_to_the_fastest():
    """A case with a wrong loss is in no chart."""
    runs = [
        (0, {"case": 0, "repetition": i, "repeats": 3, "tokens_per_s": rate}, {})
        for i, rate in enumerate((100.0, 400.0, 200.0))
    ]
    book = book_of(*runs, (1, {"case": 1, "verdict": "INVALID: wrong"}, {}))
    (axes,) = sections.charts_of(book, book.valid)["Throughput"].axes
    assert axes.get_xlabel() == "throughput [token/s], whiskers: repetitions"
    ends = [line.get_xdata()[0] for line in axes.lines]
    assert [one.get_width() for one in axes.patches] + ends == [200, 100, 400]
    assert len(sections.time_section(book)[0].rows) == 2  # but its time is known


def test_more_charts_than_a_page_holds_are_counted():
    values = ("tawpipe", "tawpipe:cco=off", "fsdp"), (64, 1024), ("fp32", "bf16")
    cases = [dict(zip(("schedule", "hidden", "dtype"), one)) for one in itertools.product(*values)]
    book = book_of(*((0, case, {}) for case in cases))
    with mock.patch.multiple(sections, MOST_PANELS=1, as_image=lambda drawn: IMAGE):
        pictures, said = sections.charts_section(book)
        timelines, _ = sections.timelines_section(book)
    assert len(pictures) == 4 and said.startswith("3 panels more not drawn")
    assert len(timelines) == 3, "one of each schedule"


def test_looks_tell_schedules_apart():
    """The colour follows from the name; options are shades of it. No two looks of a picture are the
    same."""
    names = [*drawing.SCHEDULES, "fsdp:unit=2"]
    styles, others = drawing.styles_of(names), drawing.styles_of(reversed(names))
    assert all(styles[name]["color"] == others[name]["color"] for name in names)
    for looks in (["color"], ["marker", "linestyle"]):
        assert len({tuple(style[look] for look in looks) for style in styles.values()}) == len(
            names
        )


def test_lines_of_equal_values_lie_beside_each_other():
    """Sorted, and marks of the axis not over each other."""
    pairs = itertools.product(("fsdp", "ddp"), (400, 100, 105, 150))
    points = pandas.DataFrame(pairs, columns=["line", "x"])
    points = points.assign(predicted=False, value=1.0, low=math.nan, high=math.nan)
    (axes,) = charts.lines(points, drawing.styles_of(points.line), "y", "x").axes
    assert axes.lines[0].get_xdata().tolist() == [100, 105, 150, 400]
    assert axes.get_xticks().tolist() == [100, 150, 400]
    places = [line.get_transform().transform((100, 1))[0] for line in axes.lines]
    assert places[1] - places[0] > 2


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
    return samples.make(SAMPLE, f"{ranks}.h5", [(0, {"ranks": ranks, "groups": groups}, arrays)])


def test_memory_grows_no_faster_than_the_ranks():
    """And a file is not held in it."""
    peaks = []
    for path in map(of_ranks, (640, 2560)):
        tracemalloc.start()
        book = Book(record.load(path))
        assert tracemalloc.get_traced_memory()[1] < Path(path).stat().st_size / 2
        for name in ("traffic", "time", "memory", "provenance"):
            assert sections.SECTIONS[name](book), name
        assert len(measured_timeline(book.cases.iloc[0]).events) == 32 * 100
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 6 * peaks[0]  # of the square: 16 times
