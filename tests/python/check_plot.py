# SPDX-License-Identifier: BSD-3-Clause
"""scripts/plot: the points of a figure are the numbers of its files or predictions, ratios are
those of the same x, and what is left out is said."""

import json

import files
from support import FOLDER, SAMPLE, accepted, refused, run_checks
from minitaw import plot
from minitaw.charts import chart
from minitaw.drawing import new_figure, styles_of


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
    rates = {("tawpipe", 128): 666.7, ("fsdp", 128): 333.3, ("tawpipe", 256): 333.3}
    assert found(one) == rates | {("fsdp", 256): 83.3}
    relative = (one, "--relative-to", "fsdp", "--y", "tokens_per_s")
    ratios = {("tawpipe", 128): 2, ("tawpipe", 256): 4}
    assert found(*relative) == ratios | {("fsdp", 128): 1, ("fsdp", 256): 1}
    assert found(*relative, "--schedule", "tawpipe") == ratios
    only = ("--where", "schedule=fsdp", "--where", "seq=256", "--y", "between")
    assert found(one, *only) == {("fsdp", 256): 3 << 20}
    outputs = ("-o", "x.csv", "-o", "x.pdf", "-o", "x.png")
    assert accepted("plot", one, "--y", "step", *outputs) == "x.csv\nx.pdf\nx.png\n"
    told = accepted("plot", SAMPLE, "-o", "x.svg")
    assert told == "x.svg\nleft out: 1 of 7 cases (1 × error: out of memory)\n", told
    assert (FOLDER / "x.pdf").read_bytes().startswith(b"%PDF")
    assert (FOLDER / "x.csv").read_text().splitlines()[:2] == [
        "schedule,kind,seq [token],median_s [s],low,high",
        "fsdp,measured,128,1.0,1.5,3.0",  # quartiles of the sample
    ]


def check_axes():
    """x may be any setting, an option of schedules, or the rate of links."""
    step = ("--y", "step")
    where = ("--where", "seq=128", *step)
    wide = [measured(f"{h}.h5", CASES, hidden=h) for h in (1024, 2048)]
    hidden = found(*wide, *where, "--x", "hidden", "--schedule", "fsdp")
    assert hidden == {("fsdp", 1024): 1, ("fsdp", 2048): 1}
    bars = found(wide[0], *where, "--x", "schedule")
    assert bars == {("fsdp", ""): 1, ("tawpipe", ""): 0.5}
    options = [("tawpipe:dbs=off", 128, 3), ("tawpipe:cco=off:dbs=off", 128, 4), *CASES]
    ablation = (measured("ablation.h5", options), *where, "--x", "dbs")
    tawpipe = {("tawpipe", "default"): 0.5, ("tawpipe", "off"): 3}
    assert found(*ablation) == tawpipe | {("tawpipe:cco=off", "off"): 4}
    told = accepted("plot", *ablation, "-o", "x.pdf")
    assert told == "x.pdf\nleft out: 1 of 4 cases (1 × without dbs)\n", told
    rates = (("50mbit", 2), ("200mbit", 0.5), ("2gbit", 1), ("500kbit", 1))
    some = [measured(f"{rate}.h5", [("fsdp", 128, s)], [f"rate={rate}"]) for rate, s in rates]
    expected = {("fsdp", 50): 2, ("fsdp", 200): 0.5, ("fsdp", 2000): 1, ("fsdp", 0.5): 1}
    assert found(*some, "--x", "between.rate", *step) == expected


def check_several_at_one_place():
    """The refusal names the settings that differ, or else the files."""
    one, more = measured("one.h5", CASES, steps=3), measured("more.h5", CASES, steps=4)
    says = ("fsdp", "seq = 128", "differ in steps: choose by --where steps=3")
    refused("plot", one, more, "-o", "x.pdf", says=says)
    refused("plot", one, one, "-o", "x.pdf", says="differ in their file")


# Predictions.

