# SPDX-License-Identifier: BSD-3-Clause
"""Timelines of steps drawn one above the other over a common axis of time, a row for each rank and
lane (docs/show.md)."""

import numpy
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from .command import PICTURES, BadInput, Parser, suffix_of, write_stdout
from .drawing import GRID, legend_below, new_figure, save, short
from .events import PHASES, measured_timeline, predicted_timelines, rows_of
from .numbers import plural, time_unit
from .record import load

MOST_ARROWS = 300
MOST_SHAPES = 4000  # more are drawn as pixels
FEW_RANKS = 8  # that have room for texts and arrows inside of groups
MOST_NAMED_RANKS, NAMED_STEP = 32, 8  # of more ranks every eighth has its name
LETTERS = 14  # that fit into an inch
WIDTHS = 11, 14  # inches, the least and the most
LEAST_SHARE = 1 / 2000  # of the axis: what takes no time can still be seen
PALE = 0.25  # opacity of a transfer whose other side is not there yet
WAITS = "other side not there yet", "#c8c8c8"  # in the legend


class Panel:
    """Where the lanes of a timeline lie: a lane of transfers has half the height of computation,
    and messages of a batch share it."""

    def __init__(self, timeline):
        self.timeline = timeline
        self.few = timeline.ranks <= FEW_RANKS
        self.heights = {lane: 1.0 if lane == "compute" else 0.5 for lane in timeline.lanes}
        starts = numpy.cumsum([0, *self.heights.values()])
        of_rank = sum(self.heights.values()) + 0.4
        self.tops = {}
        for rank in range(timeline.ranks):
            top = rank * of_rank + 0.5 * timeline.group_of(rank)
            for lane, start in zip(self.heights, starts):
                self.tops[rank, lane] = top + start
        self.boxes = list(self.boxes_of())

    def boxes_of(self):
        """(event, top, height) of what is drawn."""
        rows, depth = rows_of(self.timeline)
        for event, row in zip(self.timeline.events, rows):
            if row is not None:
                lane = event.rank, event.lane
                height = self.heights[event.lane] / depth[lane]
                yield event, self.tops[lane] + row * height, height

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


def text_in(event, room):
    """The longest text of an action that fits into so many letters."""
    if event.shard < 0:
        return ""
    texts = [f"s{event.shard} m{event.micro_batch}"] if event.micro_batch >= 0 else []
    return next((text for text in [*texts, str(event.shard)] if len(text) + 0.5 <= room), "")


def corners_of(begin, end, top, height):
    return [(begin, top), (end, top), (end, top + height), (begin, top + height)]


def draw_actions(axes, panel, seconds, inches):
    """Of a transfer, what comes before the other side is there is pale."""
    full, pale = {}, {}
    moving = panel.timeline.moving_begins()
    for event, top, height in panel.boxes:
        begin = min(moving.get(event.link, event.begin), event.end)
        end = max(event.end, begin + seconds * LEAST_SHARE)
        full.setdefault(event.phase, []).append(corners_of(begin, end, top, height))
        if begin > event.begin:
            pale.setdefault(event.phase, []).append(corners_of(event.begin, begin, top, height))
        text = text_in(event, LETTERS * inches / seconds * (end - event.begin))
        if text and panel.few and event.lane == "compute":
            axes.text(
                (event.begin + end) / 2,
                top + height / 2,
                text,
                ha="center",
                va="center",
                fontsize=6.5,
                color="#222222",
                clip_on=True,
            )
    is_large = len(panel.boxes) > MOST_SHAPES
    for polygons, alpha in ((pale, PALE), (full, 1)):
        for phase, some in polygons.items():
            shapes = PolyCollection(
                some,
                facecolors=PHASES[phase][1],
                alpha=alpha,
                edgecolors="#ffffff",
                linewidths=0.3,
                label=PHASES[phase][0] if alpha == 1 else None,
                rasterized=is_large,
            )
            axes.add_collection(shapes, autolim=False)
    if pale:
        axes.add_patch(Rectangle((0, 0), 0, 0, color=WAITS[1], label=WAITS[0]))


