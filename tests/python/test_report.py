# SPDX-License-Identifier: BSD-3-Clause
"""scripts/report: the page is sound whatever the file, and its numbers are the file's."""

import base64
import json
import math
import re
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy
import pandas
import pytest
import samples
from minitaw import record, report, screening, sections
from minitaw.book import Book, Table
from minitaw.charts import points_of
from minitaw.provenance import session_texts
from programs import MEMORY_KINDS, SAMPLE, output_of, refused, script
from python.test_rules import on_nodes, result_of

CHARTS = "Bytes, throughput, memory and time"
OF_VALID = [CHARTS, "Bytes moved", "Where the time went", "Memory", "Timelines", "Energy"]
EVIL = "<script>alert('x')</script> & \"quotes\" ]]> -->"


def text_of(element):
    return " ".join("".join(element.itertext()).replace("\u200b", "").split())


def page_of(path):
    """The page as a tree, which reaches out for nothing, and whose drawings have titles, units and
    no coordinate that is none; and the titles of its sections."""
    output_of(script("report", path, "-o", "page.html"))
    page = Path("page.html").read_text(encoding="utf-8")
    outside = r'<(script|link|iframe)|@import|url\(| on\w+="|(src|href)="(?!#|data:image/svg)'
    assert not re.search(outside, page)
    tree = xml.fromstring(page)
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert {link.get("href")[1:] for link in tree.iter("a")} <= {*ids}
    for figure in tree.iter("figure"):
        title, (image,) = text_of(figure.find("figcaption")), figure.iter("img")
        assert title
        assert image.get("alt") == title
        drawn = base64.b64decode(image.get("src").partition(",")[2])
        assert re.search(r"\[[^\]]+\]|since the step began", text_of(xml.fromstring(drawn))), title
        assert not re.search(rb'="[^"]*\b(nan|inf)\b', drawn), title
    return tree, {text_of(element) for element in tree.iter("h2")}


@pytest.fixture(scope="module")
def book():
    """Of the sample."""
    return Book(record.load(SAMPLE))


def book_of(*runs):
    return Book(samples.in_memory(*runs, sessions=[{}]))


def lines_of(table):
    """Label of a case, then its cells as a page shows them, without thin spaces."""
    rows = [" | ".join([case.label, *texts]) for case, texts in table.rows]
    return [row.replace("\u202f", "") for row in rows]


def test_the_page_of_the_sample():
    tree, titles = page_of(SAMPLE)
    assert titles == {"Cases", "Provenance", *OF_VALID, "Left out"}
    shown = text_of(tree)
    for words in (
        "RESULT: INVALID: 1 of 7 cases, first case 6",
        "figure of merit: 2730.67 tokens/s (tawpipe, ",
        "All cases share: 3 ranks, groups 1+2, ",
        "Case 4: tawpipe, 3 ranks in groups 1+2, 512 tokens",
        "The file has more, of cases 0, 2: ",
        "! 4 tawpipe 512 tokens",
        "✘ 6 tawpipe",
    ):
        assert words in shown
    refused(script("report", SAMPLE, "-o", "page.png"), "must end in .html", name="report")


def test_figures_of_a_case_are_those_of_the_file(book):
    """Of case 4; tests/record/sample.hpp: the pairs of ranks send 0 to 4, 5 to 9, ... 40 to 44."""
    names = "cases", "time", "traffic", "energy"
    every = [part for name in names for part in sections.SECTIONS[name](book)]
    assert [lines_of(part)[4] for part in every if isinstance(part, Table)] == [
        "4 | 340 B | 2731 | 2.250 s | 66.7 % | 41.33 KiB | 35.0 % | 25.0 %",
        "4 | 650 B | 0.0000001511 | 0.0000002889 | 33.3 % | 0.0005658 | 2.5000 | 1e-07",
        "4 | 500.0 ms | 125.0 ms | 62.50 ms | 62.50 ms | 187.5 ms | 0 µs | 312.5 ms",
        "4 | 340 B | 60 B | 64 B | 68 B | 72 B | 76 B",
        "4 | 650 B | 120 B | 125 B | 130 B | 135 B | 140 B",
        "4 | 600.0 | 0.1250 | made up 1.2",
    ]
    assert lines_of(every[2])[6] == "6" + 7 * " | –"


