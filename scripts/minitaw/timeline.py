# SPDX-License-Identifier: BSD-3-Clause
"""When every action of a step ran: measured (minitaw run --timeline) or predicted (minitaw predict
--timeline), drawn or for Perfetto."""

import json
import pathlib
from collections import namedtuple
from dataclasses import dataclass

import numpy
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.ticker import FuncFormatter

from .command import BadInput, Parser, plural, write_file, write_stdout
from .figures import PICTURES, legend_below, new_figure, save, short, time_unit
from .layout import ANEW
from .record import describe, load, read_bytes, read_timeline

# Phase: what a legend calls it, colour. Hues of the palette of Okabe and Ito; compute in full
# colours, transfers in shades that differ in lightness too.
PHASES = {
    "F": ("F: forward", "#56b4e9"),
    "BW": ("BW: backward, both halves", "#e69f00"),
    "B": ("B: backward towards the input", "#c98500"),
    "W": ("W: backward towards the weights", "#f5d76b"),
    "E": ("embedding, head, loss", "#009e73"),
    "U": ("update, add, zero", "#8c8c8c"),
    "weights": ("transfer of weights", "#0072b2"),
    "gradients": ("of gradients", "#d55e00"),
    "activations": ("of activations and their gradients", "#cc79a7"),
    "embeddings": ("of embedding, norm, head", "#00573f"),
}
COMPUTE = {
    "F": "F",
    "BW": "BW",
    "B": "B",
    "W": "W",
    "embed": "E",
    "loss": "E",
    "dembed": "E",
    "zero": "U",
    "add": "U",
    "load": "U",
    "square": "U",
    "update": "U",
}
# Of what moves: its phase, and the letter that stands for it in a text.
PAYLOADS = {
    "weights": ("weights", "W"),
    "gradient": ("gradients", "G"),
    "activation": ("activations", "A"),
    "activation_grad": ("activations", "D"),
    "embeddings": ("embeddings", "E"),
    "embeddings_gradient": ("embeddings", "EG"),
    "squares": ("gradients", "N"),
}
COLUMNS = [
    "rank",
    "lane",
    "kind",
    "payload",
    "tick",
    "shard",
    "micro_batch",
    "peer",
    "link",
    "ready",
    "begin",
    "end",
]
MOST_ARROWS, MOST_SHAPES = 300, 4000
MOST_THREADS = (
    1000  # of a lane in a Chrome trace: messages of a batch overlap, slices of one thread must not
)


class Event(namedtuple("Event", COLUMNS)):
    """One action of one rank; times in seconds since the step began. -1: does not apply. Both sides
    of a message and all members of a collective share a link."""

    @property
    def phase(self):
        """None for what is no work: never drawn."""
        return (
            None
            if self.kind == "join"
            else COMPUTE.get(self.kind) or PAYLOADS.get(self.payload, ("weights",))[0]
        )

    def text(self):
        """ "F s3 m1", "send W3 to r5", "broadcast W3, root r2" """
        letter = PAYLOADS.get(self.payload, ("", "s"))[1]
        text = self.kind + (
            f" {letter}{self.shard}" if self.shard >= 0 else f" {letter}" if letter != "s" else ""
        )
        text += f" m{self.micro_batch}" if self.micro_batch >= 0 else ""
        return text + (
            f"{ {'send': ' to', 'recv': ' from'}.get(self.kind, ', root')} r{self.peer}"
            if self.peer >= 0
            else ""
        )


@dataclass
class Timeline:
    """One step of all ranks."""

    heading: str
    note: str  # below it
    groups: list  # sizes
    events: list

    @property
    def ranks(self):
        return sum(self.groups)

    @property
    def length(self):
        return max((event.end for event in self.events), default=0.0)

    def group_of(self, rank):
        return int(numpy.searchsorted(numpy.cumsum(self.groups), rank, side="right"))

    @property
    def lanes(self):
        """Those that are used, in the order of their first appearance on any rank; compute
        first."""
        names = dict.fromkeys(event.lane for event in self.events if event.phase)
        return sorted(names, key=lambda name: name != "compute")


def events_of(columns):
    return [Event(*values) for values in zip(*(columns[name] for name in COLUMNS))]


