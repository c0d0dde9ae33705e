# SPDX-License-Identifier: BSD-3-Clause
"""scripts/plot: the points of a figure are the numbers of its files or predictions, ratios are
those of the same x, and what is left out is said."""

import json
from pathlib import Path

import files
from support import SAMPLE, accepted, refused, run_checks
from minitaw import plot


def measured(name, cases, links=(), **columns):
    """cases: [(schedule, seq, step)]."""
    names = "schedule", "seq", "median_s", "tokens_per_s", "tokens_per_s_rank"
    values = [(*case, 1000 / case[-1], 1000 / case[-1] / 3) for case in cases]
    columns |= {"bytes_between": 3 << 20}
    rows = [(0, columns | dict(zip(names, some)), {}) for some in values]
    return files.make(SAMPLE, name, rows, {"links": list(links)})


def found(words):
    """{(line, x): value} of a figure."""
    options = plot.parse([*words.split(), "-o", "x.csv"])
    points, _ = plot.points_and_note(plot.cases_of(options.files), options)
    return {(one.line, one.x): round(one.value, 1) for one in points.itertuples()}


def drawn(words):
    """What the command prints."""
    return accepted("plot", *words.split())


CASES = [("tawpipe", 128, 0.5), ("fsdp", 128, 1), ("tawpipe", 256, 1), ("fsdp", 256, 4)]


def check_points():
    measured("one.h5", CASES)
    lines = [(schedule, seq) for schedule, seq, _ in CASES]
    assert found("one.h5") == dict(zip(lines, (666.7, 333.3, 333.3, 83.3)))
    relative = "one.h5 --relative-to fsdp --y tokens_per_s"
    assert found(relative) == dict(zip(lines, (2, 1, 4, 1)))
    assert found(f"{relative} --where schedule=tawpipe,fsdp") == found(relative)
    only = "one.h5 --where schedule=fsdp --where seq=256 --y bytes_between"
    assert found(only) == {("fsdp", 256): 3 << 20}
    assert drawn("one.h5 --y median_s -o x.csv -o x.pdf") == "x.csv\nx.pdf\n"
    assert Path("x.pdf").read_bytes().startswith(b"%PDF")
    assert Path("x.csv").read_text().splitlines()[:2] == [
        "schedule,kind,seq [token],median_s [s],low,high",
        "fsdp,measured,128,1.0,1.5,3.0",  # quartiles of the sample
    ]


def check_axes():
    """x may be any setting, an option of schedules, or the rate of links."""
    measured("one.h5", CASES)
    bars = found("one.h5 --where seq=128 --y median_s --x schedule")
    assert bars == {("fsdp", ""): 1, ("tawpipe", ""): 0.5}
    options = [("tawpipe:dbs=off", 128, 3), ("tawpipe:cco=off:dbs=off", 128, 4), *CASES]
    measured("options.h5", options)
    ablation = "options.h5 --where seq=128 --y median_s --x dbs"
    assert found(ablation) == {
        ("tawpipe", "default"): 0.5,
        ("tawpipe", "off"): 3,
        ("tawpipe:cco=off", "off"): 4,
    }
    told = "x.pdf\nleft out: 1 of 4 cases (1 × without dbs)\n"
    assert drawn(f"{ablation} -o x.pdf") == told
    for rate in ("2gbit", "500kbit"):
        measured(f"{rate}.h5", CASES[1:2], [f"rate={rate}"])
    rates = found("2gbit.h5 500kbit.h5 --x between.rate --y median_s")
    assert rates == {("fsdp", 2000): 1, ("fsdp", 0.5): 1}


def check_several_at_one_place():
    """The refusal names the settings that differ, or else the files."""
    one, more = measured("one.h5", CASES, steps=3), measured("more.h5", CASES, steps=4)
    says = ("fsdp", "seq = 128", "differ in steps: choose by --where steps=3")
    refused("plot", one, more, "-o", "x.pdf", says=says)
    refused("plot", one, one, "-o", "x.pdf", says="differ in their file")


# Predictions.

