# SPDX-License-Identifier: BSD-3-Clause
"""scripts/report: the page or picture is sound whatever the file, its numbers are the file's,
and it says clearly when it cannot be written. The figures themselves are looked at in
check_browser.py."""

import base64
import functools
import math
import pathlib
import re
import xml.etree.ElementTree as ElementTree
from unittest import mock

from support import FOLDER, REPOSITORY, SAMPLE, accepted, process, refused, run_checks
import files
import numpy
from minitaw import charts, drawing, scaling, timeline
from minitaw.book import Book
from minitaw.numbers import byte_unit, count_text, seconds_text
from minitaw.provenance import session_texts
from minitaw.record import load_all
from minitaw.report import page as write_page
from minitaw.report import top
from minitaw.scaling import scaling_section
from minitaw.settings import shared_settings, telling

ALL = {
    "Cases",
    "Bytes, throughput, memory and time",
    "Bytes moved",
    "Where the time went",
    "Memory",
    "Timelines",
    "Energy",
    "Provenance",
}
EVIL = "<script>alert('x')</script> & \"quotes\" \x1b[31m ]]> -->"

# What a page must be, whatever is in it: read by programs of the standard library.
SVG = "{http://www.w3.org/2000/svg}"
FOREIGN = re.compile(
    r'https?:|//[a-z]|@import|url\((?!#)|href="(?!#)|<script|<link|<iframe|\bsrc=|\bon[a-z]+=',
    re.IGNORECASE,
)


def text_of(element):
    return "".join(element.itertext())


def tree_of(text):
    """The page as a tree, after the checks that hold for every page."""
    assert text.startswith("<!DOCTYPE html>\n"), text[:40]
    tree = ElementTree.fromstring(text.split("\n", 1)[1])
    check_markup(text)
    check_structure(tree)
    for figure in tree.iter("figure"):
        check_figure(figure)
    return tree


def check_markup(text):
    """Texts of a file may name whatever they like; only markup and style are searched."""
    markup = "".join(re.findall(r"<[^>]*>", text)) + "".join(
        re.findall(r"<style>.*?</style>", text, re.DOTALL)
    )
    markup = re.sub(
        r'((aria-label|alt)="[^"]*")|(src="data:image/svg[+]xml;base64,[^"]*")', "", markup
    )
    found = FOREIGN.search(markup)
    assert not found, f"the page reaches out: {markup[max(0, found.start() - 40):found.end() + 40]}"


def check_structure(tree):
    assert tree.get("lang") == "en" and text_of(tree.find("head/title"))
    assert any(meta.get("name") == "viewport" for meta in tree.iter("meta"))
    ids = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(ids) == len(set(ids)), "an id is used twice"
    for link in tree.iter("a"):
        assert link.get("href").startswith("#") and link.get("href")[1:] in ids, link.get("href")
    for table in tree.iter("table"):
        assert table.find("caption") is not None and all(
            th.get("scope") for th in table.iter("th")
        ), "a table without caption or scopes"


def drawing_of(image):
    return base64.b64decode(image.get("src").removeprefix("data:image/svg+xml;base64,"))


def check_figure(figure):
    """A title, which is the label of the drawing too, and an axis with a unit; no coordinate that
    is none."""
    title, (image,) = text_of(figure.find("figcaption")), figure.iter("img")
    assert title and image.get("alt") == title, title
    drawing = ElementTree.fromstring(drawing_of(image))
    texts = [text_of(text) for text in drawing.iter(SVG + "text")]
    assert any(
        re.search(r"\[[^\]]+\]|since the step began|ranks|relative to", text) for text in texts
    ), f"{title}: no unit on an axis, {texts}"
    for element in drawing.iter():
        for key in ("x", "y", "width", "height", "d", "transform"):
            assert not re.search(
                r"\b(nan|inf)\b", element.get(key) or ""
            ), f"{title}: {key}={element.get(key)}"


def sections_of(tree):
    return {text_of(e) for e in tree.iter("h2")}


