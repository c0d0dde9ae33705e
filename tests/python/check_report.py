# SPDX-License-Identifier: BSD-3-Clause
"""scripts/report: the page is sound whatever the file, its numbers are the file's,
and it says clearly when it cannot be written. The figures themselves are looked at in
check_browser.py."""

import base64
import functools
import math
import pathlib
import re
import xml.etree.ElementTree as ElementTree
from unittest import mock

from support import FOLDER, SAMPLE, accepted, process, refused, run_checks
import files
import numpy
from minitaw import charts, drawing, sealed, sections, timeline
from minitaw.book import Book
from minitaw.provenance import session_texts
from minitaw.record import load, load_all
from minitaw.report import origin_of
from minitaw.report import page as write_page
from minitaw.sections import charts_of

CHARTS = "Bytes, throughput, memory and time"
ALWAYS = {"Cases", "Provenance"}
OF_VALID = {CHARTS, "Bytes moved", "Where the time went", "Memory", "Timelines", "Energy"}
EVIL = "<script>alert('x')</script> & \"quotes\" \x1b[31m ]]> -->"

# What a page must be, whatever is in it: read by programs of the standard library.
SVG = "{http://www.w3.org/2000/svg}"
FOREIGN = re.compile(
    r'https?:|//[a-z]|@import|url\((?!#)|href="(?!#)|<script|<link|<iframe|\bsrc=|\bon[a-z]+=',
    re.IGNORECASE,
)


def text_of(element):
    return re.sub("[ \n]+", " ", "".join(element.itertext()).replace("\u200b", "")).strip()


def tree_of(text):
    """The page as a tree, after the checks that hold for every page."""
    assert text.startswith("<!DOCTYPE html>\n"), text[:40]
    tree = ElementTree.fromstring(text.split("\n", 1)[1])
    check_markup(text)
    check_references(tree)
    for figure in tree.iter("figure"):
        check_figure(figure)
    return tree


def check_markup(text):
    """Texts of a file may name whatever they like; only markup and style are searched."""
    markup = "".join(re.findall(r"<style>.*?</style>|<[^>]*>", text, re.DOTALL))
    images = r'((aria-label|alt)="[^"]*")|(src="data:image/svg[+]xml;base64,[^"]*")'
    found = FOREIGN.search(re.sub(images, "", markup))
    assert not found, f"the page reaches out: {found}"


def check_references(tree):
    ids = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(ids) == len(set(ids)), "an id is used twice"
    assert {link.get("href") for link in tree.iter("a")} <= {f"#{one}" for one in ids}


def drawing_of(image):
    return base64.b64decode(image.get("src").removeprefix("data:image/svg+xml;base64,"))


def check_figure(figure):
    """A title, which is the label of the drawing too, and an axis with a unit; no coordinate that
    is none."""
    title, (image,) = text_of(figure.find("figcaption")), figure.iter("img")
    assert title and image.get("alt") == title, title
    drawn = ElementTree.fromstring(drawing_of(image))
    texts = " ".join(text_of(text) for text in drawn.iter(SVG + "text"))
    assert re.search(r"\[[^\]]+\]|since the step began|ranks", texts), (title, texts)
    for element in drawn.iter():
        places = [element.get(key, "") for key in ("x", "y", "width", "height", "d", "transform")]
        assert not re.search(r"\b(nan|inf)\b", " ".join(places)), (title, places)


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
def report(*names):
    """The page as a tree and as text, without a new process: that takes longer than the page. It is
    kept for check_browser.py."""
    text = write_page(load_all(names))
    stems = "-".join(pathlib.Path(name).stem for name in names)
    (FOLDER / f"{stems}.html").write_text(text, encoding="utf-8")
    return tree_of(text), text


def check_program():
    """As users call it; the same file gives the same page, byte for byte."""
    target = FOLDER / "called.html"
    assert process("report", SAMPLE, "-o", target).stdout == f"{target}\n"
    assert target.read_text(encoding="utf-8") == report(SAMPLE)[1]
    target.unlink()


# Numbers.

UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "%": 0.01, "B": 1, "KiB": 2**10, "MiB": 2**20}
# Tables by caption; a table leaves out a column in which no case has a figure.
FIGURES = {
    "All cases": "bytes_between tokens_per_s median_s spread memory_measured exposed_share "
    "idle_share mfu",
    "More figures": "bytes_inside rate_between rate_inside overlap tflops_causal tflops_rank "
    "last_loss gradient_error",
}