def measured_timeline(case):
    """Of a case that run --timeline has kept."""
    if not case.has_timeline:
        raise BadInput(
            f"case {case['case']} of {case.file.path} has no timeline; minitaw run --timeline keeps it"
        )
    found = Timeline(
        f"{describe(case)} (measured)",
        "",
        [int(size) for size in case["groups"].split("+")],
        events_of(read_timeline(case)),
    )
    try:
        checked(found)
    except ValueError as error:
        raise BadInput(
            f"{case.file.path} is damaged, or no result of miniTaw: the timeline of case "
            f"{case['case']}: {error}; {ANEW}"
        ) from error
    exposed, idle = 100 * case["exposed_share"], 100 * case["idle_share"]
    found.note = f"step {1e3 * found.length:.4g} ms: {100 - exposed - idle:.1f}% computing, {exposed:.1f}% exposed to transfers, {idle:.1f}% idle"
    found.note += (
        f"; {100 * case['overlap']:.1f}% of communication hidden" if case["overlap"] >= 0 else ""
    )
    return found


LEAST = {name: -1 for name in ("shard", "micro_batch", "peer", "link")} | {
    "rank": 0,
    "tick": -(2**31),
}
LARGEST, MOST_RANKS = 2**53, 2**16  # numbers that JSON keeps; ranks that a drawing has rows for


def checked(timeline):
    """The timeline, if all of its events are some. Raises ValueError."""

    def is_number(value):
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST
        )

    def is_index(name, value):
        return isinstance(value, int) and value >= LEAST[name]

    if not all(isinstance(text, str) for text in (timeline.heading, timeline.note)):
        raise ValueError("a title that is no text")
    if (
        not all(isinstance(size, int) and 0 < size <= MOST_RANKS for size in timeline.groups)
        or timeline.ranks > MOST_RANKS
    ):
        raise ValueError("groups that are none")
    for number, event in enumerate(timeline.events):
        for name in COLUMNS:
            value, is_time = getattr(event, name), name in ("ready", "begin", "end")
            if name in ("lane", "kind", "payload"):
                is_good = isinstance(value, str)
            else:
                is_good = is_number(value) and (is_time or is_index(name, value))
            if not is_good:
                raise ValueError(f"event {number} has {name} {str(value)[:40]}")
        if event.rank >= timeline.ranks or event.peer >= timeline.ranks:
            raise ValueError(
                f"event {number} has rank {event.rank}, peer {event.peer} "
                f"of {plural(timeline.ranks, 'rank')}"
            )
    return timeline


def predicted_timelines(path):
    """Those of a file that minitaw predict --timeline has written."""
    found, content = [], read_bytes(path)
    try:
        for one in json.loads(content)["timelines"]:
            heading, _, note = one["title"].partition("\n")
            columns = one["events"] | {
                name: [codes[code] for code in one["events"][name]]
                for name, codes in one["codes"].items()
            }
            if len({len(columns[name]) for name in COLUMNS}) != 1:
                raise ValueError("columns of different lengths")
            found.append(
                checked(Timeline(f"{heading} (predicted)", note, one["groups"], events_of(columns)))
            )
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise BadInput(
            f"{path} is no timeline of minitaw predict --timeline, or it is damaged "
            f"({type(error).__name__}: {str(error)[:100]})"
        ) from error
    if not found:
        raise BadInput(f"{path} holds no timeline; minitaw predict --timeline writes them")
    return found


# A Chrome trace in the JSON object format, which Perfetto (ui.perfetto.dev) and chrome://tracing
# open.


def rows_of(timeline):
    """The row of each event among those of its rank and lane that overlap; None for what is not
    drawn. And the rows of each lane."""
    rows, ends, depth = [None] * len(timeline.events), {}, {}
    for i in sorted(
        range(len(rows)), key=lambda i: (timeline.events[i].begin, timeline.events[i].end)
    ):
        event = timeline.events[i]
        if event.phase:
            place = ends.setdefault((event.rank, event.lane), [])
            row = next((row for row, end in enumerate(place) if end <= event.begin), len(place))
            place[row : row + 1] = [event.end]
            rows[i] = row
            depth[event.rank, event.lane] = len(place)
    return rows, depth


