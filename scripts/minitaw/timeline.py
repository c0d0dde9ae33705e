# SPDX-License-Identifier: BSD-3-Clause
"""Timelines of steps: drawn one above the other over a common axis of time, a row for each rank and
lane, or as a trace for Perfetto (docs/show.md)."""

import json
import math

import numpy
import pandas
from matplotlib.collections import LineCollection, PolyCollection

from .book import run_with
from .command import PICTURES, BadInput, Parser, ending, write_file, write_stdout
from .drawing import GRID, add_legend, new_figure, save, short
from .events import PHASES, SHOWN, measured_timeline, predicted_timelines
from .numbers import plural, time_unit
from .record import cases, load_all, rows_of

MOST_ARROWS = 300
MOST_SHAPES = 4000  # more are drawn as pixels
FEW_RANKS = 8  # that have room for texts and arrows inside of groups
MOST_NAMED = 32  # ranks
WIDTH = 13  # inches
LETTERS = 160  # that fit into a lane
LEAST_SHARE = 1 / 1000  # of the axis: what takes no time can still be seen
PALE = 0.25  # opacity of a transfer whose other side is not there yet
WAITS = "other side not there yet", "#c8c8c8"  # in the legend
MICRO = 1e6  # a trace has microseconds


def lanes_of(timeline):
    """Where the lanes of a timeline lie: one of transfers has half the height of computation."""
    names = ["rank", "lane"]
    every = pandas.MultiIndex.from_product([timeline.ranks, timeline.lanes], names=names)
    lanes = every.to_frame(index=False)
    groups = numpy.repeat(range(len(timeline.groups)), timeline.groups)
    lanes["group"] = groups[lanes["rank"]]
    lanes["height"] = lanes.lane.map(lambda lane: 1.0 if lane == "compute" else 0.5)
    above = lanes.height.cumsum() - lanes.height
    gaps = 0.4 * lanes["rank"].factorize()[0] + 0.5 * lanes.group.factorize()[0]
    return lanes.assign(top=above + gaps)


def boxes_of(timeline, lanes, least):
    """Where actions are drawn: messages of a batch share their lane. What takes no time has the
    least length."""
    boxes = timeline.drawn.merge(lanes, on=["rank", "lane"])
    depth = boxes.groupby(["rank", "lane"]).row.transform("max") + 1
    boxes["height"] /= depth
    boxes["top"] += boxes.row * boxes.height
    boxes["middle"] = boxes.top + boxes.height / 2
    boxes["end"] = boxes.end.clip(lower=boxes.moving + least)
    boxes["colour"] = [PHASES[phase][1] for phase in boxes.phase]
    return boxes


def draw_boxes(axes, boxes, begin, end, **look):
    """From one column to another."""
    left, right, top, bottom = boxes[begin], boxes[end], boxes.top, boxes.top + boxes.height
    corners = [[left, right, right, left], [top, top, bottom, bottom]]
    shapes = PolyCollection(numpy.transpose(corners, (2, 1, 0)), **look)
    axes.add_collection(shapes, autolim=False)


def draw_actions(axes, boxes):
    """Of a transfer, what comes before the other side is there is pale."""
    look = {"edgecolors": "#ffffff", "linewidths": 0.3, "rasterized": len(boxes) > MOST_SHAPES}
    late = boxes[boxes.moving > boxes.begin]
    draw_boxes(axes, late, "begin", "moving", facecolors=late.colour, alpha=PALE, **look)
    draw_boxes(axes, boxes, "moving", "end", facecolors=boxes.colour, **look)


def write_shards(axes, boxes, letters):
    """The longest text of each action that fits."""
    look = {"ha": "center", "va": "center", "fontsize": 6.5, "color": "#222222", "clip_on": True}
    for box in boxes[(boxes.lane == "compute") & (boxes.shard >= 0)].itertuples():
        texts = [f"s{box.shard} m{box.micro_batch}"] if box.micro_batch >= 0 else []
        room = letters * (box.end - box.begin) - 0.5
        text = next((text for text in [*texts, f"{box.shard}"] if len(text) <= room), "")
        axes.text((box.begin + box.end) / 2, box.middle, text, **look)


def draw_arrows(axes, boxes, is_small):
    """Those inside of the groups of many ranks would hide what they connect."""
    sends, receives = (boxes[boxes.kind == kind] for kind in ("send", "recv"))
    both = sends.merge(receives, on="link", suffixes=("", "_there"))
    both = both[(both.group != both.group_there) | is_small]
    if len(both) <= MOST_ARROWS:
        ends = both[["begin", "middle", "end_there", "middle_there"]].to_numpy(float)
        look = {"colors": both.colour, "linewidths": 0.7, "alpha": 0.75}
        axes.add_collection(LineCollection(ends.reshape(-1, 2, 2), **look), autolim=False)


def name_lanes(axes, lanes, is_small):
    is_first = ~lanes["rank"].duplicated()
    if not is_small:
        lanes = lanes[is_first][:: math.ceil(is_first.sum() / MOST_NAMED)]
    names = "rank " + lanes["rank"].astype(str) + " (group " + lanes.group.astype(str) + ") "
    names = names.where(is_first, "") + (lanes.lane if is_small else "")
    axes.set_yticks(lanes.top + lanes.height / 2, names, fontsize=7)
    axes.tick_params(axis="y", length=0)