def agrees(text, value):
    """Four digits of "12 407 MiB"; one of an error."""
    number, _, unit = text.partition(" ")
    found = float(number.replace("\u202f", "")) * UNITS.get(unit, 1)
    near = 0.5 if "e-" in text else 1.01e-3
    return abs(found - value) <= near * abs(value) + 0.0005 * (unit == "%")


def check_numbers(path, tree):
    """Every figure of the tables of cases is the file's, rounded, of files with one repetition."""
    with sealed.opened(str(path)) as file:
        runs = {
            name: list(one.asstr()[:] if files.is_text(one) else one[:])
            for name, one in file["runs"].items()
            if hasattr(one, "dtype")
        }
    for caption, names in FIGURES.items():
        rows = tables_of(tree)[caption][1:]
        ended = numpy.array(runs["median_s"]) > 0
        known = [name for name in names.split() if numpy.isfinite(runs[name])[ended].any()]
        assert len(rows) == len(runs["case"])
        for i, (named, *cells) in enumerate(rows):
            verdict = runs["verdict"][i]
            mark = "✔" if verdict == "VALID" else "!" if verdict.startswith("VALID") else "✘"
            schedule = " ".join(runs["schedule"][i].replace("\x1b", "\ufffd").split())
            assert named.startswith(f"{mark} {i} {schedule}"), named
            for name, cell in zip(known, cells, strict=True):
                value = runs[name][i]
                there = math.isfinite(value) and ended[i]
                assert agrees(cell, value) if there else cell == "–", (name, cell, value)


def made(name, cases, **session):
    """The page of a file that is made of runs of the sample, with its numbers checked."""
    path = files.make(SAMPLE, FOLDER / f"{name}.h5", cases, session)
    tree, text = report(path)
    check_numbers(path, tree)
    return tree, text


def check_row(tree, caption, expected):
    """The row of case 4."""
    (row,) = (row for row in tables_of(tree)[caption] if row[0].startswith("! 4 tawpipe"))
    assert all(map(agrees, row[1:], expected)) and len(row) == 1 + len(expected), (row, expected)


def check_sample():
    tree, text = report(SAMPLE)
    assert sections_of(tree) == ALWAYS | OF_VALID | {"Left out"}, sections_of(tree)
    check_numbers(SAMPLE, tree)
    # tests/record/sample.hpp: bytes 0 to 44 in the order of sender, receiver, kind; groups 1+2.
    sent = numpy.arange(45).reshape(3, 3, 5)
    crosses = numpy.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]], bool)
    for where, chosen in (("between", crosses), ("inside", ~crosses)):
        kinds = sent[chosen].sum(axis=0)
        caption = f"Bytes {where} groups of a step, all ranks together"
        check_row(tree, caption, [kinds.sum(), *kinds])
    check_row(
        tree,
        "Parts of a step, mean over ranks",
        [0.5, 0.125, 0.0625, 0.0625, 0.1875, 0, 0.3125],
    )
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
    tree, _ = made("ranks", [(0, {"bytes_between": 0, "groups": "3"}, arrays)])
    head, row = tables_of(tree)["Memory of the worst rank, and of others"]
    kinds = "weights gradients optimiser activations buffers tokens context".split()
    assert head[1:] == ["worst rank", *kinds, "median rank", "least", "ticks without work"]
    sizes = [206, 1, 200, 1, 1, 1, 1, 1, 106, 9]
    assert row[1:] == [*(f"{size} B" for size in sizes), "1.00 of 17"], row
    assert not any(caption.startswith("Bytes between") for caption in tables_of(tree))


def check_repetitions():
    """A case with several: a row with medians; whiskers from the slowest to the fastest; a lost one
    makes it invalid."""
    rates = [100.0, 400.0, 200.0]
    runs = [
        (0, {"case": 0, "repetition": i, "repeats": 3, "tokens_per_s": rate, "seq": 128}, {})
        for i, rate in enumerate(rates)
    ]
    runs += [(0, {"case": 1, "repeats": 2, "seq": 256}, {})]
    runs += [(0, {"case": 2}, {}), failed("oom", "late", case=2, repetition=1)]
    path = files.make(SAMPLE, FOLDER / "repeated.h5", runs)
    tree, _ = report(path)
    first, second, third = tables_of(tree)["All cases"][1:]
    assert first[0].startswith("! 0") and first[2] == "200.0", first
    assert second[0].startswith("✘ 1") and third[0].startswith("✘ 2"), (second, third)
    assert "INVALID: 1 of 2 repetitions" in text_of(tree)
    book = Book(load(path))
    points = charts.points_of(book.valid, "tokens_per_s")
    assert points[["value", "low", "high"]].values.tolist() == [[200, 100, 400]], points
    (axes,) = charts_of(book, book.valid)["Throughput"].axes
    assert axes.get_xlabel() == "throughput [token/s], whiskers: repetitions"
    assert [line.get_xdata()[0] for line in axes.lines] == [100, 400], "ends of the whisker"


