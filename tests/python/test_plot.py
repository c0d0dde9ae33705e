# SPDX-License-Identifier: BSD-3-Clause
"""scripts/plot: the points of a figure are the numbers of its files or predictions, ratios are
those of the same x, and what is left out is said."""

import json
from pathlib import Path

import pandas
import samples
from minitaw import plot
from programs import SAMPLE, output_of, refused, script

CASES = [("tawpipe", 128, 0.5), ("fsdp", 128, 1), ("tawpipe", 256, 1), ("fsdp", 256, 4)]


def measured(name, cases=CASES, rate=None, **columns):
    """cases: [(schedule, seq, step)]."""
    rows = []
    for schedule, seq, step in cases:
        more = dict(schedule=schedule, seq=seq, median_s=step, bytes_between=3 << 20)
        more |= dict(tokens_per_s=1000 / step, tokens_per_s_rank=1000 / step / 3)
        rows.append((0, columns | more, {}))
    return samples.make(SAMPLE, name, rows, {"links": [f"rate={rate}"] if rate else []})


def found(words):
    """{(line, x): value} of a figure."""
    options = plot.parse([*words.split(), "-o", "x.csv"])
    points, _ = plot.points_and_note(plot.cases_of(options.files), options)
    return {(one.line, one.x): round(one.value, 1) for one in points.itertuples()}


def drawn(words):
    """What the command prints."""
    return output_of(script("plot", *words.split()))


def test_points_are_the_numbers_of_the_file():
    measured("one.h5")
    lines = [(schedule, seq) for schedule, seq, _ in CASES]
    assert found("one.h5") == dict(zip(lines, (666.7, 333.3, 333.3, 83.3)))
    relative = "one.h5 --relative-to fsdp --y tokens_per_s"
    assert found(relative) == dict(zip(lines, (2, 1, 4, 1)))
    only = "one.h5 --where schedule=fsdp,ddp --where seq=256 --y bytes_between"
    assert found(only) == {("fsdp", 256): 3 << 20}
    assert drawn("one.h5 --y median_s -o x.csv -o x.pdf") == "x.csv\nx.pdf\n"
    assert Path("x.pdf").read_bytes().startswith(b"%PDF")
    assert Path("x.csv").read_text().splitlines()[:2] == [
        "schedule,kind,seq [token],median_s [s],low,high",
        "fsdp,measured,128,1.0,1.5,3.0",  # quartiles of the sample
    ]


def test_x_is_a_setting_an_option_of_schedules_or_the_rate_of_links():
    off = [("tawpipe:dbs=off", 128, 3), ("tawpipe:cco=off:dbs=off", 128, 4)]
    measured("options.h5", [*off, *CASES[:2]])
    bars = found("options.h5 --y median_s --x schedule --where schedule=fsdp,tawpipe")
    assert bars == {("fsdp", ""): 1, ("tawpipe", ""): 0.5}
    lines = found("options.h5 --y median_s --x dbs")
    first = {("tawpipe", "default"): 0.5, ("tawpipe", "off"): 3}
    assert lines == first | {("tawpipe:cco=off", "off"): 4}
    told = "x.csv\nleft out: 1 of 4 cases (1 × without dbs)\n"
    assert drawn("options.h5 --x dbs -o x.csv") == told
    for rate in ("2gbit", "500kbit"):
        measured(f"{rate}.h5", CASES[1:2], rate)
    rates = found("2gbit.h5 500kbit.h5 --x between.rate --y median_s")
    assert rates == {("fsdp", 2000): 1, ("fsdp", 0.5): 1}


REFUSED = """
one.h5 more.h5 -o x.pdf: fsdp has several cases at seq = 128, which differ in steps: choose by --where steps=3
one.h5 one.h5 -o x.pdf: differ in their file
one.h5 -o x.txt: must end in
one.h5 -o no/x.pdf: cannot be written
one.h5 -o x.pdf --relative-to ddp: seq and tokens_per_s_rank beside one of ddp
one.h5 -o x.pdf --x colour: no case has colour
one.h5 -o x.pdf --y verdict: verdict
one.h5 -o x.pdf --where hidden=4x7K: hidden=4K
one.h5 -o x.pdf --where size=4: size=4
one.h5 -o x.pdf --width 0.1: 0.1 is no number from 1 to 40
"""


