# SPDX-License-Identifier: BSD-3-Clause
"""scripts/timeline draws what run and predict have kept, or writes it as a trace, and says clearly
when it cannot. Called with the program too, which predicts."""

import json
import re
import sys

import numpy
import pandas
from matplotlib.collections import LineCollection, PolyCollection
from support import FOLDER, REPOSITORY, SAMPLE, accepted, programs, refused, run_checks
from minitaw.events import Timeline, measured_timeline, predicted_timelines
from minitaw.record import cases, load
from minitaw.timeline import draw, trace

PROGRAM = sys.argv[4]
DECK = "ranks = 4\ngroups = 2\ndtype = 'bf16'\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n"


def shapes(axes, kind):
    """Of a panel: its boxes or lines, without the background of lanes."""
    some = [one for one in axes.collections if isinstance(one, kind)]
    return [path for one in some if one.get_linewidths()[0] != 1 for path in one.get_paths()]


def check_sample():
    """Of the made-up step: who is where, and which rectangles are whose."""
    timeline = measured_timeline(cases(load(SAMPLE)).iloc[0])
    assert timeline.groups == [1, 2] and timeline.lanes[0] == "compute" and timeline.length == 1.25
    events = timeline.events[["kind", "shard", "micro_batch", "phase", "row"]]
    assert events.values.tolist() == [
        ["F", 2, 1, "F", 0],
        ["send", 2, 1, "gradients", 0],
        ["recv", 2, 1, "gradients", 0],
        ["broadcast", -1, -1, "embeddings", 0],
        ["update", 4, -1, "U", 0],
    ]
    axes = draw([timeline]).axes[0]
    boxes = [path.get_extents() for path in shapes(axes, PolyCollection)]
    sizes = sorted((box.x0, box.x1, round(box.height, 9)) for box in boxes)
    moved = (0.25, 0.75, 0.5)  # on both sides
    # The receive was posted before the message was sent.
    pale, *full = sizes
    assert pale == (0, 0.25, 0.5), sizes
    assert full == [(0.125, 0.5, 1), moved, moved, (0.375, 1.25, 0.5), (1, 1.0625, 1)], sizes
    (arrow,) = shapes(axes, LineCollection)
    sent, received = sorted(box.y0 + box.height / 2 for box in boxes if box.x0 == 0.25)
    assert numpy.allclose(arrow.vertices, [(0.25, sent), (0.75, received)]), arrow
    texts = [label.get_text() for label in axes.get_yticklabels()]
    named = {text: at for text, at in zip(texts, axes.get_yticks()) if "(" in text}
    expected = [f"rank {rank} (group {group}) compute" for rank, group in enumerate((0, 1, 1))]
    # 1 + 3 x 0.5 for lanes, 0.4 between ranks, 0.5 between groups
    assert list(named) == expected and numpy.allclose([*named.values()], [0.5, 3.9, 6.8]), named
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
    )
    many = Timeline("x", "", [4, 5], events)
    assert many.events.row[:6].tolist() == [0, 0, 1, 0, 0, 0] and len(many.drawn) == 6
    axes = draw([many, Timeline("y", "", [1], events[:1].assign(end=3.0))]).axes
    assert axes[0].get_xlim() == (0, 3)
    assert len(shapes(axes[0], LineCollection)) == 2
    threads = [event["tid"] for event in json.loads(trace([many]))["traceEvents"]]
    assert threads[:3] == ["gradients_send", "gradients_recv", "gradients_send 2"], threads


def check_trace():
    """Events as Chrome's format has them: a process for each rank, a thread for each lane."""
    accepted("timeline", SAMPLE, "--case", 0, 2, "-o", "trace.json")
    events = json.loads((FOLDER / "trace.json").read_text())["traceEvents"]
    assert len(events) == 10 and {event["ph"] for event in events} == {"X"}
    first = next(event for event in events if event["name"] == "recv")
    assert first["pid"] == "rank 2: tawpipe, 3 ranks in groups 1+2, 128 tokens (measured)"
    assert (first["tid"], first["ts"], first["dur"]) == ("gradients_recv", 0, 750000)
    details = {"payload": "gradient", "shard": 2, "micro_batch": 1, "link": 3}
    assert first["cat"] == "gradients" and first["args"] == details, first