def test_memory_of_the_worst_the_median_and_the_least_rank():
    memory = [[100, *[1] * 6], [1, 200, *[1] * 5], [3, *[1] * 6]]
    file = samples.made("memory.h5", {"memory/measured": memory})
    (table,) = sections.memory_section(Book(record.load(file)))
    assert table.head == ["worst rank", *MEMORY_KINDS, "median rank", "least", "ticks without work"]
    sizes = "206 B | 1 B | 200 B | 1 B | 1 B | 1 B | 1 B | 1 B | 106 B | 9 B"
    assert lines_of(table) == [f"0 | {sizes} | 1.00 of 17"]


def failed(status, reason, **changed):
    return dict(status=status, reason=reason, verdict=f"INVALID: {status}: {reason}") | changed


def test_doubts_and_failures_are_told_with_their_reasons():
    runs = [dict(verdict=f"VALID ({doubt})") for doubt in ("noisy: a", "no warm-up; noisy: b")]
    runs += [failed("wrong", "loss differs"), dict(repeats=2)]
    runs += [dict(case=4), failed("oom", "late", case=4, repetition=1)]
    said, failures, *_ = sections.cases_section(book_of(*runs))
    assert [(word, why, which.split()[0]) for word, why, which in failures.rows] == [
        ("wrong", "loss differs", "2"),
        ("INVALID", "1 of 2 repetitions", "3"),
        ("oom", "late", "4"),
    ]
    doubts = "Valid with a doubt, noisy: 0; no warm-up and noisy: 1."
    assert said.startswith(f"5 cases: 3 ok, 1 wrong, 1 oom. {doubts}")


def test_texts_are_no_markup():
    """On a page without a valid case, which says what it leaves out."""
    evil = failed("error", EVIL, schedule=EVIL, data=EVIL, base=6)
    session = {"deck": EVIL, "environment": [f"OMP_X={EVIL}"], "devices": [EVIL] * 3}
    tree, titles = page_of(samples.made("page.h5", evil, **session))
    assert titles == {"Cases", "Provenance", "Left out"}
    shown = text_of(tree)
    assert shown.count(EVIL) > 8
    left = shown[shown.index("Left out") :]
    assert all(f"{title}: " in left for title in OF_VALID)


def test_without_energy_the_reason_is_told():
    book = book_of(dict(energy=math.nan, energy_source="unavailable: none"))
    assert sections.energy_section(book) == "unavailable: none"


def test_scaling_follows_from_rates():
    """The last one is of another length, with the tokens of the others."""
    names = ["ranks", "micro_batches", "seq", "tokens_per_s", "tokens_per_s_rank"]
    rows = [(2, 12, 128, 1000, 500), (4, 12, 128, 1400, 350), (4, 12, 128, 1500, 375)]
    rows += [(4, 24, 128, 2100, 525), (4, 6, 256, 9000, 2250)]
    runs = [dict(zip(names, row)) for row in rows]
    strong, weak = sections.SECTIONS["scaling"](book_of(*runs))
    assert lines_of(strong) + lines_of(weak) == [
        "0 | 2 | 1+2 | 3072 | 1000 | 1.000 | 100.0 %",
        "2 | 4 | 1+2 | 3072 | 1500 | 1.500 | 75.0 %",
        "0 | 2 | 1+2 | 3072 | 1000 | 1.000 | 100.0 %",
        "3 | 4 | 1+2 | 6144 | 2100 | 2.100 | 105.0 %",
    ]


def test_files_are_told_apart():
    """Each has a letter, and its sentence on the slowest rank."""
    runs = record.load_all([SAMPLE, SAMPLE])
    runs.file[0].slowest = "rank 1 is slow"
    runs.file[7].slowest = ""
    book = Book(runs)
    said, *_ = sections.cases_section(book)
    assert "A: Rank 1 is slow." in said
    assert "B: Rank" not in said
    assert [*book.cases.label][5:9] == ["A5", "A6", "B0", "B1"]
    assert {"tawpipe (A)", "tawpipe (B)"} <= set(book.cases.line)