SETTINGS = {"schedule": "tawpipe", "ranks": 4, "groups": "2+2", "group_count": 2}
SETTINGS |= {"seq": 256, "hidden": 4096}
CASE = {
    "settings": SETTINGS,
    "step_s": 2.0,
    "tokens_per_s": 400,
    "memory_bytes": 2 << 20,
    "bytes_between": 4 << 20,
    "fits": True,
}
FOUND = {"program": "miniTaw", "command": "predict", "between_bytes_per_s": 12.5e6, "cases": [CASE]}


def predicted(name, **changed):
    Path(name).write_text(json.dumps(FOUND | changed))
    return name


def check_predictions():
    large = CASE | {"settings": SETTINGS | {"schedule": "fsdp"}, "fits": False}
    predicted("p.json", cases=[CASE, large])
    for x, y, at, value in (
        ("seq", "tokens_per_s_rank", 256, 100),
        ("between.rate", "median_s", 100, 2),
        ("group_count", "bytes_between", 2, 4 << 20),
        ("ranks", "memory_measured", 4, 2 << 20),
    ):
        assert found(f"p.json --x {x} --y {y}") == {("tawpipe", at): value}, (x, y)
    told = drawn("p.json --where hidden=4K -o x.svg")
    assert told == "x.svg\nleft out: 1 of 2 cases (1 × does not fit)\n", told
    assert "left out: 1 of 2 cases" in Path("x.svg").read_text()
    measured("two.h5", [("tawpipe", 256, 0.5), ("fsdp", 256, 1)])
    drawn("two.h5 p.json --relative-to tawpipe -o x.csv")
    assert Path("x.csv").read_text().splitlines()[1:] == [
        "fsdp,measured,256,0.5,,",
        "tawpipe,measured,256,1.0,,",
        "tawpipe,predicted,256,1.0,,",
    ]


def check_look():
    """Predictions are hollow, in the colour of what is measured, with one name in the legend."""
    rows = [("fsdp", x, hollow, 1.0, 1, 1) for hollow in (False, True) for x in (1, 2)]
    columns = ["line", "x", "predicted", "value", "low", "high"]
    table = plot.pandas.DataFrame(rows, columns=columns)
    options = plot.parse(["p.json", "-o", "x.svg", "--x", "x", "--y", "y"])
    for some, words, fills in (
        (table[2:], "y, predicted", ["none"]),
        (table, "y, hollow: predicted", ["full", "none"]),
    ):
        figure = plot.draw(some, "", {}, options)
        (axes,), (legend,) = figure.axes, figure.legends
        assert axes.get_title("left") == words
        lines = [line for line in axes.lines if line.get_marker() == "o"]
        assert [line.get_fillstyle() for line in lines] == fills
        assert len({line.get_color() for line in lines}) == len(legend.texts) == 1


def check_foreign():
    """What is no output of predict gives one sentence; check_hostile.py looks at more of it."""
    for changed in (
        {"cases": []},
        {"command": "plan"},
        {"cases": [CASE | {"step_s": "2"}]},
        {"cases": [CASE | {"memory_bytes": -1}]},
        {"cases": [CASE | {"bytes_between": 1e400}]},
    ):
        says = "bad.json is no output of minitaw predict --json"
        refused("plot", predicted("bad.json", **changed), "-o", "x.pdf", says=says)
    odd = CASE | {"settings": SETTINGS | {"schedule": "\x1b"}}
    drawn(predicted("odd.json", cases=[odd]) + " -o x.svg")
    assert "\x1b" not in Path("x.svg").read_text()


def check_refusals():
    one = measured("one.h5", CASES)
    for words, says in (
        ("-o x.txt", "must end in"),
        ("-o no/x.pdf", "cannot be written"),
        ("-o x.pdf --relative-to ddp", ("seq", "tokens_per_s_rank", "ddp")),
        ("-o x.pdf --x colour", ("colour", "hidden", "between.rate")),
        ("-o x.pdf --y verdict", "verdict"),
        ("-o x.pdf --where hidden=4x7K", "hidden=4K"),
        ("-o x.pdf --where size=4", "size=4"),
        ("-o x.pdf --width 0.1", "0.1 is no number from 1 to 40"),
    ):
        refused("plot", one, *words.split(), says=says)


run_checks(globals())