SETTINGS = {
    "schedule": "tawpipe",
    "ranks": 4,
    "groups": "2+2",
    "group_count": 2,
    "seq": 256,
    "hidden": 4096,
}
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
        ("between.rate", "step", 100, 2),
        ("groups", "between", 2, 4 << 20),
        ("ranks", "memory", 4, 2 << 20),
    ):
        assert found("p.json", "--x", x, "--y", y) == {("tawpipe", at): value}, (x, y)
    told = accepted("plot", "p.json", "--where", "hidden=4K", "-o", "x.svg")
    note = "left out: 1 of 2 cases (1 × does not fit)"
    assert told == f"x.svg\n{note}\n" and note in (FOLDER / "x.svg").read_text(), told
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
    axes = new_figure().subplots()
    one = chart(table, styles_of(["fsdp"]), "y", "", "x")
    one.draw(axes)
    lines = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_fillstyle() for line in lines] == ["full", "none"]
    assert len({line.get_color() for line in lines}) == 1 and one.names == ["fsdp"]
    for kind, words in (
        (True, "y, predicted"),
        ((False, True, False, True), "y, hollow: predicted"),
    ):
        options = plot.parse(["p.json", "-o", "x.svg", "--x", "x", "--y", "y"])
        drawn = plot.draw(table.assign(predicted=kind), "", {}, options)
        assert drawn.subfigs[0].axes[0].get_title("left") == words
        assert [text.get_text() for text in drawn.subfigs[0].legends[0].texts] == ["fsdp"]


def check_foreign():
    """What is no output of predict gives one sentence."""
    for number, content in enumerate(
        [
            [1],
            {},
            {"cases": []},
            FOUND | {"command": "plan"},
            FOUND | {"cases": [{"settings": SETTINGS}]},
            FOUND | {"cases": [CASE, 3]},
            FOUND | {"between_bytes_per_s": "fast"},
            *(FOUND | {"cases": [CASE | {name: one}]} for name, one in (
                ("step_s", "2"), ("tokens_per_s", None), ("memory_bytes", -1), ("settings", 7),
                ("bytes_between", 1e400), ("settings", SETTINGS | {"ranks": "four"}),
                ("settings", SETTINGS | {"seq": [1]}),
            )),
        ]
    ):  # fmt: skip
        name = f"bad{number}.json"
        (FOLDER / name).write_text(json.dumps(content))
        refused("plot", name, "-o", "x.pdf", says=f"{name} is no output of minitaw predict --json")
    (FOLDER / "cut.json").write_text(json.dumps(FOUND)[:-9])
    refused("plot", "cut.json", "-o", "x.pdf", says="cut.json is no output")
    odd = predicted(
        "odd.json", cases=[CASE | {"settings": SETTINGS | {"dtype": "\x1b", "data": [{}]}}]
    )
    accepted("plot", odd, "--x", "dtype", "-o", "x.svg")
    assert "\x1b" not in (FOLDER / "x.svg").read_text()


def check_refusals():
    one = measured("one.h5", CASES)
    nothing = ("seq", "tokens_per_s_rank", "ddp")
    refused("plot", one, "-o", "x.pdf", "--relative-to", "ddp", says=nothing)
    for arguments, says in (
        (("-o", "x.txt"), "must end in"),
        (("-o", "x.pdf", "--x", "colour"), ("colour", "hidden", "between.rate")),
        (("-o", "x.pdf", "--y", "verdict"), "verdict"),
        (("-o", "x.pdf", "--where", "hidden=4x7K"), "hidden=4K"),
        (("-o", "x.pdf", "--where", "size=4"), "size=4"),
        (("-o", "no/x.pdf",), "cannot be written"),
    ):  # fmt: skip
        refused("plot", one, *arguments, says=says)
    refused("plot", "missing.json", "-o", "x.pdf", says=("missing.json", "No such file"))
    for text in ("84mm", "8.4cm"):
        assert abs(plot.inches(text) - 8.4 / 2.54) < 1e-9, text
    for width in ("wide", "1e3in", ".in", "0.1in", "3..3in"):
        refused("plot", one, "-o", "x.pdf", "--width", width, says="3.3in")


run_checks(globals())
