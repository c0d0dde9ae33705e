# SPDX-License-Identifier: BSD-3-Clause
"""scripts/timeline draws what run and predict have kept, or writes it as a trace, and says clearly
when it cannot. What predict writes: test_predictions.py."""

import json
from pathlib import Path

import numpy
import pandas
from matplotlib.collections import LineCollection, PolyCollection
from minitaw.events import Timeline, measured_timeline
from minitaw.record import cases
from minitaw.timeline import draw, trace
from programs import SAMPLE, output_of, refused, refuses, script
from samples import SEEN


def shapes(axes, kind):
    """Of a panel: its boxes or lines, without the background of lanes."""
    some = [one for one in axes.collections if isinstance(one, kind)]
    return [path for one in some if one.get_linewidths()[0] != 1 for path in one.get_paths()]


def names_of(axes):
    return [text.get_text() for text in axes.get_yticklabels()]


def test_rectangles_lie_where_actions_ran():
    timeline = measured_timeline(cases(SEEN).iloc[0])
    assert [*timeline.events.phase] == ["F", "gradients", "gradients", "embeddings", "U"]
    (axes,) = draw([timeline]).axes
    boxes = [path.get_extents() for path in shapes(axes, PolyCollection)]
    sizes = sorted((box.x0, box.x1, round(box.height, 9)) for box in boxes)
    moved = (0.25, 0.75, 0.5)  # on both sides; the receive was posted before, which is pale
    pale, forward = (0, 0.25, 0.5), (0.125, 0.5, 1)
    assert sizes == [pale, forward, moved, moved, (0.375, 1.25, 0.5), (1, 1.0625, 1)]
    (arrow,) = shapes(axes, LineCollection)
    sent, received = sorted(box.y0 + box.height / 2 for box in boxes if box.x0 == 0.25)
    assert numpy.allclose(arrow.vertices, [(0.25, sent), (0.75, received)])
    names = [name for name in names_of(axes) if name.startswith("rank")]
    assert names == [f"rank {i} (group {group}) compute" for i, group in enumerate([0, 1, 1])]
    shares = "40.0 % computing, 35.0 % exposed to transfers, 25.0 % idle"
    assert timeline.note == f"step 1.250 s: {shares}; 33.3 % of communication hidden"


def made(groups, rows, *ranks, **same):
    """A timeline of these events."""
    every = dict(lane="x_send", kind="send", segment="all", payload="gradient")
    events = pandas.DataFrame(rows).assign(**every | same, shard=0, micro_batch=0)
    return Timeline("x", "", groups, lambda name: events[name].to_numpy(), *ranks)


def test_messages_of_a_lane_that_overlap_have_a_row_each():
    """Of many ranks, only messages between groups are drawn."""
    rows = dict(rank=[0, 1, 0, 8, 1, 7], link=[0, 0, 1, 1, 2, 2], begin=0.0, end=1.0)
    kinds = ["send", "recv"] * 3
    many = made([4, 5], rows, kind=kinds, lane=kinds)
    longer = made([1], dict(rank=[0], link=-1, begin=0.0, end=3.0))
    axes, _ = draw([many, longer]).axes
    assert axes.get_xlim() == (0, 3)
    assert len(shapes(axes, LineCollection)) == 2
    threads = [event["tid"] for event in json.loads(trace([many]))["traceEvents"]]
    assert threads == ["send", "recv", "send 2", "recv", "send", "recv"]


def test_of_many_ranks_some_are_shown():
    """What moves waits for sides that are not."""
    early = made([2], dict(rank=[0, 1], link=0, begin=[0.0, 1.0], end=[0.5, 2.0]))
    assert list(early.events.moving) == [0.5, 1.0]  # an eager message
    begin, end = numpy.repeat([[0.0, 0.5], [1.0, 2.0]], 2000, axis=1)
    rows = dict(rank=range(4000), link=[*range(2000)] * 2, begin=begin, end=end)
    groups = [8] * 500
    few = made(groups, rows)
    assert set(few.events["rank"]) == set(range(32))
    assert few.length == 2
    assert set(few.events.moving) == {0.5}
    some = made(groups, rows, [9, 10, 3999, 5000])
    assert some.heading == "x; 3 of the ranks, chosen by --ranks"
    names = [f"rank {rank} (group {rank // 8}) x_send" for rank in (9, 10, 3999)]
    assert names_of(*draw([some]).axes) == names


def traced(words):
    output_of(script("timeline", SAMPLE, *words.split(), "-o", "trace.json"))
    return json.loads(Path("trace.json").read_text())["traceEvents"]


def test_a_trace_has_a_process_for_each_rank_and_a_thread_for_each_lane():
    events = traced("--case 0 2")
    assert [event["ts"] for event in events] == 2 * [125000, 250000, 0, 375000, 1000000]
    assert {
        "ph": "X",
        "name": "recv",
        "cat": "gradients",
        "pid": "rank 2: tawpipe, 3 ranks in groups 1+2, 128 tokens (measured)",
        "tid": "gradients_recv",
        "ts": 0,
        "dur": 750000,
        "args": {"payload": "gradient", "shard": 2, "micro_batch": 1, "link": 3},
    } in events
    assert {event["pid"][:6] for event in traced("--case 0 --ranks 0 2")} == {"rank 0", "rank 2"}


REFUSED = f"""
{SAMPLE} -o x.svg: --case chooses some
{SAMPLE} --case 1: has no timeline
{SAMPLE} --case 7: no case 7
{SAMPLE} --case 0 -o x.gif: .png
{SAMPLE} --case 0 --ranks 3 9: ranks 0 to 2
"""


def test_what_cannot_be_drawn_is_refused():
    refuses("timeline", REFUSED)


CODES = dict(lane=["compute", "x"], kind=["F", "W"], segment=["all", "x"], payload=["weights", "x"])
EVENTS = dict.fromkeys([*CODES, "rank", "shard", "micro_batch", "link", "begin", "end"], [0, 1])
STEP = dict(title="t", groups=[1, 1], codes=CODES, events=EVENTS)


def answer(**changed):
    Path("step.json").write_text(json.dumps({"timelines": [STEP | changed]}))
    return script("timeline", "step.json", "-o", "out.json")


def test_steps_that_predict_has_not_written_are_refused():
    output_of(answer())
    wrong = [("rank", 2), ("link", -2), ("begin", -1), ("end", 1e300), ("end", float("nan"))]
    steps = [answer(events=EVENTS | {name: [0, value]}) for name, value in wrong]
    for done in (*steps, answer(groups=[0]), answer(groups=[1e9])):
        refused(done, "step.json", "no timeline of minitaw", name="timeline")


def test_strange_steps_give_a_sentence_or_a_trace():
    for value in (None, [], 2**70, [1]):
        for done in [answer(**{name: value}) for name in STEP]:
            assert done.returncode == 0 or done.stderr.count("\n") == 1
