# SPDX-License-Identifier: BSD-3-Clause
"""scripts/plot: the points of a figure are the numbers of its files or predictions, and what is
left out is said."""

import json
from pathlib import Path

import pandas
import pytest
import samples
from minitaw import plot
from programs import SAMPLE, output_of, refused, refuses, script

CASES = [("tawpipe", 128, 0.5), ("fsdp", 128, 1), ("tawpipe", 256, 1), ("fsdp", 256, 4)]


@pytest.fixture
def measured(monkeypatch):
    """Makes what is a result file to plot, of cases (schedule, seq, step)."""
    found = {}

    def add(name, cases=CASES, links=(), **columns):
        runs = [
            dict(case=case, schedule=schedule, seq=seq, median_s=step, tokens_per_s_rank=3 / step)
            for case, (schedule, seq, step) in enumerate(cases)
        ]
        found[name] = samples.in_memory(
            *(run | columns for run in runs), sessions=[{"links": links}]
        )

    def load_all(names):
        return pandas.concat([found[name] for name in names], ignore_index=True)

    monkeypatch.setattr(plot, "load_all", load_all)
    return add


def figure(words):
    options = plot.parse([*words.split(), "-o", "x.csv"])
    return options, *plot.points_and_note(plot.cases_of(options.files), options)


def found(words):
    """{(line, x): value} of a figure."""
    points = figure(words)[1]
    return dict(zip(zip(points.line, points.x), points.value))


def drawn(words):
    """What the command prints."""
    return output_of(script("plot", *words.split()))


def test_points_are_the_numbers_of_the_file(measured):
    measured("one.h5")
    lines = [(schedule, seq) for schedule, seq, _ in CASES]
    assert found("one.h5") == dict(zip(lines, (6, 3, 3, 0.75)))
    only = "one.h5 --where schedule=fsdp,ddp --where seq=256 --y median_s"
    assert found(only) == {("fsdp", 256): 4}


def test_a_figure_has_points_and_quartiles_of_the_sample():
    said = drawn(f"{SAMPLE} --y median_s -o x.csv -o x.pdf")
    assert said == "x.csv\nx.pdf\nleft out: 1 of 7 cases (1 × error: out of memory)\n"
    assert Path("x.pdf").read_bytes().startswith(b"%PDF")
    assert Path("x.csv").read_text().splitlines()[:2] == [
        "schedule,kind,seq [token],median_s [s],low,high",
        "ddp,measured,128,2.75,1.75,3.75",
    ]


def test_x_is_a_setting_an_option_of_schedules_or_the_rate_of_links(measured):
    off = [("tawpipe:dbs=off", 128, 3), ("tawpipe:cco=off:dbs=off", 128, 4)]
    measured("options.h5", [*off, *CASES[:2]])
    bars = found("options.h5 --y median_s --x schedule --where schedule=fsdp,tawpipe")
    assert bars == {("fsdp", ""): 1, ("tawpipe", ""): 0.5}
    first = {("tawpipe", "default"): 0.5, ("tawpipe", "off"): 3}
    lines = first | {("tawpipe:cco=off", "off"): 4}
    assert found("options.h5 --y median_s --x dbs") == lines
    assert figure("options.h5 --x dbs")[2] == "left out: 1 of 4 cases (1 × without dbs)"
    measured("linked.h5", CASES[1:2], ["rate=500kbit"])
    assert found("linked.h5 --x between.rate --y median_s") == {("fsdp", 0.5): 1}


REFUSED = """
one.h5 more.h5 -o x.pdf: fsdp has several cases at seq = 128, which differ in steps: choose by --where steps=3
one.h5 same.h5 -o x.pdf: differ in their file
one.h5 -o x.pdf --where schedule=ddp: seq and tokens_per_s_rank and schedule=ddp
one.h5 -o x.pdf --x colour: no case has colour
one.h5 -o x.pdf --y verdict: verdict
one.h5 -o x.pdf --where hidden=4x7K: hidden=4K
one.h5 -o x.pdf --where size=4: size=4
"""


def test_what_cannot_be_drawn_is_refused(measured):
    for name, steps in (("one.h5", 3), ("same.h5", 3), ("more.h5", 4)):
        measured(name, steps=steps)
    refuses("plot", REFUSED)


# Predictions.

COMMAND = "./minitaw predict d.toml --json"
SETTINGS = dict(schedule="tawpipe", ranks=4, groups="2+2", group_count=2, seq=256, hidden=4096)
CASE = dict(step_s=2.0, tokens_per_s=400, memory_bytes=2 << 20, bytes_between=4 << 20)
CASE |= dict(settings=SETTINGS, fits=True)


def predicted(*cases, **more):
    content = dict(command=COMMAND, between_bytes_per_s=12.5e6, cases=cases)
    Path("p.json").write_text(json.dumps(content | more))


def test_points_are_those_of_predictions_that_fit():
    predicted(CASE, CASE | {"settings": SETTINGS | {"schedule": "fsdp"}, "fits": False})
    for words, x, value in (
        ("", 256, 100),
        ("--x between.rate --y median_s", 100, 2),
        ("--x ranks --y memory_measured", 4, 2 << 20),
    ):
        assert found(f"p.json {words}") == {("tawpipe", x): value}
    told = "left out: 1 of 2 cases (1 × does not fit)"
    assert drawn("p.json --where hidden=4K -o x.svg -o y.svg").endswith(f"y.svg\n{told}\n")
    assert "left out: 1 of 2 cases" in Path("x.svg").read_text()
    assert Path("x.svg").read_bytes() == Path("y.svg").read_bytes()


def test_predictions_are_hollow_with_the_colour_of_their_schedule(measured):
    predicted(CASE, CASE | {"settings": SETTINGS | {"seq": 128}})
    measured("two.h5")
    options, points, _ = figure("two.h5 p.json --width 6")
    (axes,) = plot.draw(points, "", {}, options).axes
    assert axes.get_title("left").endswith(", hollow: predicted")
    full, other, hollow = (line for line in axes.lines if line.get_marker() != "_")
    assert [line.get_fillstyle() for line in (full, other, hollow)] == ["full", "full", "none"]
    assert full.get_color() == hollow.get_color() != other.get_color()


def answer(text):
    Path("p.json").write_text(text)
    return script("plot", "p.json", "-o", "x.csv")


def answer_of(case, **more):
    content = dict(command=COMMAND, between_bytes_per_s=1e9, cases=[CASE | case])
    return answer(json.dumps(content | more))


def test_what_is_no_prediction_is_refused():
    answers = [answer(text) for text in ("{}", "[]", "[" * 200000, "\x00")]
    for case in (dict(step_s="2"), dict(memory_bytes=-1), dict(bytes_between=1e400)):
        answers.append(answer_of(case))
    for done in (*answers, answer_of({}, command="./minitaw plan d.toml")):
        refused(done, "p.json is no output of minitaw predict --json", name="plot")


def test_strange_predictions_give_a_sentence_or_numbers():
    strange = [{name: value} for value in (None, [], 2**70) for name in CASE]
    for case in [*strange, {"settings": SETTINGS | {"schedule": "\x1b"}}]:
        done = answer_of(case)
        assert done.returncode == 0 or done.stderr.startswith("plot: p.json is no output")
    assert "\ufffd,predicted,256," in Path("x.csv").read_text()