def rows_of(tree, caption):
    """Rows of a table as lists of cells."""
    for table in tree.iter("table"):
        if text_of(table.find("caption")) == caption:
            return [list(row) for row in table.find("tbody")]
    return None


@functools.cache
def report(*names):
    """The page as a tree and as text, without a new process: that takes longer than the page. It is
    kept for check_browser.py."""
    text = write_page(load_all(names))
    (FOLDER / f"{'-'.join(pathlib.Path(name).stem for name in names)}.html").write_text(
        text, encoding="utf-8"
    )
    return tree_of(text), text


def check_program():
    """As users call it; the same file gives the same page, byte for byte."""
    target = FOLDER / "called.html"
    target.unlink(missing_ok=True)
    assert process("report", SAMPLE, "-o", target).stdout == f"{target}\n"
    assert target.read_text(encoding="utf-8") == report(SAMPLE)[1]
    target.unlink()


def number_in(text):
    """4 digits and more of "12 407 MiB"."""
    units = {
        "s": 1,
        "ms": 1e-3,
        "µs": 1e-6,
        "%": 0.01,
        "B": 1,
        "KiB": 2**10,
        "MiB": 2**20,
        "GiB": 2**30,
    }
    head, _, unit = text.partition(" ")
    return float(head.replace("\u202f", "")) * units.get(unit, 1)


# Tables by caption; a table leaves out a column in which no case has a figure.
FIGURES = {
    "All cases": [
        "bytes_between",
        "tokens_per_s",
        "median_s",
        "spread",
        "memory_measured",
        "exposed_share",
        "idle_share",
        "mfu",
    ],
    "More figures": [
        "bytes_inside",
        "rate_between",
        "rate_inside",
        "overlap",
        "tflops_causal",
        "tflops_rank",
        "last_loss",
        "gradient_error",
    ],
}
MODEL = ["layers", "hidden", "heads", "kv_heads", "vocab", "ffn"]


def agrees(text, value):
    return abs(number_in(text) - value) <= 1.01e-3 * abs(value) + (
        0.0005 if text.endswith("%") else 0
    )


def check_table(rows, summary, columns):
    assert len(rows) == len(summary["case"])
    known = summary["median_s"] > 0
    columns = [
        name for name in columns if known.any() and not numpy.isnan(summary[name][known]).all()
    ]
    for i, row in enumerate(rows):
        mark, label, named = text_of(row[0]).split(None, 2)
        verdict = summary["verdict"][i]
        assert int(label) == i, (label, named)
        assert named.replace("\u200b", "").startswith(
            summary["schedule"][i].replace("\x1b", "\ufffd")
        ), (label, named)
        assert mark == (
            "✔" if verdict == "VALID" else "!" if verdict.startswith("VALID") else "✘"
        ), (mark, verdict)
        assert len(row) == 1 + len(columns), (len(row), columns)
        for column, cell in zip(columns, row[1:]):
            value, text = float(summary[column][i]), text_of(cell)
            assert (text == "–") == (math.isnan(value) or not known[i]), (column, text, value)
            if column != "gradient_error" and text != "–":
                assert agrees(text, value), (column, text, value)


def check_numbers(name, tree):
    """Every figure of the table of cases is the file's, rounded; one figure of merit for each
    model."""
    with files.read(name) as file:
        summary = {
            key: column.asstr()[:] if column.attrs["units"] == "text" else column[:]
            for key, column in file["summary"].items()
        }
    for caption, columns in FIGURES.items():
        check_table(rows_of(tree, caption), summary, [name for name in columns if name in summary])
    best = {}
    for i, rate in enumerate(summary["tokens_per_s"]):
        if summary["verdict"][i].startswith("VALID"):
            model = tuple(summary[key][i] for key in MODEL)
            best[model] = max(best.get(model, 0), rate)
    merits = [text_of(e) for e in tree.iter("strong") if e.get("class") == "merit"]
    assert len(merits) == len(best) and all(map(agrees, merits, best.values())), (merits, best)


