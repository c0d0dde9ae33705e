# SPDX-License-Identifier: BSD-3-Clause
"""Timelines of steps: drawn one above the other over a common axis of time, a row for each rank and
lane, or as a trace for Perfetto (docs/show.md)."""

import json

import numpy
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from .book import run_with
from .command import PICTURES, BadInput, Parser, suffix_of, write_file, write_stdout
from .drawing import GRID, legend_below, new_figure, save, short
from .events import PHASES, measured_timeline, predicted_timelines
from .numbers import plural, time_unit
from .record import cases, load

MOST_ARROWS = 300
MOST_SHAPES = 4000  # more are drawn as pixels
FEW_RANKS = 8  # that have room for texts and arrows inside of groups
MOST_NAMED_RANKS, NAMED_STEP = 32, 8  # of more ranks every eighth has its name
LETTERS = 14  # that fit into an inch
WIDTHS = 11, 14  # inches, the least and the most
LEAST_SHARE = 1 / 2000  # of the axis: what takes no time can still be seen
PALE = 0.25  # opacity of a transfer whose other side is not there yet
WAITS = "other side not there yet", "#c8c8c8"  # in the legend
MICRO = 1e6  # a trace has microseconds
DETAILS = ["payload", "shard", "micro_batch", "link"]


class Panel:
    """Where the lanes of a timeline lie: a lane of transfers has half the height of computation,
    and messages of a batch share it."""

    def __init__(self, timeline):
        self.timeline = timeline
        self.few = timeline.ranks <= FEW_RANKS
        self.heights = {lane: 1.0 if lane == "compute" else 0.5 for lane in timeline.lanes}
        starts = numpy.cumsum([0, *self.heights.values()])
        groups = numpy.repeat(range(len(timeline.groups)), timeline.groups)
        self.tops = {}
        for rank, group in enumerate(groups):
            top = rank * (starts[-1] + 0.4) + 0.5 * group
            for lane, start in zip(self.heights, starts):
                self.tops[rank, lane] = top + start
        self.boxes = self.placed(timeline.drawn.copy())

    def placed(self, boxes):
        lanes = list(zip(boxes["rank"], boxes["lane"]))
        depth = boxes.groupby(["rank", "lane"])["row"].transform("max") + 1
        boxes["height"] = boxes["lane"].map(self.heights) / depth
        boxes["top"] = [self.tops[lane] for lane in lanes] + boxes["row"] * boxes["height"]
        boxes["middle"] = boxes["top"] + boxes["height"] / 2
        return boxes

    def bottom(self):
        return max(top + self.heights[lane] for (_, lane), top in self.tops.items())


def draw_lanes(axes, panel, seconds):
    for (_, lane), top in panel.tops.items():
        axes.broken_barh(
            [(0, seconds)],
            (top, panel.heights[lane]),
            facecolors="#808080",
            alpha=0.2 if lane == "compute" else 0.08,
            linewidth=0,
        )


def corners_of(begin, end, top, bottom):
    x, y = [begin, end, end, begin], [top, top, bottom, bottom]
    return numpy.transpose([x, y], (2, 1, 0))


def draw_actions(axes, panel, seconds):
    """Of a transfer, what comes before the other side is there is pale."""
    least = seconds * LEAST_SHARE
    waits = False
    for phase, some in panel.boxes.groupby("phase"):
        name, colour = PHASES[phase]
        late = some[some["moving"] > some["begin"]]
        waits = waits or len(late) > 0
        moving = some.assign(
            begin=some["moving"], end=some["end"].clip(lower=some["moving"] + least)
        )
        for boxes, alpha, label in (
            (late.assign(end=late["moving"]), PALE, None),
            (moving, 1, name),
        ):
            sides = boxes["begin"], boxes["end"], boxes["top"], boxes["top"] + boxes["height"]
            shapes = PolyCollection(
                corners_of(*sides),
                facecolors=colour,
                alpha=alpha,
                edgecolors="#ffffff",
                linewidths=0.3,
                label=label,
                rasterized=len(panel.boxes) > MOST_SHAPES,
            )
            axes.add_collection(shapes, autolim=False)
    if waits:
        axes.add_patch(Rectangle((0, 0), 0, 0, color=WAITS[1], label=WAITS[0]))


def text_in(event, room):
    """The longest text of an action that fits into so many letters."""
    texts = [f"s{event.shard} m{event.micro_batch}"] if event.micro_batch >= 0 else []
    return next((text for text in [*texts, f"{event.shard}"] if len(text) + 0.5 <= room), "")


def write_shards(axes, panel, letters):
    boxes = panel.boxes
    for box in boxes[(boxes["lane"] == "compute") & (boxes["shard"] >= 0)].itertuples():
        if text := text_in(box, letters * (box.end - box.begin)):
            axes.text(
                (box.begin + box.end) / 2,
                box.middle,
                text,
                ha="center",
                va="center",
                fontsize=6.5,
                color="#222222",
                clip_on=True,
            )


def draw_arrows(axes, panel):
    """Those inside of the groups of many ranks would hide what they connect."""
    boxes = panel.boxes
    sends, receives = (boxes[boxes["kind"] == kind] for kind in ("send", "recv"))
    both = sends.merge(receives, on="link", suffixes=("", "_there"))
    if not panel.few:
        both = both[both["group"] != both["group_there"]]
    if len(both) <= MOST_ARROWS:
        x, y = both[["begin", "end_there"]], both[["middle", "middle_there"]]
        lines = LineCollection(
            numpy.stack([x, y], axis=2),
            colors=[PHASES[phase][1] for phase in both["phase"]],
            linewidths=0.7,
            alpha=0.75,
        )
        axes.add_collection(lines, autolim=False)