def chrome_trace(timelines):
    """Every rank of every timeline is a process, every lane a thread; messages are flows from send
    to receive. Microseconds."""
    found, first, links = [], 1, 0  # process 0 means the idle process

    def name(kind, process, thread, text):
        """In the order of their numbers."""
        found.append(
            {
                "name": f"{kind}_name",
                "ph": "M",
                "pid": process,
                "tid": thread,
                "args": {"name": text},
            }
        )
        found.append(
            {
                "name": f"{kind}_sort_index",
                "ph": "M",
                "pid": process,
                "tid": thread,
                "args": {"sort_index": thread or process},
            }
        )

    for timeline in timelines:
        rows, depth = rows_of(timeline)
        threads = {lane: number * MOST_THREADS + 1 for number, lane in enumerate(timeline.lanes)}
        for rank in range(timeline.ranks):
            name(
                "process",
                first + rank,
                0,
                f"{timeline.heading}: rank {rank}, group {timeline.group_of(rank)}",
            )
            for lane, row in (
                (one, row) for one in threads for row in range(depth.get((rank, one), 0))
            ):
                name(
                    "thread",
                    first + rank,
                    threads[lane] + row,
                    lane + (f" ({row + 1})" if row else ""),
                )
        drawn = [
            (event, threads[event.lane] + row)
            for event, row in zip(timeline.events, rows)
            if row is not None
        ]
        sends = {event.link: (event, thread) for event, thread in drawn if event.kind == "send"}
        for event, thread in drawn:
            args = {
                "shard": event.shard,
                "micro_batch": event.micro_batch,
                "peer" if event.kind in ("send", "recv") else "root": event.peer,
                "link": event.link,
            }
            found.append(
                {
                    "name": event.text(),
                    "cat": PHASES[event.phase][0],
                    "ph": "X",
                    "pid": first + event.rank,
                    "tid": thread,
                    "ts": 1e6 * event.begin,
                    "dur": 1e6 * max(0.0, event.end - event.begin),
                    "args": {"tick": event.tick, "waited_us": 1e6 * (event.begin - event.ready)}
                    | {key: value for key, value in args.items() if value >= 0},
                }
            )
            if event.kind == "recv" and event.link in sends:
                send, from_thread = sends[event.link]
                left = (send.begin + send.end) / 2
                # An arrow that ends before it starts is not drawn, and one that ends outside its
                # slice goes astray.
                arrived = min(max(left, event.begin), max(event.begin, event.end))
                flow = {"name": send.text(), "cat": "message", "id": links + event.link}
                found.append(
                    flow
                    | {"ph": "s", "pid": first + send.rank, "tid": from_thread, "ts": 1e6 * left}
                )
                found.append(
                    flow
                    | {
                        "ph": "f",
                        "pid": first + event.rank,
                        "tid": thread,
                        "ts": 1e6 * arrived,
                        "bp": "e",
                    }
                )
        first += timeline.ranks
        links += 1 + max((event.link for event in timeline.events), default=0)
    notes = {timeline.heading: timeline.note for timeline in timelines if timeline.note}
    return (
        json.dumps(
            {"displayTimeUnit": "ms", "otherData": notes, "traceEvents": found}, ensure_ascii=False
        )
        + "\n"
    )


# Drawings: timelines one above the other over a common axis of time, a row for each rank and lane.


def draw_panel(axes, timeline, seconds, inches):
    """A lane of transfers has half the height of computation; messages of a batch share it."""
    heights = {lane: 1.0 if lane == "compute" else 0.5 for lane in timeline.lanes}
    starts = dict(zip(heights, numpy.cumsum([0, *heights.values()])))
    tops = {
        (rank, lane): rank * (sum(heights.values()) + 0.4) + 0.5 * timeline.group_of(rank) + start
        for rank in range(timeline.ranks)
        for lane, start in starts.items()
    }
    rows, depth = rows_of(timeline)
    shares = {place: heights[place[1]] / count for place, count in depth.items()}
    boxes = [
        (
            event,
            tops[event.rank, event.lane] + row * shares[event.rank, event.lane],
            shares[event.rank, event.lane],
        )
        for event, row in zip(timeline.events, rows)
        if row is not None
    ]
    few = timeline.ranks <= 8
    for (_, lane), top in tops.items():
        axes.broken_barh(
            [(0, seconds)],
            (top, heights[lane]),
            facecolors="#808080",
            alpha=0.2 if lane == "compute" else 0.08,
            linewidth=0,
        )
    polygons, sends, arrows = {}, {}, []
    letters = 14 * inches / seconds  # that fit into a second
    for event, top, height in boxes:
        end = max(event.end, event.begin + seconds / 2000)  # what takes no time can still be seen
        polygons.setdefault(event.phase, []).append(
            [(event.begin, top), (end, top), (end, top + height), (event.begin, top + height)]
        )
        if event.kind == "send":
            sends[event.link] = event, (event.begin, top + height / 2)
        texts = (
            ([f"s{event.shard} m{event.micro_batch}"] if event.micro_batch >= 0 else [])
            + [str(event.shard)]
            if event.shard >= 0
            else []
        )
        text = next(
            (text for text in texts if len(text) + 0.5 <= letters * (end - event.begin)), ""
        )
        if text and few and event.lane == "compute":
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
    for event, top, height in boxes:
        if event.kind == "recv" and event.link in sends:
            send, begin = sends[event.link]
            if few or timeline.group_of(send.rank) != timeline.group_of(
                event.rank
            ):  # all of many ranks would hide what they connect
                arrows.append((send.phase, [begin, (event.end, top + height / 2)]))
    for phase, some in polygons.items():
        axes.add_collection(
            PolyCollection(
                some,
                facecolors=PHASES[phase][1],
                edgecolors="#ffffff",
                linewidths=0.3,
                label=PHASES[phase][0],
                rasterized=len(boxes) > MOST_SHAPES,
            ),
            autolim=False,
        )
    if len(arrows) <= MOST_ARROWS:
        axes.add_collection(
            LineCollection(
                [line for _, line in arrows],
                colors=[PHASES[phase][1] for phase, _ in arrows],
                linewidths=0.7,
                alpha=0.75,
            ),
            autolim=False,
        )
    step = 1 if timeline.ranks <= 32 else 8
    ticks = {
        (tops[rank, lane] + heights[lane] / 2): (
            f"rank {rank} " + ("" if lane != "compute" else f"(group {timeline.group_of(rank)}) ")
            if lane == timeline.lanes[0] and rank % step == 0
            else ""
        )
        for rank, lane in tops
    }
    axes.set_yticks(
        list(ticks),
        [text + lane if few else text for text, (_, lane) in zip(ticks.values(), tops)],
        fontsize=7,
    )
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(top + heights[lane] for (_, lane), top in tops.items()), 0) if tops else None
    axes.set_xlim(0, seconds)
    axes.set_title(
        "\n".join([short(timeline.heading, 100), timeline.note]).strip(), loc="left", fontsize=9
    )
    axes.grid(True, axis="x", color="#808080", alpha=0.25, linewidth=0.5)


