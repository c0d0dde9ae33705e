# SPDX-License-Identifier: BSD-3-Clause
"""scripts/timeline draws what run and predict have kept, or writes it as a trace, and says clearly
when it cannot. Called with the program too, which predicts."""

import json
import math
import re
import sys
from pathlib import Path
from unittest import mock

import numpy
import pandas
from matplotlib.collections import LineCollection, PolyCollection
from support import REPOSITORY, SAMPLE, accepted, programs, refused, run_checks
from minitaw import timeline as subject
from minitaw.events import Timeline, measured_timeline, predicted_timelines
from minitaw.record import cases, load
from minitaw.timeline import draw, trace

PROGRAM = sys.argv[4]
DECK = "ranks = 4\ngroups = 2\ndtype = 'bf16'\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n"


def shapes(axes, kind):
    """Of a panel: its boxes or lines, without the background of lanes."""
    some = [one for one in axes.collections if isinstance(one, kind)]
    return [path for one in some if one.get_linewidths()[0] != 1 for path in one.get_paths()]


def columns_of(events):
    return lambda name: events[name].to_numpy()


def check_sample():
    """Of the made-up step: who is where, and which rectangles are whose."""
    timeline = measured_timeline(cases(load(SAMPLE)).iloc[0])
    assert [*timeline.events.phase] == ["F", "gradients", "gradients", "embeddings", "U"]
    (axes,) = draw([timeline]).axes
    boxes = [path.get_extents() for path in shapes(axes, PolyCollection)]
    sizes = sorted((box.x0, box.x1, round(box.height, 9)) for box in boxes)
    moved = (0.25, 0.75, 0.5)  # on both sides; the receive was posted before, which is pale
    pale, forward = (0, 0.25, 0.5), (0.125, 0.5, 1)
    assert sizes == [pale, forward, moved, moved, (0.375, 1.25, 0.5), (1, 1.0625, 1)], sizes
    (arrow,) = shapes(axes, LineCollection)
    sent, received = sorted(box.y0 + box.height / 2 for box in boxes if box.x0 == 0.25)
    assert numpy.allclose(arrow.vertices, [(0.25, sent), (0.75, received)]), arrow
    named = {
        label.get_text(): round(label.get_position()[1], 9) for label in axes.get_yticklabels()
    }
    # 1 + 3 x 0.5 for lanes, 0.4 between ranks, 0.5 between groups
    for rank, group, at in ((0, 0, 0.5), (1, 1, 3.9), (2, 1, 6.8)):
        assert named[f"rank {rank} (group {group}) compute"] == at, named
    with mock.patch.object(subject, "MOST_SHAPES", 3):  # more are a picture of dots
        assert any(one.get_rasterized() for one in draw([timeline]).axes[0].collections)
    assert not any(one.get_rasterized() for one in axes.collections)
    shares = "40.0 % computing, 35.0 % exposed to transfers, 25.0 % idle"
    assert timeline.note == f"step 1.250 s: {shares}; 33.3 % of communication hidden"


def check_overlaps():
    """Messages of a lane that overlap have a row each. Of many ranks, only messages between groups
    are drawn."""
    pairs = [(0, 1), (0, 8), (1, 7)]
    rows = [
        (rank, f"gradients_{kind}", kind, "gradient", 0, 0, link, 0.0, 1.0)
        for link, pair in enumerate(pairs)
        for kind, rank in zip(("send", "recv"), pair)
    ]
    names = "rank lane kind payload shard micro_batch link begin end".split()
    events = pandas.DataFrame(
        [*rows, (0, "compute", "join", "none", 0, 0, -1, 0, 3.0)], columns=names
    ).assign(segment="all")
    many = Timeline("x", "", [4, 5], columns_of(events))
    axes = draw([many, Timeline("y", "", [1], columns_of(events[:1].assign(end=3.0)))]).axes
    assert axes[0].get_xlim() == (0, 3)
    assert len(shapes(axes[0], LineCollection)) == 2
    threads = [event["tid"] for event in json.loads(trace([many]))["traceEvents"]]
    send, receive = "gradients_send", "gradients_recv"
    assert threads == [send, receive, f"{send} 2", receive, send, receive], threads


def check_trace():
    """Events as Chrome's format has them: a process for each rank, a thread for each lane."""
    accepted("timeline", SAMPLE, "--case", 0, 2, "-o", "trace.json")
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert len(events) == 10
    assert {
        "ph": "X",
        "name": "recv",
        "cat": "gradients",
        "pid": "rank 2: tawpipe, 3 ranks in groups 1+2, 128 tokens (measured)",
        "tid": "gradients_recv",
        "ts": 0,
        "dur": 750000,
        "args": {"payload": "gradient", "shard": 2, "micro_batch": 1, "link": 3},
    } in events, events