def test_the_origin_has_all_programs_the_largest_job_and_the_days(book):
    large = dict(version="1", git_hash="b", devices=["x"] * 4, nodes=[0, 0, 1, 1], started="02-02")
    small = dict(version="2", git_hash="a", devices=["y"], nodes=[0], started="03-03")
    book.sessions = [large, small, dict(version="1", git_hash="b", started="01-01")]
    assert report.origin_of(book) == [
        "miniTaw 1 (b), 2 (a)",
        "4 ranks on 2 nodes: x, y",
        "01-01 to 03-03",
    ]


def test_provenance_has_facts_of_all_and_of_each_rank():
    """And the deck of a later session if no session before it had the same."""
    facts = dict(started="today", hosts=["p", "q"], cores=["", "0-3"])
    sessions = [facts | dict(deck=deck, environment=["X=" + deck]) for deck in "aab"]
    texts = session_texts(record.File("x", sessions=sessions, of_ranks={"hosts", "cores"}))
    assert " ".join(texts["environment"].split("\n\n")[2].split()) == (
        "== session 2, started today started today rank 0 hosts p rank 1 hosts q, cores 0-3 X=b"
    )
    assert (texts["deck.toml"], texts["deck-0002.toml"], len(texts)) == ("a", "b", 3)


# Results of a size of the run rules.


def head_of(*results):
    """Texts of the boxes, and the table of offers, of results that are made up."""
    runs = pandas.concat(results, ignore_index=True)
    for file, letter in zip(runs.file.unique(), "ABC"):
        file.path, file.letter = Path(f"{letter}.h5"), letter if len(results) > 1 else ""
    tree = xml.fromstring(report.page(runs))
    boxes = [text_of(box) for box in tree.iter("div") if "box" in box.get("class").split()]
    tables = [some for some in tree.iter("table") if some.find("caption/span").text == "Offers"]
    rows = [[text_of(cell) for cell in row] for some in tables for row in some.iter("tr")]
    return boxes, {title: cells for title, *cells in rows}


RATED = "small first.median_s=1.0 second.median_s=1.0"  # 1024 and 2048 tokens, then 4096 in 4 s


def test_the_head_is_the_rating_and_whether_it_is_official():
    (rating, result, _), offers = head_of(result_of(RATED))
    assert rating == "rating of small: 1290.16 tokens/s official: yes"
    assert result == "RESULT: VALID A.h5, 6 cases"
    assert offers == {}
    (rating, *_), _ = head_of(result_of(f"{RATED} seed=2 warmup=0"))
    says = "says VALID, step 1 s, but its samples and bytes say VALID (no warm-up), step 1 s"
    assert rating.endswith(f"official: no: run 0 {says}")
    (rating, *_), _ = head_of(result_of("small status='error'"))
    assert rating.startswith("rating of small: none official: no: ")
    (result, _), _ = head_of(result_of("small layers=3"))
    assert result.startswith("RESULT: VALID")


def test_the_head_has_the_network_figure():
    words = "8b ranks=256 replicas=8 recompute='block' first.schedule='fsdp:hierarchical=on'"
    (rating, *_), _ = head_of(on_nodes(words, devices=4))
    assert rating.endswith("official: yes network figure: 524288 tokens/s")


def test_offers_of_one_size_stand_side_by_side():
    slow, other, bad = (result_of(words) for words in ("small", "medium", f"{RATED} seed=2"))
    (rating, *_), offers = head_of(slow, bad)
    assert rating.startswith("rating of small of A: ")
    assert offers["file"] == ["B.h5", "A.h5"]
    assert offers["rank"] == ["1", "2"]
    assert offers["rating, tokens/s"][0] == "1 290.16"
    assert offers["official"] == ['no: case 0: seed is "2", small has "1"', "yes"]
    assert offers["network figure, tokens/s"] == ["–", "–"]
    assert head_of(slow, other)[1] == {}


# Screenings.


def screened(values, of="pairs of nodes", units="B/s", expected=None):
    """Of three nodes, where rank 1 is an adapter that was found to be slow."""
    quantity = dict(name="rate", units=units, of=of, values=values, expected=expected)
    evidence = dict(text="rate, in: less", quantity="rate, in")
    culprit = dict(kind="adapter", ranks=[1], text="adapter of node 1", evidence=[evidence])
    about = dict(
        verdict="FOUND: 1 culprit in 2 rounds", rounds=2, nodes=[1, 1, 1], load=0, load_by="others"
    )
    return about | dict(part="rank", culprits=[culprit], quantities=[quantity])