def check_row(tree, caption, expected):
    """The last cells of the row of case 4."""
    row = next(
        row for row in rows_of(tree, caption) if text_of(row[0]).split()[1:3] == ["4", "tawpipe"]
    )
    cells = [text_of(cell) for cell in row[-len(expected) :]]
    assert all(map(agrees, cells, expected)), (caption, cells, expected)


def made(name, cases, **provenance):
    """The page of a file that is made of cases of the sample, with its numbers checked."""
    path = files.make(SAMPLE, FOLDER / f"{name}.h5", cases, provenance)
    tree, text = report(path)
    check_numbers(path, tree)
    return tree, text


def check_sample():
    tree, text = report(SAMPLE)
    assert sections_of(tree) == ALL | {"Left out"}, sections_of(tree)
    check_numbers(SAMPLE, tree)
    assert "RESULT: INVALID: 1 of 7 cases, first case 6" in text_of(tree)
    assert "out of memory" in text
    with files.read(SAMPLE) as file:
        case = file["cases/0004"]
        counted, measured = case["bytes/counted"][:].astype(int), case["memory/measured"][:]
        ticks, idle = file["summary/ticks"][4], case["idle_ticks"][:].mean()
    same = [[(a == 0) == (b == 0) for b in range(3)] for a in range(3)]  # groups 1+2
    for where, inside in (("between", False), ("inside", True)):
        kinds = [
            sum(counted[a, b, k] for a in range(3) for b in range(3) if same[a][b] == inside)
            for k in range(5)
        ]
        check_row(tree, f"Bytes {where} groups of a step, all ranks together", [sum(kinds), *kinds])
    together = sorted(measured.sum(axis=1))
    check_row(
        tree,
        "Memory of the worst rank, and of others",
        [
            together[2],
            *measured[measured.sum(axis=1).argmax()],
            together[1],
            together[0],
            round(idle, 2),
        ],
    )
    assert f"{idle:.2f} of {ticks}" in text_of(tree)
    check_row(
        tree,
        "Parts of a step, mean over ranks",
        [0.5, 0.125, 0.0625, 0.0625, 0.1875, 0, 0.3125, 0.35, 0.25],
    )
    row = next(
        row
        for row in rows_of(tree, "Energy of the timed steps")
        if text_of(row[0]).split()[1] == "4"
    )
    joules, per_token, source = (text_of(cell) for cell in row[1:])
    assert agrees(joules, 600) and agrees(per_token, 0.125), (joules, per_token)
    assert source == "made up 1.2", source
    assert "All cases share: " in text_of(tree)
    assert "Case 4: tawpipe, 3 ranks in groups 1+2, 512 tokens" in text_of(tree)
    assert "The file has more, of cases 0, 2: " in text_of(tree)
    assert "Rank 2 is slowest in 6 cases." in " ".join(text_of(tree).split())


def settings(**changed):
    """Columns that have to change together, as `run` would write them."""
    return changed | {"identity": repr(sorted(changed.items()))}


def failed(status, reason, **changed):
    """The sample's case without figures, with another status."""
    return (
        6,
        settings(status=status, reason=reason, verdict=f"INVALID: {status}: {reason}", **changed),
        {},
    )


def check_statuses():
    """One case of every status: each is named with its reason, above the table and in it."""
    reasons = {
        "wrong": "loss differs",
        "oom": "needs 91 of 80 GiB",
        "timeout": "no lane moved for 300 s",
        "skipped": "needs 512 of 80 GiB",
        "error": "rank 3 ended",
    }
    tree, text = made(
        "statuses",
        [
            (0, settings(seq=128), {}),
            *(failed(*item, seq=256 << i) for i, item in enumerate(reasons.items())),
        ],
    )
    listed = "".join(text_of(e) for e in tree.iter("ul") if "failures" in (e.get("class") or ""))
    for status, why in reasons.items():
        assert f"{status}: {why}" in listed and status in text, (status, listed)
    assert "INVALID: 5 of 6 cases" in text_of(tree)
    assert "1 ok, 1 wrong, 1 oom, 1 timeout, 1 skipped, 1 error" in text_of(tree)


