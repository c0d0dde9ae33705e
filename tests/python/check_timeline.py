# SPDX-License-Identifier: BSD-3-Clause
"""scripts/timeline draws what run and predict have kept, as pictures, and says clearly when
it cannot. Called with the program too, which predicts."""

import copy
import dataclasses
import math
import re
import sys
import xml.etree.ElementTree

import numpy
from matplotlib.collections import LineCollection, PolyCollection
from support import FOLDER, REPOSITORY, SAMPLE, accepted, programs, refused, run_checks
from minitaw.record import load
from minitaw.events import Event, Timeline, measured_timeline, predicted_timelines, rows_of
from minitaw.timeline import draw

PROGRAM = sys.argv[4]
DECK = "ranks = 4\ngroups = 2\ndtype = 'bf16'\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n"


def check_sample():
    """Of the made-up step: who is where, and which rectangles are whose."""
    timeline = measured_timeline(load(SAMPLE).cases[0])
    assert timeline.groups == [1, 2] and timeline.lanes[0] == "compute" and timeline.length == 1.25
    assert [(event.kind, event.shard, event.micro_batch) for event in timeline.events] == [
        ("F", 2, 1),
        ("send", 2, 1),
        ("recv", 2, 1),
        ("broadcast", -1, -1),
        ("update", 4, -1),
    ]
    assert [event.phase for event in timeline.events] == [
        "F",
        "gradients",
        "gradients",
        "embeddings",
        "U",
    ]
    assert dataclasses.replace(timeline.events[0], kind="join").phase is None
    assert rows_of(timeline)[0] == [0] * 5
    found = draw([timeline]).axes[0].collections
    boxes, pale = [], []
    for some in found:
        if isinstance(some, PolyCollection) and some.get_linewidths()[0] > 0:
            kept = boxes if some.get_alpha() == 1 else pale
            kept += [path.get_extents() for path in some.get_paths()]
    sizes = [(box.x0, box.x1, box.height) for box in sorted(boxes, key=lambda box: box.x0)]
    moved = (0.25, 0.75, 0.5)  # on both sides
    assert numpy.allclose(
        sizes, [(0.125, 0.5, 1), moved, moved, (0.375, 1.25, 0.5), (1, 1.0625, 1)]
    ), sizes
    # The receive was posted before the message was sent.
    assert numpy.allclose([(box.x0, box.x1, box.height) for box in pale], [(0, 0.25, 0.5)]), pale
    (arrow,) = (
        line for some in found if isinstance(some, LineCollection) for line in some.get_segments()
    )
    sent, received = sorted(box.y0 + box.height / 2 for box in boxes if box.x0 == 0.25)
    assert numpy.isclose(pale[0].y0 + 0.25, received), "that of rank 2, below rank 0"
    assert numpy.allclose(arrow, [(0.25, sent), (0.75, received)]), (arrow, sent, received)
    rows = {
        label.get_text(): round(height, 2)
        for label, height in zip(
            draw([timeline]).axes[0].get_yticklabels(), draw([timeline]).axes[0].get_yticks()
        )
    }
    assert [
        (text, height) for text, height in rows.items() if "(" in text
    ] == [  # 1 + 3 x 0.5 for lanes, 0.4 between ranks, 0.5 between groups
        ("rank 0 (group 0) compute", 0.5),
        ("rank 1 (group 1) compute", 3.9),
        ("rank 2 (group 1) compute", 6.8),
    ], rows
    assert timeline.note == (
        "step 1250 ms: 40.0% computing, 35.0% exposed to transfers, 25.0% idle; "
        "33.3% of communication hidden"
    )
    nothing_moved = copy.copy(load(SAMPLE).cases[0])
    nothing_moved.row = nothing_moved.row | {"overlap": math.nan}
    assert measured_timeline(nothing_moved).note.endswith("25.0% idle")