def check_shown():
    """Of many ranks some are shown, which is said; what moves waits for sides that are not."""
    pairs, count = numpy.arange(2000), 4000
    events = pandas.DataFrame(
        {
            "rank": numpy.arange(count),
            "link": numpy.tile(pairs, 2),
            "begin": numpy.repeat([0.0, 0.5], len(pairs)),
            "end": numpy.repeat([1.0, 2.0], len(pairs)),
        }
    ).assign(
        lane="gradients_send",
        kind="send",
        segment="all",
        payload="gradient",
        shard=0,
        micro_batch=0,
    )
    groups = [8] * (count // 8)
    few = Timeline("x", "", groups, columns_of(events))
    assert set(few.events["rank"]) == set(range(32)) and few.length == 2, few.events
    assert set(few.events.moving) == {0.5}, few.events
    some = Timeline("x", "", groups, columns_of(events), [9, 10, 11, 3998, 3999, 5000])
    (axes,) = draw([some]).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert [name.split(" gradients")[0] for name in names] == [
        f"rank {rank} (group {rank // 8})" for rank in (9, 10, 11, 3998, 3999)
    ], names
    assert axes.get_title("left") == "x; 5 of the ranks, chosen by --ranks"
    accepted("timeline", SAMPLE, "--case", 0, "--ranks", 0, 2, "-o", "two.json")
    events = json.loads(Path("two.json").read_text())["traceEvents"]
    assert {event["pid"][:6] for event in events} == {"rank 0", "rank 2"}, events


# Predictions.


def predict(*arguments):
    Path("deck.toml").write_text(DECK)
    machine = REPOSITORY / "inputs/machines/dgx-h100.toml"
    words = ("predict", "deck.toml", "--machine", machine, *arguments)
    return programs.call(PROGRAM, *words)


def check_predictions():
    """All cases of the deck, in its order, with every action; of replicas that are alike one. And
    measured beside predicted."""
    several = programs.settings(schedule="tawpipe,zb1,weipipe")
    programs.output_of(predict(*several, "--timeline", "several.json"))
    accepted("timeline", SAMPLE, "several.json", "--case", 0, "-o", "step.svg")
    text = Path("step.svg").read_text(encoding="utf-8")
    titles = re.findall(r">(\w+)[^<>]*[(](predicted|measured)[)]</text>", text)
    expected = [(schedule, "predicted") for schedule in ("tawpipe", "zb1", "weipipe")]
    assert titles == [("tawpipe", "measured"), *expected], titles
    replicas = programs.settings(ranks=24, groups=3, replicas=3, micro_batches=24, layers=8)
    predict(*replicas, "--timeline", "alike.json")
    (alike,) = predicted_timelines("alike.json")
    title = "tawpipe: 8 ranks in groups 8, the first of 3 replicas (predicted)"
    assert alike.heading == title and "DGX H100" in alike.note, (alike.heading, alike.note)
    predict("--timeline", "one.json")
    (one,) = predicted_timelines("one.json")
    words = ("plan", "deck.toml", "--program", "--adapters", 8)
    program = programs.output_of(programs.call(PROGRAM, *words))
    assert len(one.events) == len(re.findall(r"^ +-?[0-9]+ [a-z]", program, re.MULTILINE))


def check_refusals():
    for words, says in (
        ("", "--case chooses some"),
        ("--case 1", "has no timeline"),
        ("--case 7", "no case 7"),
        ("--case 0 -o x.gif", ".png"),
        ("--case 0 --ranks 3 9", "ranks 0 to 2"),
        ("--case 0 --ranks two", "two"),
    ):
        refused("timeline", SAMPLE, *words.split(), says=says)


def check_foreign():
    """What predict has not written gives one sentence; check_hostile.py has more of it."""
    predict("--timeline", "one.json")
    text = Path("one.json").read_text()
    for name, value in (
        ("groups", [0]),
        ("groups", [1e9]),
        ("rank", 4),
        ("begin", -1),
        ("end", 1e300),
        ("end", math.nan),
    ):
        content = json.loads(text)
        (step,) = content["timelines"]
        if name == "groups":
            step[name] = value
        else:
            step["events"][name][0] = value
        Path("bad.json").write_text(json.dumps(content))
        refused("timeline", "bad.json", says=("bad.json", "no timeline of minitaw"))
    Path("bad.json").write_text('{"timelines": []}')
    refused("timeline", "bad.json", says="holds no timeline")


run_checks(globals())
