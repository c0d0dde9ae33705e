# SPDX-License-Identifier: BSD-3-Clause
"""scripts/plot: the points of a figure are the numbers of its files or predictions, ratios are
those of the same x, and what is left out is said."""

import json

import files
from support import FOLDER, SAMPLE, accepted, refused, run_checks
from minitaw import plot
from minitaw.charts import chart
from minitaw.drawing import styles_of


def measured(name, cases, links=(), **columns):
    """cases: [(schedule, seq, step)]."""
    rows = []
    for schedule, seq, step in cases:
        figures = {
            "median_s": step,
            "tokens_per_s": 1000 / step,
            "tokens_per_s_rank": 1000 / step / 3,
            "bytes_between": 3 << 20,
        }
        rows.append((0, {"schedule": schedule, "seq": seq} | figures | columns, {}))
    return files.make(SAMPLE, FOLDER / name, rows, {"links": list(links)})


def found(*words):
    """{(line, x): value} of a figure."""
    options = plot.parse([*words, "-o", "x.csv"])
    points, _ = plot.points_and_note(plot.cases_of(options.files), options)
    return {(one.line, one.x): round(one.value, 1) for one in points.itertuples()}


CASES = [("tawpipe", 128, 0.5), ("fsdp", 128, 1), ("tawpipe", 256, 1), ("fsdp", 256, 4)]


def check_points():
    one = measured("one.h5", CASES)
    lines = [(schedule, seq) for schedule, seq, _ in CASES]
    assert found(one) == dict(zip(lines, (666.7, 333.3, 333.3, 83.3)))
    relative = (one, "--relative-to", "fsdp", "--y", "tokens_per_s")
    assert found(*relative) == dict(zip(lines, (2, 1, 4, 1)))
    assert found(*relative, "--where", "schedule=tawpipe,fsdp") == found(*relative)
    only = ("--where", "schedule=fsdp", "--where", "seq=256", "--y", "bytes_between")
    assert found(one, *only) == {("fsdp", 256): 3 << 20}
    outputs = ("-o", "x.csv", "-o", "x.pdf", "-o", "x.png")
    assert accepted("plot", one, "--y", "median_s", *outputs) == "x.csv\nx.pdf\nx.png\n"
    assert (FOLDER / "x.pdf").read_bytes().startswith(b"%PDF")
    table = (FOLDER / "x.csv").read_text().splitlines()
    assert table[:2] == [
        "schedule,kind,seq [token],median_s [s],low,high",
        "fsdp,measured,128,1.0,1.5,3.0",  # quartiles of the sample
    ]


def check_axes():
    """x may be any setting, an option of schedules, or the rate of links."""
    step = ("--y", "median_s")
    where = ("--where", "seq=128", *step)
    bars = found(measured("one.h5", CASES), *where, "--x", "schedule")
    assert bars == {("fsdp", ""): 1, ("tawpipe", ""): 0.5}
    options = [("tawpipe:dbs=off", 128, 3), ("tawpipe:cco=off:dbs=off", 128, 4), *CASES]
    ablation = (measured("ablation.h5", options), *where, "--x", "dbs")
    assert found(*ablation) == {
        ("tawpipe", "default"): 0.5,
        ("tawpipe", "off"): 3,
        ("tawpipe:cco=off", "off"): 4,
    }
    told = accepted("plot", *ablation, "-o", "x.pdf")
    assert told == "x.pdf\nleft out: 1 of 4 cases (1 × without dbs)\n", told
    rates = {"50mbit": 50, "2gbit": 2000, "500kbit": 0.5}
    some = [measured(f"{rate}.h5", CASES[1:2], [f"rate={rate}"]) for rate in rates]
    expected = {("fsdp", rate): 1 for rate in rates.values()}
    assert found(*some, "--x", "between.rate", *step) == expected


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
    (FOLDER / name).write_text(json.dumps(FOUND | changed))
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
        assert found("p.json", "--x", x, "--y", y) == {("tawpipe", at): value}, (x, y)
    told = accepted("plot", "p.json", "--where", "hidden=4K", "-o", "x.svg")
    note = "left out: 1 of 2 cases (1 × does not fit)"
    assert told == f"x.svg\n{note}\n", told
    assert "left out: 1 of 2 cases" in (FOLDER / "x.svg").read_text()
    one = measured("both.h5", [("tawpipe", 256, 0.5), ("fsdp", 256, 1)])
    relative = ("--relative-to", "tawpipe", "--y", "tokens_per_s")
    accepted("plot", one, "p.json", *relative, "-o", "x.csv")
    assert (FOLDER / "x.csv").read_text().splitlines()[1:] == [
        "fsdp,measured,256,0.5,,",
        "tawpipe,measured,256,1.0,,",
        "tawpipe,predicted,256,1.0,,",
    ]


def check_look():
    """Predictions are hollow, in the colour of what is measured, with one name in the legend."""
    rows = [("fsdp", x, hollow, 1.0, 1, 1) for hollow in (False, True) for x in (1, 2)]
    columns = ["line", "x", "predicted", "value", "low", "high"]
    table = plot.pandas.DataFrame(rows, columns=columns)
    (axes,) = chart(table, styles_of(["fsdp"]), "y", "", "x").axes
    lines = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_fillstyle() for line in lines] == ["full", "none"]
    assert len({line.get_color() for line in lines}) == 1
    options = plot.parse(["p.json", "-o", "x.svg", "--x", "x", "--y", "y"])
    for some, words in ((table[2:], "y, predicted"), (table, "y, hollow: predicted")):
        drawn = plot.draw(some, "", {}, options)
        assert drawn.axes[0].get_title("left") == words
        assert [text.get_text() for text in drawn.legends[0].texts] == ["fsdp"]


def check_foreign():
    """What is no output of predict gives one sentence."""
    for changed in (
        {"cases": []},
        {"command": "plan"},
        {"cases": [{"settings": SETTINGS}]},
        {"cases": [CASE, 3]},
        {"between_bytes_per_s": "fast"},
        {"cases": [CASE | {"step_s": "2"}]},
        {"cases": [CASE | {"tokens_per_s": None}]},
        {"cases": [CASE | {"memory_bytes": -1}]},
        {"cases": [CASE | {"bytes_between": 1e400}]},
        {"cases": [CASE | {"settings": SETTINGS | {"ranks": "four"}}]},
    ):
        says = "bad.json is no output of minitaw predict --json"
        refused("plot", predicted("bad.json", **changed), "-o", "x.pdf", says=says)
    odd = CASE | {"settings": SETTINGS | {"dtype": "\x1b", "data": [{}]}}
    accepted("plot", predicted("odd.json", cases=[odd]), "--x", "dtype", "-o", "x.svg")
    assert "\x1b" not in (FOLDER / "x.svg").read_text()


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
        ("-o x.pdf --width wide", "--width"),
        ("-o x.pdf --width 0.1", "0.1 is no number from 1 to 40"),
    ):
        refused("plot", one, *words.split(), says=says)
    refused("plot", "missing.json", "-o", "x.pdf", says=("missing.json", "No such file"))


run_checks(globals())