def check_doubts():
    """A noisy case is amber; a figure of merit from one says so and names the best quiet one; two
    doubts are both shown."""
    noisy, both = (
        "noisy: quartiles 31 % of the median apart",
        "no warm-up; noisy: quartiles 12 % of the median apart",
    )
    tree, _ = made(
        "doubts",
        [
            (0, settings(seq=seq, tokens_per_s=rate, verdict=verdict), {})
            for seq, rate, verdict in (
                (128, 900.0, f"VALID ({noisy})"),
                (256, 500.0, "VALID"),
                (512, 400.0, f"VALID ({both})"),
            )
        ],
    )
    shown = text_of(tree)
    assert "Valid with a doubt, noisy: 0; no warm-up and noisy: 2." in shown
    assert (
        f"Do not quote it as it is: {noisy}. The best case without doubt: 500.000 token/s" in shown
    )
    assert [box.get("class") for box in tree.iter("div") if "box" in box.get("class", "")][:2] == [
        "box doubt",
        "box doubt",
    ]
    assert "RESULT: VALID (2 of 3 cases)" in shown, shown


def check_few():
    """One case; none valid; no case at all."""
    assert "Bytes, throughput, memory and time" in sections_of(made("one", [(1, {}, {})])[0])
    tree, _ = made("failed", [failed("oom", "at step 0"), failed("oom", "at step 0", seq=9)])
    assert sections_of(tree) == {"Cases", "Provenance", "Left out"}
    assert "figure of merit: none" in text_of(tree)
    left = text_of(next(e for e in tree.iter("section") if e.get("aria-labelledby") == "left-out"))
    assert all(f"{title}: " in left for title in ALL - {"Cases", "Provenance"}), left
    assert "INVALID: no case was run" in text_of(
        report(files.make(SAMPLE, FOLDER / "none.h5", []))[0]
    )


def check_many():
    """More than a page may hold, over several axes: it says what it does not draw."""
    cases = [
        (
            0,
            settings(
                schedule=schedule,
                seq=seq,
                hidden=hidden,
                dtype=dtype,
                tokens_per_s=10.0 * seq + hidden,
            ),
            {},
        )
        for schedule in ("tawpipe", "tawpipe:cco=off", "fsdp")
        for seq in (64, 128)
        for hidden in (64, 1024)
        for dtype in ("fp32", "bf16")
    ]
    with mock.patch.object(charts, "MOST_PANELS", 2):
        tree, _ = made("many", cases)
    assert "2 panels more not drawn" in text_of(tree)
    assert len(re.findall(r"Case \d+: ", text_of(tree))) == 3, "a timeline of each schedule"


def check_texts():
    """Names that are very long, and texts that try to be markup."""
    name = "tawpipe:" + ":".join(f"option{i}=value{i}" for i in range(40))
    where = {
        "deck": EVIL,
        "command": EVIL,
        "environment": [f"OMP_X={EVIL}"],
        "hosts": [EVIL] * 3,
        "devices": [EVIL] * 3,
        "compiler_flags": EVIL,
    }
    tree, text = made(
        "texts",
        [
            (0, settings(schedule=name), {}),
            (1, settings(schedule=EVIL, data=EVIL), {}),
            failed("error", EVIL, seq=3, schedule=EVIL),
        ],
        **where,
    )
    assert "<script" not in text and "\x1b" not in text
    assert name in text_of(tree).replace("\u200b", "")
    assert text_of(tree).count(EVIL.replace("\x1b", "\ufffd")) > 8


def check_dots():
    """A timeline of very many actions is a picture of dots inside the page."""
    with mock.patch.object(timeline, "MOST_SHAPES", 3):
        text = write_page(load_all([SAMPLE]))
    dots = [
        drawing_of(image).count(b"data:image/png")
        for tree in (tree_of(text), report(SAMPLE)[0])
        for image in tree.iter("img")
    ]
    assert sum(dots) == 1, dots