def draw_panel(axes, timeline, seconds):
    is_small = len(timeline.ranks) <= FEW_RANKS
    lanes = lanes_of(timeline)
    grey = [(0.5, 0.5, 0.5, 0.2 if lane == "compute" else 0.08) for lane in lanes.lane]
    draw_boxes(axes, lanes.assign(begin=0, end=seconds), "begin", "end", facecolors=grey)
    boxes = boxes_of(timeline, lanes, seconds * LEAST_SHARE)
    draw_actions(axes, boxes)
    draw_arrows(axes, boxes, is_small)
    name_lanes(axes, lanes, is_small)
    if is_small:
        write_shards(axes, boxes, LETTERS / seconds)
    axes.set_ylim((lanes.top + lanes.height).max() if len(lanes) else 1, 0)
    axes.set_xlim(0, seconds)
    title = "\n".join([short(timeline.heading, 100), timeline.note]).strip()
    axes.set_title(title, loc="left", fontsize=9)
    axes.grid(True, axis="x", linewidth=0.5, **GRID)


def add_names(axes, events):
    """What a legend says of the colours of these events."""
    used = [look for phase, look in PHASES.items() if (events.phase == phase).any()]
    waits = [WAITS] if (events.moving > events.begin).any() else []
    for name, colour, *_ in used + waits:
        axes.bar(0, 0, color=colour, label=name)


def draw(timelines):
    """The figure of these timelines."""
    events = pandas.concat(timeline.drawn for timeline in timelines)
    seconds = max(timeline.length for timeline in timelines) or 1.0
    scale, unit = time_unit(seconds / 10)
    heights = [
        0.8 + min(0.15 * len(timeline.ranks), 6) * (1 + len(timeline.lanes))
        for timeline in timelines
    ]
    drawn = new_figure(WIDTH, sum(heights) + 0.6, margin=0.25)
    rows = drawn.subplots(len(timelines), sharex=True, squeeze=False, height_ratios=heights)
    panels = rows[:, 0]
    for axes, timeline in zip(panels, timelines):
        draw_panel(axes, timeline, seconds)
    panels[-1].xaxis.set_major_formatter(lambda value, _: f"{value / scale:.6g}")
    panels[-1].set_xlabel(f"{unit} since the step began; grey: idle, or waits for transfers")
    add_names(panels[-1], events)
    add_legend(drawn, panels[-1])
    return drawn


# A trace for Perfetto.


def trace(timelines):
    """An event for each action, in Chrome's format: a rank is a process, a lane a thread, with more
    threads where actions of a lane overlap."""
    events = []
    for timeline in timelines:
        drawn = timeline.drawn.rename(columns={"phase": "cat"})
        shown = drawn.assign(
            ph="X",
            pid="rank " + drawn["rank"].astype(str) + ": " + timeline.heading,
            tid=drawn.lane + (" " + (drawn.row + 1).astype(str)).where(drawn.row > 0, ""),
            ts=MICRO * drawn.begin,
            dur=MICRO * (drawn.end - drawn.begin),
            args=drawn[["payload", "shard", "micro_batch", "link"]].to_dict("records"),
        )
        fields = ["ph", "name", "cat", "pid", "tid", "ts", "dur", "args"]
        events += shown[fields].to_dict("records")
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events})


# The command.


def chosen_cases(path, numbers):
    table = cases(load_all([path])).set_index("case", drop=False)
    for number in numbers:
        if number not in table.index:
            raise BadInput(f"{path} has no case {number}, but {plural(len(table), 'case')}")
    if numbers:
        return rows_of(table.loc[numbers])
    kept = [case for case in rows_of(table) if run_with(case, "timeline/rank") is not None]
    if len(kept) != 1:
        raise BadInput(
            f"{path} has timelines of {plural(len(kept), 'case')}; minitaw run --timeline keeps "
            "them, and --case chooses some"
        )
    return kept


def main(words=None):
    parser = Parser(
        prog="timeline",
        description="Draws when the actions of a step ran: of result files (minitaw run "
        "--timeline) and of predictions (minitaw predict --timeline STEP.json), one above the "
        "other on one axis of time; or writes them as a trace for ui.perfetto.dev (docs/show.md).",
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="result file (.h5), or predicted steps (.json)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=ending(*PICTURES, ".json"),
        default="timeline.png",
        help="a picture (.png, .svg, .pdf) or a trace (.json); default: %(default)s",
    )
    parser.add_argument(
        "--case",
        metavar="N",
        type=int,
        nargs="+",
        default=[],
        help="numbers of cases of the result file, if several have a timeline",
    )
    parser.add_argument(
        "--ranks",
        metavar="N",
        type=int,
        nargs="+",
        default=SHOWN,
        help="ranks that are shown; default: the first 32",
    )
    options = parser.parse_args(words)
    if options.output in options.files:
        raise BadInput(f"-o: {options.output} is read")
    timelines = []
    for path in options.files:
        if path.endswith(".json"):
            timelines += predicted_timelines(path, options.ranks)
        else:
            for case in chosen_cases(path, options.case):
                timelines.append(measured_timeline(case, options.ranks))
    if options.output.endswith(".json"):
        write_file(options.output, trace(timelines))
    else:
        save(draw(timelines), options.output)
    write_stdout(f"{options.output}\n")