def name_lanes(axes, panel):
    timeline = panel.timeline
    step = 1 if timeline.ranks <= MOST_NAMED_RANKS else NAMED_STEP
    groups = numpy.repeat(range(len(timeline.groups)), timeline.groups)
    ticks, texts = [], []
    for (rank, lane), top in panel.tops.items():
        text = ""
        if lane == timeline.lanes[0] and rank % step == 0:
            text = f"rank {rank} "
            text += f"(group {groups[rank]}) " if lane == "compute" else ""
        ticks.append(top + panel.heights[lane] / 2)
        texts.append(text + lane if panel.few else text)
    axes.set_yticks(ticks, texts, fontsize=7)
    axes.tick_params(axis="y", length=0)


def draw_panel(axes, timeline, seconds, inches):
    panel = Panel(timeline)
    draw_lanes(axes, panel, seconds)
    draw_actions(axes, panel, seconds)
    draw_arrows(axes, panel)
    name_lanes(axes, panel)
    if panel.few:
        write_shards(axes, panel, LETTERS * inches / seconds)
    if panel.tops:
        axes.set_ylim(panel.bottom(), 0)
    axes.set_xlim(0, seconds)
    title = "\n".join([short(timeline.heading, 100), timeline.note]).strip()
    axes.set_title(title, loc="left", fontsize=9)
    axes.grid(True, axis="x", linewidth=0.5, **GRID)


def width_of(timelines, seconds):
    """Inches in which numbers of forward blocks fit, if the page bears it."""
    forward = []
    for timeline in timelines:
        some = timeline.events[timeline.events["kind"] == "F"]
        forward.extend(some["end"] - some["begin"])
    wanted = 0.15 * seconds / (numpy.median(forward) or 1) if forward else 0
    return numpy.clip(wanted, *WIDTHS)


def draw(timelines):
    """The figure of these timelines."""
    seconds = max(timeline.length for timeline in timelines) or 1.0
    scale, unit = time_unit(seconds / 10)
    width = width_of(timelines, seconds)
    heights = [
        0.8 + timeline.ranks * min(0.15, 6 / timeline.ranks) * (1 + len(timeline.lanes))
        for timeline in timelines
    ]
    drawn = new_figure(width, sum(heights) + 0.6, margin=0.25)
    shares = {"height_ratios": heights}
    panels = drawn.subplots(len(timelines), 1, sharex=True, squeeze=False, gridspec_kw=shares)[:, 0]
    for axes, timeline in zip(panels, timelines):
        draw_panel(axes, timeline, seconds, width - 1.5)
    panels[-1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:.6g}"))
    panels[-1].set_xlabel(f"{unit} since the step began; grey: idle, or waits for transfers")
    legend_below(drawn, *panels, columns=5, order=[name for name, _ in [*PHASES.values(), WAITS]])
    return drawn


# A trace for Perfetto.


def trace(timelines):
    """An event for each action, in Chrome's format. A rank is a process, a lane a thread, with more
    threads where actions of a lane overlap."""
    events, first = [], 0

    def name(what, text, **where):
        events.append({"ph": "M", "name": f"{what}_name", "args": {"name": text}} | where)

    for timeline in timelines:
        threads = {lane: 100 * number for number, lane in enumerate(timeline.lanes)}
        drawn = timeline.drawn
        for rank in range(timeline.ranks):
            name("process", f"rank {rank}: {timeline.heading}", pid=first + rank)
        for rank, lane, row in drawn[["rank", "lane", "row"]].drop_duplicates().itertuples(False):
            where = {"pid": first + rank, "tid": threads[lane] + row}
            name("thread", f"{lane} {row + 1}" if row else lane, **where)
        for event in drawn.itertuples():
            events.append(
                {
                    "ph": "X",
                    "name": event.kind,
                    "cat": event.phase,
                    "pid": first + event.rank,
                    "tid": threads[event.lane] + event.row,
                    "ts": MICRO * event.begin,
                    "dur": MICRO * (event.end - event.begin),
                    "args": {name: getattr(event, name) for name in DETAILS},
                }
            )
        first += timeline.ranks
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}) + "\n"


# The command.


def chosen_cases(path, numbers):
    table = cases(load(path)).set_index("case", drop=False)
    kept = [case for _, case in table.iterrows() if run_with(case, "timeline/rank") is not None]
    if numbers is None and len(kept) != 1:
        raise BadInput(
            f"{path} has timelines of {plural(len(kept), 'case')}; minitaw run --timeline keeps "
            "them, and --case chooses some"
        )
    if numbers in (None, "all"):
        return kept
    chosen = []
    for number in numbers.split(","):
        if not number.isdecimal() or int(number) not in table.index:
            raise BadInput(f"{path} has no case {number}, but {plural(len(table), 'case')}")
        chosen.append(table.loc[int(number)])
    return chosen


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
        default="timeline.png",
        help="a picture (.png, .svg, .pdf) or a trace (.json); default: %(default)s",
    )
    parser.add_argument(
        "--case",
        metavar="N",
        help="numbers of cases of the result file, as 0,2 or all, if several have a timeline",
    )
    options = parser.parse_args(words)
    suffix = suffix_of(options.output, *PICTURES, ".json")
    if options.output in options.files:
        raise BadInput(f"-o: {options.output} is read")
    timelines = []
    for path in options.files:
        if path.endswith(".json"):
            timelines += predicted_timelines(path)
        else:
            timelines += map(measured_timeline, chosen_cases(path, options.case))
    if suffix == ".json":
        write_file(options.output, trace(timelines))
    else:
        save(draw(timelines), options.output)
    write_stdout(f"{options.output}\n")