def check_overlaps():
    """Messages of a lane that overlap have a row each. Of many ranks, only messages between groups
    are drawn."""

    def event(kind, rank, link):
        return Event(rank, f"gradients_{kind}", kind, "gradient", 0, 0, link, 0.0, 1.0)

    many = Timeline(
        "x",
        "",
        [4, 5],
        [
            event(kind, rank, link)
            for link, pair in enumerate([(0, 1), (0, 8), (1, 7)])
            for kind, rank in zip(("send", "recv"), pair)
        ],
    )
    rows, depth = rows_of(many)
    assert rows == [0, 0, 1, 0, 0, 0], rows
    assert depth[0, "gradients_send"] == 2 and set(depth.values()) == {1, 2}, depth
    drawn = draw([many, Timeline("y", "", [1], [dataclasses.replace(many.events[0], end=3.0)])])
    assert drawn.axes[0].get_xlim() == (0, 3)
    assert (
        sum(
            len(some.get_segments())
            for some in drawn.axes[0].collections
            if isinstance(some, LineCollection)
        )
        == 2
    )


def titles_of(*arguments):
    """Of the panels of a picture."""
    accepted("timeline", *arguments, "-o", "step.svg")
    text = (FOLDER / "step.svg").read_text(encoding="utf-8")
    xml.etree.ElementTree.fromstring(text)
    return [
        title.split(":")[0]
        for title in re.findall(r">([^<>]*[(](?:predicted|measured)[)])</text>", text)
    ]


def predict(*arguments):
    command = [
        PROGRAM,
        "predict",
        "deck.toml",
        "--machine",
        REPOSITORY / "inputs/machines/dgx-h100.toml",
        *arguments,
    ]
    return programs.call(*command, cwd=FOLDER)


def check_predictions():
    """All cases of the deck, in its order, with every action; of replicas that are alike one. And
    measured beside predicted."""
    (FOLDER / "deck.toml").write_text(DECK)
    for keys, titles in (
        ((), ["tawpipe"]),
        (programs.settings(schedule="tawpipe,zb1,weipipe"), ["tawpipe", "zb1", "weipipe"]),
    ):
        programs.output_of(predict(*keys, "--timeline", "predicted.json"))
        assert titles_of("predicted.json") == titles, keys
    predict(
        *programs.settings(ranks=24, groups=3, replicas=3, micro_batches=24, layers=8),
        "--timeline",
        "alike.json",
    )
    (one,) = predicted_timelines(FOLDER / "alike.json")
    assert (
        one.heading == "tawpipe: 8 ranks in groups 8, the first of 3 replicas (predicted)"
    ), one.heading
    assert "DGX H100" in one.note, one.heading
    predict("--timeline", "predicted.json")
    (one,) = predicted_timelines(FOLDER / "predicted.json")
    program = programs.output_of(
        programs.call(PROGRAM, "plan", "deck.toml", "--program", "--adapters", 8, cwd=FOLDER)
    )
    assert len(one.events) == len(re.findall(r"^ +-?[0-9]+ [a-z]", program, re.MULTILINE))
    messages = sum(event.kind == "send" for event in one.events)
    assert messages == sum(event.kind == "recv" for event in one.events) > 0
    assert titles_of(SAMPLE, "predicted.json", "--case", 0)[1:] == ["tawpipe"]
    predict(*programs.settings(ranks=12, layers=12), "--timeline", "predicted.json")
    accepted("timeline", "predicted.json", "-o", "large.png")
    assert (FOLDER / "large.png").read_bytes().startswith(b"\x89PNG")
    for file, says in (("step.svg", ".json"), ("missing/step.json", "cannot be written")):
        programs.refused(predict("--timeline", file), says, begun=True)


def check_refusals():
    (FOLDER / "other.json").write_text("{}")
    zero = (SAMPLE, "--case", 0)
    for arguments, says in (
        ((SAMPLE,), "--case chooses some"),
        ((SAMPLE, "--case", 1), "has no timeline"),
        ((SAMPLE, "--case", 7), "no case 7"),
        ((SAMPLE, "--case", "first"), "no case first"),
        ((*zero, "-o", "x.gif"), ".png"),
        ((*zero, "-o", "x.json"), ".png"),
        ((*zero, "-o", "no/such/x.png"), "cannot be written"),
        ((REPOSITORY / "README.md",), "not a miniTaw result"),
        (("missing.json",), "cannot be read"),
        (("other.json",), "no timeline"),
    ):
        refused("timeline", *arguments, says=says)


run_checks(globals())