def arrows_of(panel):
    """(phase, line) of each message; those inside of the groups of many ranks would hide what they
    connect."""
    sends = {box[0].link: box for box in panel.boxes if box[0].kind == "send"}
    group_of = panel.timeline.group_of
    for event, top, height in panel.boxes:
        if event.kind == "recv" and event.link in sends:
            send, send_top, send_height = sends[event.link]
            if panel.few or group_of(send.rank) != group_of(event.rank):
                begin = send.begin, send_top + send_height / 2
                yield send.phase, [begin, (event.end, top + height / 2)]


def draw_arrows(axes, arrows):
    if len(arrows) <= MOST_ARROWS:
        lines = LineCollection(
            [line for _, line in arrows],
            colors=[PHASES[phase][1] for phase, _ in arrows],
            linewidths=0.7,
            alpha=0.75,
        )
        axes.add_collection(lines, autolim=False)


def name_lanes(axes, panel):
    timeline = panel.timeline
    step = 1 if timeline.ranks <= MOST_NAMED_RANKS else NAMED_STEP
    ticks, texts = [], []
    for (rank, lane), top in panel.tops.items():
        text = ""
        if lane == timeline.lanes[0] and rank % step == 0:
            text = f"rank {rank} "
            text += f"(group {timeline.group_of(rank)}) " if lane == "compute" else ""
        ticks.append(top + panel.heights[lane] / 2)
        texts.append(text + lane if panel.few else text)
    axes.set_yticks(ticks, texts, fontsize=7)
    axes.tick_params(axis="y", length=0)


def draw_panel(axes, timeline, seconds, inches):
    panel = Panel(timeline)
    draw_lanes(axes, panel, seconds)
    draw_actions(axes, panel, seconds, inches)
    draw_arrows(axes, list(arrows_of(panel)))
    name_lanes(axes, panel)
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
        forward += [event.end - event.begin for event in timeline.events if event.kind == "F"]
    wanted = 0.15 * seconds / (numpy.median(forward) or 1) if forward else 0
    least, most = WIDTHS
    return min(max(wanted, least), most)


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


# The command.


def chosen_cases(path, numbers):
    cases = load(path).cases
    kept = [case for case in cases if case.has_timeline]
    if numbers is None and len(kept) != 1:
        raise BadInput(
            f"{path} has timelines of {plural(len(kept), 'case')}; minitaw run --timeline keeps "
            "them, and --case chooses some"
        )
    if numbers in (None, "all"):
        return kept
    chosen = []
    for number in numbers.split(","):
        if not number.isdecimal() or int(number) >= len(cases):
            raise BadInput(f"{path} has no case {number}, but {plural(len(cases), 'case')}")
        chosen.append(cases[int(number)])
    return chosen


def main(words=None):
    parser = Parser(
        prog="timeline",
        description="Draws when the actions of a step ran: of result files (minitaw run "
        "--timeline) and of predictions (minitaw predict --timeline STEP.json), one above the "
        "other on one axis of time (docs/show.md).",
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="result file (.h5), or predicted steps (.json)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        default="timeline.png",
        help="a picture (.png, .svg, .pdf; default: %(default)s)",
    )
    parser.add_argument(
        "--case",
        metavar="N",
        help="numbers of cases of the result file, as 0,2 or all, if several have a timeline",
    )
    options = parser.parse_args(words)
    suffix_of(options.output, *PICTURES)
    timelines = []
    for path in options.files:
        if path.endswith(".json"):
            timelines += predicted_timelines(path)
        else:
            timelines += map(measured_timeline, chosen_cases(path, options.case))
    save(draw(timelines), options.output)
    write_stdout(f"{options.output}\n")