# Cases of all kinds.


def failed(status, reason, **changed):
    """The sample's run without figures, with another status."""
    verdict = f"INVALID: {status}: {reason}"
    return 6, {"status": status, "reason": reason, "verdict": verdict} | changed, {}


def check_statuses():
    """Cases with doubts, and some that failed: each of these with its reason, above the table."""
    noisy = "noisy: quartiles 31 % of the median apart"
    verdicts = [f"VALID ({noisy})", "VALID", f"VALID (no warm-up; {noisy})"]
    good = [(0, {"verdict": one, "seq": 1 << i}, {}) for i, one in enumerate(verdicts)]
    reasons = {"wrong": "loss differs", "timeout": "no lane moved for 300 s"}
    bad = [failed(*item, seq=256 << i) for i, item in enumerate(reasons.items())]
    tree, _ = made("statuses", [*good, *bad])
    (listed,) = (text_of(e) for e in tree.iter("ul") if e.get("class") == "failures")
    for i, (status, why) in enumerate(reasons.items()):
        assert f"{status}: {why} (case {i + 3} (" in listed, (status, listed)
    said = "5 cases: 3 ok, 1 wrong, 1 timeout. Valid with a doubt, noisy: 0; no warm-up and noisy:"
    assert f"{said} 2." in text_of(tree)


def check_few():
    """One case, without energy; none valid."""
    why = "unavailable: this machine counts none"
    none = {"energy": math.nan, "energy_per_token": math.nan, "energy_source": why}
    tree, _ = made("one", [(1, none, {})])
    assert CHARTS in sections_of(tree) and f"Energy: {why}" in text_of(tree)
    tree, _ = made("failed", [failed("oom", "at step 0"), failed("oom", "at step 0", seq=9)])
    assert sections_of(tree) == ALWAYS | {"Left out"}
    left = text_of(next(e for e in tree.iter("section") if e.get("aria-labelledby") == "left-out"))
    assert all(f"{title}: " in left for title in OF_VALID), left


def check_many():
    """More than a page may hold, over several axes: it says what it does not draw."""
    cases = [
        (0, {"schedule": schedule, "hidden": hidden, "dtype": dtype}, {})
        for schedule in ("tawpipe", "tawpipe:cco=off", "fsdp")
        for hidden in (64, 1024)
        for dtype in ("fp32", "bf16")
    ]
    with mock.patch.object(sections, "MOST_PANELS", 2):
        tree, _ = made("many", cases)
    assert "2 panels more not drawn" in text_of(tree)
    assert len(re.findall(r"Case \d+: ", text_of(tree))) == 3, "a timeline of each schedule"


def check_texts():
    """Texts that try to be markup."""
    where = {"deck": EVIL, "environment": [f"OMP_X={EVIL}"], "devices": [EVIL] * 3}
    evil = {"schedule": EVIL, "data": EVIL}
    tree, text = made("texts", [(1, evil, {}), failed("error", EVIL, seq=3, **evil)], **where)
    assert "<script" not in text and "\x1b" not in text
    assert text_of(tree).count(EVIL.replace("\x1b", "\ufffd")) > 8


def check_dots():
    """A timeline of very many actions is a picture of dots inside the page."""
    with mock.patch.object(timeline, "MOST_SHAPES", 3):
        text = write_page(load(SAMPLE))
    for tree, count in ((tree_of(text), 1), (report(SAMPLE)[0], 0)):
        dots = [drawing_of(image).count(b"data:image/png") for image in tree.iter("img")]
        assert sum(map(bool, dots)) == count, dots


def check_scaling():
    """Strong and weak scaling, with the efficiency that follows from the rates."""

    def case(ranks, micro_batches, rate, seq=128):
        columns = {"ranks": ranks, "groups": f"{ranks}", "replicas": 1, "seq": seq}
        columns |= {"micro_batch": 2, "micro_batches": micro_batches, "bytes_between": 0}
        rates = {"tokens_per_s": rate, "tokens_per_s_rank": rate / ranks}
        nothing = {f"bytes/{name}": [] for name in ("from", "to", "kind", "planned", "counted")}
        return 1, columns | rates, nothing

    few = [case(1, 12, 1000.0), case(2, 12, 1400.0), case(2, 12, 1500.0), case(2, 24, 2100.0)]
    path = files.make(SAMPLE, FOLDER / "scaling.h5", [*few, case(4, 6, 9.0, 256)])
    tree, _ = report(path)
    rows = [tables_of(tree)[f"{kind} scaling"][1:] for kind in ("Strong", "Weak")]
    shown = ["|".join(row[1:]).replace("\u202f", "") for row in rows[0] + rows[1]]
    assert shown == [
        "1|1|3072|1000|1.000|100.0 %",
        "2|2|3072|1500|1.500|75.0 %",
        "1|1|3072|1000|1.000|100.0 %",
        "2|2|6144|2100|2.100|105.0 %",
    ]