def check_scaling():
    """Strong and weak scaling, with the efficiency that follows from the rates."""

    def case(ranks, micro_batches, rate, seq=128):
        empty = {
            f"bytes/{name}": numpy.zeros((ranks, ranks, 5), dtype="uint64")
            for name in ("planned", "counted")
        }
        step = seq * 2 * micro_batches / rate
        columns = settings(
            ranks=ranks,
            groups=f"{ranks}",
            micro_batches=micro_batches,
            seq=seq,
            tokens_per_s=rate,
            tokens_per_s_rank=rate / ranks,
            median_s=step,
            q1_s=step,
            q3_s=step,
        )
        return (
            1,
            columns,
            empty | {"seconds": numpy.full((3, ranks), step), "repetition": [0, 0, 0]},
        )

    tree, _ = made(
        "scaling",
        [
            case(1, 12, 1000.0),
            case(2, 12, 1400.0),
            case(2, 12, 1500.0),
            case(2, 24, 2100.0),
            case(4, 6, 9.0, 256),
        ],
    )
    strong, weak = (rows_of(tree, f"{kind} scaling in numbers") for kind in ("Strong", "Weak"))
    assert [[text_of(cell).replace("\u202f", "") for cell in row[1:]] for row in strong + weak] == [
        ["1", "1", "3072", "1000", "1.000", "100.0 %"],
        ["2", "2", "3072", "1500", "1.500", "75.0 %"],
        ["1", "1", "3072", "1000", "1.000", "100.0 %"],
        ["2", "2", "6144", "2100", "2.100", "105.0 %"],
    ]
    with mock.patch.object(
        scaling,
        "as_image",
        lambda drawn: [axes.lines[0].get_ydata().tolist() for axes in drawn.axes],
    ):
        parts = scaling_section(Book(load_all([FOLDER / "scaling.h5"])))
    assert [picture.address for part in parts if type(part) is list for picture in part] == [
        [[1000, 1500], [100, 75]],
        [[1000, 2100], [100, 105]],
    ]


def check_ranks():
    """Memory of the worst, the median and the least of three ranks, in one group, which sends
    nothing to another."""
    memory = [[100, *[1] * 6], [1, 200, *[1] * 5], [3, *[1] * 6]]
    tree, _ = made(
        "ranks",
        [
            (
                0,
                {"groups": "3", "bytes_between": 0, "bytes_inside": 990},
                {"memory/measured": memory},
            )
        ],
    )
    heads = [
        [text_of(cell) for cell in table.find("thead").iter("th")]
        for table in tree.iter("table")
        if text_of(table.find("caption")).startswith("Bytes inside")
    ]
    assert heads[0][-5:] == [
        "weights",
        "gradients",
        "activations",
        "embedding and head",
        "keys and values",
    ], heads
    (row,) = rows_of(tree, "Memory of the worst rank, and of others")
    assert [text_of(cell) for cell in row[1:-1]] == [
        "206 B",
        "1 B",
        "200 B",
        *["1 B"] * 5,
        "106 B",
        "9 B",
    ], text_of(tree)
    between, inside = (
        rows_of(tree, f"Bytes {where} groups of a step, all ranks together")
        for where in ("between", "inside")
    )
    assert between is None
    assert [text_of(cell) for cell in inside[0][1:]] == [
        "990 B",
        "180 B",
        "189 B",
        "198 B",
        "207 B",
        "216 B",
    ]


def check_wrong():
    """A case with a wrong loss has memory and time, but is in no chart."""
    verdict = {"status": "wrong", "verdict": "INVALID: wrong: x"}
    tree, _ = made("wrong", [(0, settings(), {}), (0, settings(hidden=1024) | verdict, {})])
    assert all(
        len(rows_of(tree, name)) == 2
        for name in ("Parts of a step, mean over ranks", "Memory of the worst rank, and of others")
    )
    assert "Throughput" in [
        text_of(one) for one in tree.iter("figcaption")
    ], "no panel for a setting of none but wrong cases"


def check_slowest():
    """The sentence of each file, as `run` has stored it."""
    results = load_all([SAMPLE, SAMPLE])
    results[0].slowest = "rank 1 is slow"
    results[1].slowest = ""
    text = " ".join(text_of(tree_of(write_page(results))).split())
    assert "A: Rank 1 is slow." in text, text
    assert "B: " not in text.split("A: Rank 1 is slow.")[1][:20], text