def test_what_cannot_be_drawn_is_refused():
    measured("one.h5", steps=3), measured("more.h5", steps=4)
    for line in REFUSED.strip().split("\n"):
        words, says = line.split(": ", 1)
        refused(script("plot", *words.split()), says, name="plot")


# Predictions.

SETTINGS = dict(schedule="tawpipe", ranks=4, groups="2+2", group_count=2, seq=256, hidden=4096)
CASE = dict(step_s=2.0, tokens_per_s=400, memory_bytes=2 << 20, bytes_between=4 << 20)
CASE |= dict(settings=SETTINGS, fits=True)


def predicted(*cases, **more):
    content = dict(command="predict", between_bytes_per_s=12.5e6, cases=cases)
    Path("p.json").write_text(json.dumps(content | more))


def test_points_are_those_of_predictions_that_fit():
    predicted(CASE, CASE | {"settings": SETTINGS | {"schedule": "fsdp"}, "fits": False})
    for x, y, at, value in (
        ("seq", "tokens_per_s_rank", 256, 100),
        ("between.rate", "median_s", 100, 2),
        ("group_count", "bytes_between", 2, 4 << 20),
        ("ranks", "memory_measured", 4, 2 << 20),
    ):
        assert found(f"p.json --x {x} --y {y}") == {("tawpipe", at): value}, (x, y)
    told = "left out: 1 of 2 cases (1 × does not fit)"
    assert drawn("p.json --where hidden=4K -o x.svg -o y.svg").endswith(f"y.svg\n{told}\n")
    assert "left out: 1 of 2 cases" in Path("x.svg").read_text()
    assert Path("x.svg").read_bytes() == Path("y.svg").read_bytes()


def test_measured_and_predicted_are_relative_to_their_own():
    predicted(CASE)
    measured("two.h5", [("tawpipe", 256, 0.5), ("fsdp", 256, 1)])
    drawn("two.h5 p.json --relative-to tawpipe -o x.csv")
    rows = "fsdp,measured,256,0.5,, tawpipe,measured,256,1.0,, tawpipe,predicted,256,1.0,,"
    assert Path("x.csv").read_text().split("\n", 1)[1].split() == rows.split()


def test_predictions_are_hollow_and_of_the_same_colour():
    rows = [("fsdp", x, hollow, 1.0, 1, 1) for hollow in (False, True) for x in (1, 2)]
    columns = "line x predicted value low high".split()
    options = plot.parse("p.json -o x.svg --x x --y y".split())
    (axes,) = plot.draw(pandas.DataFrame(rows, columns=columns), "", {}, options).axes
    assert axes.get_title("left") == "y, hollow: predicted"
    lines = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_fillstyle() for line in lines] == ["full", "none"]
    assert len({line.get_color() for line in lines}) == 1


def answer(text):
    Path("p.json").write_text(text)
    return script("plot", "p.json", "-o", "x.csv")


def test_what_is_no_prediction_is_refused():
    plan = json.dumps({"command": "plan", "cases": [CASE], "between_bytes_per_s": 1})
    texts = ["{}", "[]", "null", "[" * 200000, "\x00", plan]
    for changed in (dict(step_s="2"), dict(memory_bytes=-1), dict(bytes_between=1e400)):
        texts.append(json.dumps({"cases": [CASE | changed], "between_bytes_per_s": 1}))
    for text in texts:
        refused(answer(text), "p.json is no output of minitaw predict --json", name="plot")


def test_strange_predictions_give_a_sentence_or_numbers():
    strange = [{name: value} for value in (None, [], -2, 2**70) for name in CASE]
    for changed in [*strange, {"settings": SETTINGS | {"schedule": "\x1b"}}]:
        done = answer(json.dumps({"cases": [CASE | changed], "between_bytes_per_s": 1e9}))
        assert done.returncode == 0 or done.stderr.startswith("plot: p.json is no output")
    assert "\ufffd,predicted,256," in Path("x.csv").read_text()