def check_wrong():
    """A case with a wrong loss has memory and time, but is in no chart."""
    verdict = {"status": "wrong", "verdict": "INVALID: wrong: x", "hidden": 1024}
    tree, _ = made("wrong", [(0, {}, {}), (0, verdict, {})])
    for name in ("Parts of a step, mean over ranks", "Memory of the worst rank, and of others"):
        assert len(tables_of(tree)[name]) == 3, name
    assert "Throughput" in [
        text_of(one) for one in tree.iter("figcaption")
    ], "panels of valid cases"


def check_several():
    """Two files with the same settings: their lines are told apart; each has its verdict and its
    sentence on the slowest rank."""
    other = files.make(SAMPLE, FOLDER / "other.h5", [(i, {}, {}) for i in range(4)])
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
    first = {"version": "1", "git_hash": "b"}
    large = {"started": "2026-02-02", "devices": ["x"] * 4, "nodes": [0, 0, 1, 1]}
    small = {"started": "2026-03-03", "devices": ["y"], "nodes": [0]}
    book.sessions = [
        first | large,
        {"version": "2", "git_hash": "a"} | small,
        first | {"started": "2026-01-01"},
    ]
    assert origin_of(book) == [
        "miniTaw 1 (b), 2 (a)",
        "4 ranks on 2 nodes: x, y",
        "2026-01-01 to 2026-03-03",
    ]


def check_provenance():
    """Of each session what it had for all and for each rank; the deck of a later one if no session
    before it had the same."""
    file = load(SAMPLE).file[0]
    last = session_texts(file)["environment"].split("== session ")[3].splitlines()
    assert last[0].startswith("2, started 20"), last
    assert "command          minitaw run sample.toml" in last and "mpi              1.2" in last
    (third,) = (line for line in last if line.startswith("rank 2"))
    for words in ("hosts b", "nodes 1", "cores 0-1", "cpu another", "devices cpu"):
        assert words in third, third
    file.sessions = [{"deck": deck, "environment": [f"X={deck}"]} for deck in "aab"]
    texts = session_texts(file)
    assert texts["environment"].count("X=a\n") == 2
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
    assert memory.lines[0].get_xdata().tolist() == [128, 256, 512]


def check_looks():
    """The colour of a schedule follows from its name; options are shades of it. No two looks of a
    picture are the same, and lines of equal values lie beside each other."""
    names = [*drawing.SCHEDULES, "fsdp:unit=2"]
    styles, others = drawing.styles_of(names), drawing.styles_of(reversed(names))
    assert all(styles[name]["color"] == others[name]["color"] for name in names)
    for looks in (["color"], ["marker", "linestyle"]):
        different = {tuple(style[look] for look in looks) for style in styles.values()}
        assert len(different) == len(names), looks
    rows = [("fsdp", x, False, 1.0, math.nan, math.nan) for x in (400, 100, 105, 150)]
    points = charts.pandas.DataFrame(
        rows + [("ddp", *row[1:]) for row in rows],
        columns=["line", "x", "predicted", "value", "low", "high"],
    )
    (axes,) = charts.lines(points, styles, "y", "x").axes
    assert axes.lines[0].get_xdata().tolist() == [100, 105, 150, 400]
    assert axes.get_xticks().tolist() == [100, 150, 400], "marks do not lie over each other"
    places = [line.get_transform().transform((100, 1))[0] for line in axes.lines]
    assert places[1] - places[0] > 2, places


def check_refusals():
    full = FOLDER / "full/full.html"  # not among the pages that check_browser.py opens
    full.parent.mkdir(exist_ok=True)
    full.unlink(missing_ok=True)
    full.symlink_to("/dev/full")
    for output, says in (
        ("missing/page.html", "cannot be written"),
        (full, "cannot be written"),
        ("page.png", "must end in .html"),
    ):
        refused("report", SAMPLE, "-o", output, says=says)


run_checks(globals())