def check_origin():
    """Of several sessions: all versions and devices, the largest job, the first and the last
    day."""
    (result,) = load_all([SAMPLE])
    result.sessions = [
        {
            "version": "1",
            "git_hash": "b",
            "started": "2026-02-02",
            "devices": ["x"] * 4,
            "nodes": [0, 0, 1, 1],
        },
        {"version": "2", "git_hash": "a", "started": "2026-03-03", "devices": ["y"], "nodes": [0]},
        {"version": "1", "git_hash": "b", "started": "2026-01-01"},
    ]
    assert top(Book([result]))["origin"] == [
        "miniTaw 1 (b), 2 (a)",
        "4 ranks on 2 nodes: x, y",
        "2026-01-01 to 2026-03-03",
    ]


def check_provenance():
    """Of each session what it had for all and for each rank; the deck of a later one if no session
    before it had the same."""
    (result,) = load_all([SAMPLE])
    last = session_texts(result)["environment"].split("== session ")[3].splitlines()
    assert last[0].startswith("2, started 20"), last
    assert "command          minitaw run sample.toml" in last and "mpi              1.2" in last
    ranks = [line for line in last if line.startswith("rank ")]
    assert len(ranks) == 3 and ranks[2].startswith(
        "rank 2           hosts b, nodes 1, cores 0-1, cpu another, devices cpu"
    ), ranks
    result.sessions = [{"deck": deck, "environment": [f"X={deck}"]} for deck in "abab"]
    texts = session_texts(result)
    parts = [f"== session {number}, started \n{{}}{deck}\n" for number, deck in enumerate("abab")]
    assert texts == {
        "environment": "\n".join(parts).format(*["X="] * 4),
        "deck.toml": "a",
        "deck-0001.toml": "b",
    }, texts


def check_several():
    """Two files with the same settings: their lines are told apart."""
    tree, text = report(
        SAMPLE, files.make(SAMPLE, FOLDER / "other.h5", [(i, {}, {}) for i in range(4)])
    )
    assert len(rows_of(tree, "All cases")) == 11
    assert "A: sample.h5, 7 cases" in text_of(tree)
    assert "B: other.h5, 4 cases" in text_of(tree)
    assert "tawpipe (B)" in text


def check_unavailable():
    why = "unavailable: this machine counts none"
    none = {"energy": math.nan, "energy_per_token": math.nan, "energy_source": why}
    tree, _ = made("plain", [(1, none, {})])
    assert f"Energy: {why}" in text_of(tree)


def check_pictures():
    priced = files.make(
        SAMPLE,
        FOLDER / "priced.h5",
        [(0, settings(schedule="$x$", seq=seq), {}) for seq in (128, 256)],
    )
    accepted("report", priced, "-o", "priced.svg")
    assert ">$x$</text>" in (FOLDER / "priced.svg").read_text(
        encoding="utf-8"
    ), "a name is no formula"
    pictures = [FOLDER / f"charts{suffix}" for suffix in (".png", ".svg")]
    assert accepted(
        "report", SAMPLE, *(word for picture in pictures for word in ("-o", picture))
    ).split() == [*map(str, pictures)]
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    drawn = pictures[1].read_text(encoding="utf-8")
    for words in (
        "sent between groups at 512 tokens [B/step]",
        "sequence length [token]",
        "throughput [token/s], whiskers: quartiles",
        "memory of the worst rank [KiB]",
        "tawpipe",
        "ddp",
        "3 ranks, groups 1+2",
        "1 of 7 cases not valid",
        "6 of 6 cases in doubt",
        "step at 512 tokens, mean over ranks [s]",
        "computing",
        "waiting for weights",
        "waiting for gradients",
        "waiting for activations",
        "waiting for embedding and head",
        "idle",
    ):
        assert words in drawn, f"the picture does not say {words!r}"