NO = None
PAIRS = [[NO, 5e6, 1e7], [5e6, NO, 5e6], [1e7, 5e6, NO]]


@pytest.mark.parametrize(
    ("units", "expected", "limits"),
    [("B/s", NO, (0, 80)), ("B/s", 2e7, (0, 160)), ("s", NO, (5e6, 1e7))],
)
def test_slow_pairs_are_slow_although_the_median_is(units, expected, limits):
    content = screened(PAIRS, units=units, expected=expected)
    quantity = screening.quantity_of(content["quantities"][0], content)
    axes, bar = screening.draw(quantity).axes
    (image,) = axes.images
    assert image.get_clim() == limits
    factor = 8e-6 if units == "B/s" else 1
    assert numpy.allclose(image.get_array().filled(0)[0], [0, 5e6 * factor, 1e7 * factor])
    assert bar.get_ylabel() == ("rate [Mbit/s]" if units == "B/s" else "rate [s]")
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("from rank", "to rank")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1", "2"]
    marked = {(mark.get_y() + 0.5, mark.get_x() + 0.5) for mark in axes.patches}
    assert marked == {(0, 1), (1, 0), (1, 2), (2, 1)}


STRANGE = [PAIRS, [[0] * 3] * 3, [[NO] * 3] * 3, [1e9, 0, NO], [0, 0, 0], [NO, NO, NO]]


@pytest.mark.parametrize("values", STRANGE)
@pytest.mark.parametrize("units", ["B/s", "s"])
def test_a_screening_is_a_page_with_its_verdict(values, units):
    Path("s.json").write_text(json.dumps(screened(values, units=units)))
    tree, titles = page_of("s.json")
    assert titles == {"Screening s"}
    shown = text_of(tree)
    assert "SCREENING: FOUND: 1 culprit in 2 rounds" in shown
    assert "adapter of node 1: rate, in: less" in shown


@pytest.mark.parametrize("text", ["{}", "[]", json.dumps(screened([[1]] * 2)), "nan"])
def test_what_is_no_screening_is_refused(text):
    Path("s.json").write_text(text)
    refused(script("report", "s.json"), "s.json is no output of minitaw screen", name="report")


# Charts, which are not drawn here.


def test_bars_and_lines_are_as_long_as_their_numbers(book):
    """Those of cases 4 and 5, at the longest sequence."""
    every = [figure.axes[0] for figure in sections.charts_of(book, book.valid).values()]
    moved, rate, memory, parts = every
    assert moved.get_xlabel() == "sent between groups at 512 tokens [B/step]"
    assert rate.get_title("left") == "throughput [token/s], whiskers: quartiles"
    assert memory.get_title("left") == "memory of the worst rank [KiB]"
    sizes, shares = (60, 64, 68, 72, 76), (0.5, 0.125, 0.0625, 0.0625, 0.1875, 0.3125)
    for axes, lengths in ((moved, sizes), (parts, shares)):
        assert [bar.get_width() for bar in axes.patches] == numpy.repeat(lengths, 2).tolist()
    assert parts.patches[-1].get_x() == 0.9375  # one part begins where the one before ends
    # Of each schedule the medians, then the ends of the whiskers.
    steps = (2.25, 3, 1.5, 2.75, 3.75, 1.75)
    expected = [[12 * seq / step for seq in (128, 256, 512)] for step in steps]
    assert numpy.allclose([line.get_ydata() for line in rate.lines], expected)
    assert memory.lines[0].get_ydata().tolist() == [42323 / 1024] * 3


def test_whiskers_of_repetitions_reach_from_the_slowest_to_the_fastest():
    rates = enumerate((100.0, 400.0, 200.0))
    runs = (dict(case=0, repetition=i, repeats=3, tokens_per_s=rate) for i, rate in rates)
    ((*_, value, low, high),) = points_of(book_of(*runs).valid, "tokens_per_s").values
    assert (value, low, high) == (200, 100, 400)