def draw(timelines):
    """The figure of these timelines."""
    seconds = max(timeline.length for timeline in timelines) or 1.0
    scale, unit = time_unit(seconds / 10)
    forward = [
        event.end - event.begin
        for timeline in timelines
        for event in timeline.events
        if event.kind == "F"
    ]
    width = min(
        max(0.15 * seconds / (numpy.median(forward) or 1) if forward else 0, 11), 14
    )  # numbers of forward blocks fit, if the page bears it
    heights = [
        0.8 + timeline.ranks * min(0.15, 6 / timeline.ranks) * (1 + len(timeline.lanes))
        for timeline in timelines
    ]
    drawn = new_figure(width, sum(heights) + 0.6, margin=0.25)
    panels = drawn.subplots(
        len(timelines), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for axes, timeline in zip(panels, timelines):
        draw_panel(axes, timeline, seconds, width - 1.5)
    panels[-1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:.6g}"))
    panels[-1].set_xlabel(f"{unit} since the step began; grey: idle, or waits")
    legend_below(drawn, *panels, columns=5, order=[name for name, _ in PHASES.values()])
    return drawn


# The command.


def chosen_cases(path, numbers):
    cases = load(path).cases
    kept = [case for case in cases if case.has_timeline]
    if numbers is None and len(kept) != 1:
        raise BadInput(
            f"{path} has timelines of {plural(len(kept), 'case')}; minitaw run --timeline keeps them, and --case chooses some"
        )
    if numbers in (None, "all"):
        return kept
    if unknown := [
        number
        for number in numbers.split(",")
        if not number.isdecimal() or int(number) >= len(cases)
    ]:
        raise BadInput(f"{path} has no case {unknown[0]}, but {plural(len(cases), 'case')}")
    return [cases[int(number)] for number in numbers.split(",")]


def main(words=None):
    parser = Parser(
        prog="timeline",
        description="Draws when the actions of a step ran: of result files (minitaw run --timeline) and of predictions "
        "(minitaw predict --timeline STEP.json), one above the other on one axis of time (docs/show.md).",
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="result file (.h5), or predicted steps (.json)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        default="timeline.png",
        help="a picture (.png, .svg, .pdf), or a Chrome trace for ui.perfetto.dev (.json); default: timeline.png",
    )
    parser.add_argument(
        "--case",
        metavar="N",
        help="numbers of cases of the result file, as 0,2 or all, if several have a timeline",
    )
    options = parser.parse_args(words)
    suffix = pathlib.Path(options.output).suffix
    if suffix not in (*PICTURES, ".json"):
        raise BadInput(
            f'-o: "{options.output}" must end in .png, .svg or .pdf (a picture) or .json (a Chrome trace, for Perfetto)'
        )
    timelines = []
    for path in options.files:
        timelines += (
            predicted_timelines(path)
            if path.endswith(".json")
            else map(measured_timeline, chosen_cases(path, options.case))
        )
    if suffix == ".json":
        write_file(options.output, chrome_trace(timelines))
    else:
        save(draw(timelines), options.output)
    write_stdout(f"{options.output}\n")