def check_charts():
    """Bars are as long, and lines and whiskers as high, as the numbers that they stand for: of
    cases 4 and 5, at the longest sequence."""
    valid = [case for case in load_all([SAMPLE])[0].cases if case.valid]
    assert telling(valid) == [], "no setting tells them apart but schedule and length"
    styles = drawing.styles_of(case["schedule"] for case in valid)
    moved, rate, memory, parts = ([], [], [], [])
    for found, chart in zip(
        (moved, rate, memory, parts),
        charts.charts_of(valid, styles, lambda case: case["schedule"]),
        strict=True,
    ):
        axes = drawing.new_figure().subplots()
        chart.draw(axes)
        found += [
            axes,
            [bar.get_width() for bar in axes.patches],
            [line.get_ydata().tolist() for line in axes.lines],
        ]
    assert moved[1] == [size for size in (60, 64, 68, 72, 76) for _ in range(2)]
    assert "[B/step]" in moved[0].get_xlabel()
    assert parts[1] == [
        share for share in (0.5, 0.125, 0.0625, 0.0625, 0.1875, 0.3125) for _ in range(2)
    ]
    assert "[s]" in parts[0].get_xlabel()
    assert [bar.get_x() for bar in parts[0].patches][-2:] == [
        0.9375,
        0.9375,
    ], "one part begins where the one before ends"
    assert rate[0].get_title(loc="left") == "throughput [token/s], whiskers: quartiles"
    # Of each schedule the medians, then the ends of the whiskers.
    expected = [
        [12 * seq / step for seq in (128, 256, 512)] for step in (2.25, 3, 1.5, 2.75, 3.75, 1.75)
    ]
    assert numpy.allclose(rate[2], expected), rate[2]
    names = [container.get_label() for container in rate[0].containers]
    assert names == ["tawpipe", "ddp"], names
    assert memory[2][:2] == [[42323 / 1024] * 3] * 2, memory
    assert "[KiB]" in memory[0].get_title(loc="left"), memory
    assert [line.get_xdata().tolist() for line in memory[0].lines[:2]] == [[128, 256, 512]] * 2


def check_lines():
    """Points in the order of x, marks that do not lie over each other, the unit of the largest;
    settings are shared by all cases or not at all."""
    axes, more = drawing.new_figure().subplots(2, 1)
    styles = drawing.styles_of("abcdefgh")
    drawing.draw_lines(axes, {"a": [400, 100, 105, 150]}, styles, lambda x: x, lambda x: -x, "v")
    assert axes.lines[0].get_xdata().tolist() == [100, 105, 150, 400]
    assert axes.get_xticks().tolist() == [100, 150, 400]
    assert len({style["marker"] for style in styles.values()}) == 8
    charts.against_length(
        [{"seq": seq, "m": size} for seq, size in ((1, 10), (2, 5000))],
        styles,
        lambda _: "a",
        "m",
        "x [{}]",
        byte_unit,
    ).draw(more)
    assert more.get_title(loc="left") == "x [KiB]"
    bars = drawing.new_figure().subplots()
    charts.against_length(
        [{"seq": 1, "m": 10}], styles, lambda _: "a", "m", "x [{}]", byte_unit, lambda _: [8, 13]
    ).draw(bars)
    assert [line.get_xdata()[0] for line in bars.lines] == [8, 13]
    assert (count_text(8192), seconds_text(0.02)) == ("8K", "20.00 ms")
    case = load_all([SAMPLE])[0].cases[0].row
    shared = shared_settings([case, case | {"hidden": 99}])
    assert "5 layers" in shared, shared
    assert "hidden 12" not in shared, shared
    assert not any("auto" in text for text in shared), shared


def check_refusals():
    for arguments, says in (
        (("failed.h5", "-o", "failed.png"), "no valid case"),
        (("missing.h5",), "missing.h5"),
        ((), "FILE.h5"),
        ((REPOSITORY / "README.md",), "not a miniTaw result"),
        ((SAMPLE, "-o", "missing/charts.png"), "cannot be written"),
        ((SAMPLE, "-o", "charts.jpg"), "must end in"),
        ((SAMPLE, "-o", "/dev/full"), "cannot be written"),
    ):
        refused("report", *arguments, says=says)


run_checks(globals())