# Predictions.


def titles_of(*arguments):
    """Of the panels of a picture."""
    accepted("timeline", *arguments, "-o", "step.svg")
    text = (FOLDER / "step.svg").read_text(encoding="utf-8")
    found = re.findall(r">([^<>]*[(](?:predicted|measured)[)])</text>", text)
    return [re.match(r"\w+", title)[0] for title in found]


def predict(*arguments):
    (FOLDER / "deck.toml").write_text(DECK)
    machine = REPOSITORY / "inputs/machines/dgx-h100.toml"
    words = ("predict", "deck.toml", "--machine", machine, *arguments)
    return programs.call(PROGRAM, *words, cwd=FOLDER)


def check_predictions():
    """All cases of the deck, in its order, with every action; of replicas that are alike one. And
    measured beside predicted."""
    several = programs.settings(schedule="tawpipe,zb1,weipipe")
    programs.output_of(predict(*several, "--timeline", "several.json"))
    assert titles_of(SAMPLE, "several.json", "--case", 0)[1:] == ["tawpipe", "zb1", "weipipe"]
    replicas = programs.settings(ranks=24, groups=3, replicas=3, micro_batches=24, layers=8)
    predict(*replicas, "--timeline", "alike.json")
    (alike,) = predicted_timelines(FOLDER / "alike.json")
    title = "tawpipe: 8 ranks in groups 8, the first of 3 replicas (predicted)"
    assert alike.heading == title and "DGX H100" in alike.note, (alike.heading, alike.note)
    predict("--timeline", "one.json")
    (one,) = predicted_timelines(FOLDER / "one.json")
    words = ("plan", "deck.toml", "--program", "--adapters", 8)
    program = programs.output_of(programs.call(PROGRAM, *words, cwd=FOLDER))
    assert len(one.events) == len(re.findall(r"^ +-?[0-9]+ [a-z]", program, re.MULTILINE))


def check_refusals():
    for words, says in (
        ("", "--case chooses some"),
        ("--case 1", "has no timeline"),
        ("--case 7", "no case 7"),
        ("--case first", "'first'"),
        ("--case 0 -o x.gif", ".png"),
        ("--case 0 -o no/such/x.png", "cannot be written"),
    ):
        refused("timeline", SAMPLE, *words.split(), says=says)


def check_foreign():
    """What predict has not written gives one sentence."""
    columns = dict.fromkeys("rank lane kind payload shard micro_batch link".split(), [0])
    columns |= {"begin": [0.0], "end": [1.0]}
    codes = {"lane": ["compute"], "kind": ["F"], "payload": ["none"]}
    good = {"title": "a\nb", "groups": [1], "codes": codes, "events": columns}
    content = json.dumps({"timelines": [good]})
    (FOLDER / "good.json").write_text(content)
    assert len(predicted_timelines(FOLDER / "good.json")) == 1
    for old, new in (
        (content, "{}"),
        (content, '{"timelines": []}'),
        ('"a\\nb"', "3"),
        ('"groups": [1]', '"groups": [0]'),
        ('"groups": [1]', '"groups": [1e9]'),
        ('"rank": [0]', '"rank": [1]'),
        ('"rank": [0]', '"rank": [0, 0]'),
        ('"link": [0]', '"link": ["x"]'),
        ('"lane": [0]', '"lane": [1]'),
        ('"begin": [0.0]', '"begin": [-1]'),
        ('"end": [1.0]', '"end": [1e300]'),
        ('"end": [1.0]', '"end": [NaN]'),
    ):
        assert content.count(old) == 1, old
        (FOLDER / "bad.json").write_text(content.replace(old, new))
        refused("timeline", "bad.json", says=("bad.json", "no timeline"))


run_checks(globals())
