"""When every action of a step ran: measured (minitaw run --timeline) or planned (minitaw plan --timeline), drawn or for Perfetto.

Phases are classified here and nowhere else; the page of scripts/report uses them too.
"""

import json
import pathlib
import subprocess
import tempfile
from dataclasses import dataclass

import numpy

from .command import BadInput, Parser, put_out, write_file
from .record import describe, load, read_timeline

# Phase: what a legend calls it, colour. Hues of the palette of Okabe and Ito, which colour-blind readers tell apart; compute in full
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
    "ends": ("of embedding, norm, head", "#00573f"),
}
COMPUTE = {"F": "F", "BW": "BW", "B": "B", "W": "W", "embed": "E", "loss": "E", "dembed": "E"}
LOCAL = {"zero", "add", "load", "update"}
PAYLOADS = {"weights": "weights", "gradient": "gradients", "activation": "activations", "activation_grad": "activations", "ends": "ends",
            "ends_gradient": "ends"}
LETTERS = {"weights": "W", "gradient": "G", "activation": "A", "activation_grad": "D", "ends": "E", "ends_gradient": "EG"}
COLUMNS = ["rank", "lane", "kind", "payload", "tick", "shard", "micro_batch", "peer", "link", "ready", "begin", "end"]
MOST_ARROWS, MOST_LABELS = 300, 4000
MOST_THREADS = 1000  # of a lane in a Chrome trace: messages of a batch overlap, slices of one thread must not


def phase_of(kind, payload):
    """None for what is no work: never drawn."""
    if kind == "join":
        return None
    if kind in COMPUTE:
        return COMPUTE[kind]
    return "U" if kind in LOCAL else PAYLOADS.get(payload, "weights")


@dataclass(slots=True)
class Event:
    """One action of one rank; times in seconds since the step began. -1: does not apply. Both sides of a message and all members of a
    collective share a link."""
    rank: int
    lane: str
    kind: str
    payload: str
    tick: int
    shard: int
    micro_batch: int
    peer: int
    link: int
    ready: float
    begin: float
    end: float

    @property
    def phase(self):
        return phase_of(self.kind, self.payload)

    @property
    def is_transfer(self):
        return self.kind not in COMPUTE and self.kind not in LOCAL and self.kind != "join"

    def text(self):
        """"F s3 m1", "send W3 to r5", "broadcast W3, root r2" """
        what = LETTERS.get(self.payload, "s") + (str(self.shard) if self.shard >= 0 else "")
        text = self.kind + (f" {what}" if what != "s" else "") + (f" m{self.micro_batch}" if self.micro_batch >= 0 else "")
        if self.peer < 0:
            return text
        return f"{text} to r{self.peer}" if self.kind == "send" else f"{text} from r{self.peer}" if self.kind == "recv" else f"{text}, root r{self.peer}"


@dataclass
class Timeline:
    """One step of all ranks."""
    title: str     # the first line is a heading
    measured: bool
    groups: list   # sizes
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
        """Those that are used, in the order of their first appearance on any rank; compute first."""
        names = dict.fromkeys(event.lane for event in self.events if event.phase)
        return sorted(names, key=lambda name: name != "compute")


def events_of(columns):
    lists = [columns[name] if isinstance(columns[name], list) else columns[name].tolist() for name in COLUMNS]
    return [Event(*values) for values in zip(*lists)]


def measured_timeline(case):
    """Of a case that run --timeline has kept."""
    if not case.has_timeline:
        raise BadInput(f"case {case['case']} of {case.file.path} has no timeline; minitaw run --timeline keeps it")
    events = events_of(read_timeline(case))
    compute, exposed, idle = 1 - case["exposed_share"] - case["bubble"], case["exposed_share"], case["bubble"]
    length = max((event.end for event in events), default=0)
    parts = f"step {1e3 * length:.4g} ms: {100 * compute:.1f}% computing, {100 * exposed:.1f}% exposed to transfers, {100 * idle:.1f}% idle"
    if case["overlap"] >= 0:
        parts += f"; {100 * case['overlap']:.1f}% of communication hidden"
    return Timeline(f"{describe(case)}\n{parts}", True, [int(size) for size in case["groups"].split("+")], events)


def planned_timelines(path):
    """Those of a file that minitaw plan --timeline has written."""
    try:
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        return [of_json(one) for one in found["timelines"]]
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadInput(f"{path} is no timeline of minitaw plan --timeline, or it is damaged") from error


def of_json(one):
    codes, columns = one["codes"], one["events"]
    return Timeline(one["title"], False, one["groups"],
                    events_of(columns | {name: [codes[name][code] for code in columns[name]] for name in codes}))


# The plan of a measured case, in which every action takes its measured mean.

def mean_costs(timeline, rank_by_rank):
    """Seconds of actions that are alike, in the form of minitaw plan --costs: of a compute or local action the mean over all actions of
    the same kind, payload and shard on any rank (where micro-batches differ, on the same one); of a transfer the mean time from when the
    last of its sides began until the last one ended."""
    def inside(event):
        if event.kind in ("send", "recv"):
            return timeline.group_of(event.rank) == timeline.group_of(event.peer)
        return not event.lane.endswith("_in")  # collectives that leave a group have the lanes of receives

    transfers, seconds = {}, {}
    for event in timeline.events:
        rank = event.rank if rank_by_rank and not event.is_transfer else -1
        alike = ("send" if event.kind == "recv" else event.kind, inside(event), event.payload, event.shard, rank)
        if event.link < 0:
            seconds.setdefault(alike, []).append(event.end - event.begin)
        else:
            _, begin, end = transfers.get(event.link, (alike, event.begin, event.end))
            transfers[event.link] = alike, max(begin, event.begin), max(end, event.end)
    for alike, begin, end in transfers.values():
        seconds.setdefault(alike, []).append(max(0.0, end - begin))
    names = ("kind", "inside", "payload", "shard", "rank")
    return [dict(zip(names, alike)) | {"seconds": float(numpy.mean(values))} for alike, values in seconds.items()]


DECK_KEYS = ["schedule", "ranks", "groups", "replicas", "layers", "hidden", "heads", "kv_heads", "vocab", "dtype", "recompute", "seq",
             "micro_batch", "micro_batches", "steps", "warmup"]


def deck_of(case):
    """A deck of this case alone."""
    keys = {name: case[name] for name in DECK_KEYS}
    for text, one, several in (("ffn", "ffn", "ffn_per_layer"), ("micro_batch_per_rank", "micro_batch", "micro_batch_per_rank")):
        sizes = [int(size) for size in case[text].split(",") if size]
        if len(sizes) > 1:
            keys.pop(one, None)
            keys[several] = sizes
        elif sizes:
            keys[one] = sizes[0]
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in keys.items())


def planned_beside(case, measured, program):
    """The plan of a measured case with its mean durations."""
    with tempfile.TemporaryDirectory() as folder:
        deck, costs, trace = (pathlib.Path(folder, name) for name in ("deck.toml", "costs.json", "plan.json"))
        deck.write_text(deck_of(case), encoding="utf-8")
        costs.write_text(json.dumps(mean_costs(measured, bool(case["micro_batch_per_rank"]))), encoding="utf-8")
        try:
            done = subprocess.run([program, "plan", deck, "--costs", costs, "--timeline", trace, "--json"], capture_output=True, text=True,
                                  check=False)
        except OSError as error:
            raise BadInput(f"--program: {program} cannot be run: {error.strerror}") from error
        if done.returncode:
            raise BadInput(f"--planned: {done.stderr.removeprefix('minitaw: ').strip() or 'minitaw plan failed'}")
        return planned_timelines(trace)


# A Chrome trace in the JSON object format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

def rows_of(timeline):
    """The row of each event among those of its rank and lane that overlap; None for what is not drawn. And the rows of each lane."""
    rows, ends, depth = [None] * len(timeline.events), {}, {}
    for i in sorted(range(len(rows)), key=lambda i: (timeline.events[i].begin, timeline.events[i].end)):
        event = timeline.events[i]
        if event.phase:
            place = ends.setdefault((event.rank, event.lane), [])
            row = next((row for row, end in enumerate(place) if end <= event.begin), len(place))
            place[row:row + 1] = [event.end]
            rows[i] = row
            depth[event.rank, event.lane] = len(place)
    return rows, depth


class Trace:
    """Every rank of every timeline is a process, every lane a thread; messages are flows from send to receive. Microseconds."""

    def __init__(self):
        self.events, self.notes, self.first, self.links = [], {}, 1, 0  # process 0 means the idle process

    def name(self, what, process, thread, key, value):
        self.events.append({"name": what, "ph": "M", "pid": process, "tid": thread, "args": {key: value}})

    def add(self, timeline):
        heading, _, note = timeline.title.partition("\n")
        title = f"{heading} ({'measured' if timeline.measured else 'planned'})"
        if note:
            self.notes[title] = note
        rows, depth = rows_of(timeline)
        threads = {lane: number * MOST_THREADS + 1 for number, lane in enumerate(timeline.lanes)}
        for rank in range(timeline.ranks):
            process = self.first + rank
            self.name("process_name", process, 0, "name", f"{title}: rank {rank}, group {timeline.group_of(rank)}")
            self.name("process_sort_index", process, 0, "sort_index", process)
            for lane, thread in threads.items():
                for row in range(depth.get((rank, lane), 0)):
                    self.name("thread_name", process, thread + row, "name", lane + (f" ({row + 1})" if row else ""))
                    self.name("thread_sort_index", process, thread + row, "sort_index", thread + row)
        for event, row in zip(timeline.events, rows):
            if row is not None:
                self.slice(event, threads[event.lane] + row)
        self.flows(timeline, rows, threads)
        self.first += timeline.ranks
        self.links += 1 + max((event.link for event in timeline.events), default=0)

    def slice(self, event, thread):
        other = "peer" if event.kind in ("send", "recv") else "root"
        args = {"tick": event.tick, "waited_us": 1e6 * (event.begin - event.ready)}
        args |= {name: value for name, value in (("shard", event.shard), ("micro_batch", event.micro_batch), (other, event.peer),
                                                 ("link", event.link)) if value >= 0}
        self.events.append({"name": event.text(), "cat": PHASES[event.phase][0], "ph": "X", "pid": self.first + event.rank, "tid": thread,
                            "ts": 1e6 * event.begin, "dur": 1e6 * max(0.0, event.end - event.begin), "args": args})

    def flows(self, timeline, rows, threads):
        sends = {event.link: (event, row) for event, row in zip(timeline.events, rows) if event.kind == "send"}
        for to, row in zip(timeline.events, rows):
            if to.kind == "recv" and to.link in sends:
                send, send_row = sends[to.link]
                left = (send.begin + send.end) / 2
                # An arrow that ends before it starts is not drawn, and one that ends outside its slice goes astray.
                for phase, event, at, place in (("s", send, left, send_row), ("f", to, min(max(left, to.begin), max(to.begin, to.end)), row)):
                    flow = {"name": send.text(), "cat": "message", "ph": phase, "id": self.links + to.link, "pid": self.first + event.rank,
                            "tid": threads[event.lane] + place, "ts": 1e6 * at}
                    self.events.append(flow | ({"bp": "e"} if phase == "f" else {}))

    def text(self):
        return json.dumps({"displayTimeUnit": "ms", "otherData": self.notes, "traceEvents": self.events}, ensure_ascii=False) + "\n"


def chrome_trace(timelines):
    trace = Trace()
    for timeline in timelines:
        trace.add(timeline)
    return trace.text()


# Drawings: timelines one above the other over a common axis of time, a row for each rank and lane.

class Panel:
    """Where the rows of one timeline lie, in points from its top downwards."""

    def __init__(self, timeline):
        self.timeline, ranks = timeline, timeline.ranks
        compute, transfer, self.gap = (20, 9, 8) if ranks <= 8 else (11, 4, 3) if ranks <= 32 else (6, 2.5, 1)
        self.heights = {lane: compute if lane == "compute" else transfer for lane in timeline.lanes}
        self.rank_height = sum(self.heights.values()) + self.gap
        self.height = self.rank_height * ranks + 5 * (len(timeline.groups) - 1)
        self.large = ranks <= 8
        starts = numpy.cumsum([0, *self.heights.values()])
        self.starts = dict(zip(self.heights, starts))

    def rank_top(self, rank):
        return self.rank_height * rank + 5 * self.timeline.group_of(rank)

    def lane_top(self, rank, lane):
        return self.rank_top(rank) + self.starts[lane]

    def boxes(self):
        """(event, left, top, width, height); messages of a batch share the height of their lane."""
        rows, depth = rows_of(self.timeline)
        for event, row in zip(self.timeline.events, rows):
            if row is not None:
                height = self.heights[event.lane] / depth[event.rank, event.lane]
                yield event, event.begin, self.lane_top(event.rank, event.lane) + row * height, event.end - event.begin, height


def numbers_micro_batches(timeline):
    """Whether blocks carry the micro-batch, because every rank always has the same shard."""
    shards = {}
    for event in timeline.events:
        if event.kind == "F":
            shards.setdefault(event.rank, set()).add(event.shard)
    return all(len(some) == 1 for some in shards.values())


def draw_lanes(axes, panel):
    from matplotlib.patches import Rectangle

    timeline = panel.timeline
    for rank in range(timeline.ranks):
        for lane, height in panel.heights.items():
            axes.add_patch(Rectangle((0, panel.lane_top(rank, lane)), 1, height, transform=axes.get_yaxis_transform(), linewidth=0,
                                     facecolor="#e4e4e4" if lane == "compute" else "#f6f6f6", zorder=0))
            if panel.large:
                axes.text(-0.004, panel.lane_top(rank, lane) + height / 2, lane, transform=axes.get_yaxis_transform(), ha="right", va="center",
                          fontsize=6, color="#555555")
        if panel.rank_height >= 10 or rank % 8 == 0:
            axes.text(-0.085 if panel.large else -0.004, panel.rank_top(rank) + panel.heights.get("compute", 0) / 2, f"rank {rank}" if panel.large else f"{rank}",
                      transform=axes.get_yaxis_transform(), ha="left" if panel.large else "right", va="center", fontsize=8)
    first = 0
    for group, size in enumerate(timeline.groups):
        top, bottom = panel.rank_top(first), panel.rank_top(first + size - 1) + panel.rank_height - panel.gap
        axes.add_patch(Rectangle((-0.105, top), 0.012, bottom - top, transform=axes.get_yaxis_transform(), clip_on=False, linewidth=0,
                                 facecolor="#dfe6ee"))
        axes.text(-0.099, (top + bottom) / 2, f"group {group}" if bottom - top > 50 else f"{group}", transform=axes.get_yaxis_transform(),
                  rotation=90, ha="center", va="center", fontsize=7)
        first += size


def label_of(event, by_micro_batch, letters):
    """The longest label that fits into so many letters, whatever the numbers in it: "s3 m1", "3" or nothing. `letters`:
    of the widest shard and micro-batch, and the room."""
    shard, micro_batch, room = letters
    if event.shard < 0:
        return ""
    if event.micro_batch >= 0 and shard + micro_batch + 3 <= room:
        return f"s{event.shard} m{event.micro_batch}"
    if by_micro_batch and event.micro_batch >= 0:
        return f"{event.micro_batch}" if micro_batch <= room else ""
    return f"{event.shard}" if shard <= room else ""


def draw_panel(axes, panel, seconds, points):
    """`points`: width of the axes."""
    from matplotlib.collections import LineCollection, PolyCollection

    draw_lanes(axes, panel)
    boxes, polygons, labels = list(panel.boxes()), {}, 0
    by_micro_batch = numbers_micro_batches(panel.timeline)
    widest = [max((len(str(getattr(event, name))) for event in panel.timeline.events), default=1) for name in ("shard", "micro_batch")]
    for event, x, y, width, height in boxes:
        width = max(width, 0.5 * seconds / points)  # what takes no time can still be seen
        polygons.setdefault(event.phase, []).append([(x, y), (x + width, y), (x + width, y + height), (x, y + height)])
        size = min(9, height - 2)
        letters = (*widest, (points * width / seconds - 2) / (0.62 * size)) if size >= 5 and labels < MOST_LABELS else (1, 1, 0)
        label = label_of(event, by_micro_batch, letters)
        if label:
            labels += 1
            axes.text(x + width / 2, y + height / 2, label, ha="center", va="center_baseline", fontsize=size, clip_on=True,
                      color="white" if event.is_transfer else "#222222")
    for phase, some in polygons.items():
        axes.add_collection(PolyCollection(some, facecolors=PHASES[phase][1], edgecolors="white", linewidths=0.3), autolim=False)
    arrows = arrows_of(panel.timeline, boxes)
    axes.add_collection(LineCollection([line for _, line in arrows], colors=[PHASES[phase][1] for phase, _ in arrows], linewidths=0.7, alpha=0.75),
                        autolim=False)
    heading, *notes = panel.timeline.title.split("\n")
    axes.set_title(f"{heading} ({'measured' if panel.timeline.measured else 'planned'})", loc="left", fontsize=10, fontweight="bold", x=-0.105,
                   pad=4 + 10 * len(notes))
    for number, note in enumerate(notes):
        axes.annotate(note, (-0.105, 1), (0, 4 + 10 * (len(notes) - 1 - number)), xycoords="axes fraction", textcoords="offset points", fontsize=8)
    axes.set_ylim(panel.height, 0)
    axes.set_yticks([])
    axes.grid(True, axis="x", color="black", alpha=0.12, linewidth=0.5)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)


def arrows_of(timeline, boxes):
    """[(phase, (from, to))] of all messages; of those between groups alone where all would hide what they connect."""
    sends = {event.link: (event, x, y + height / 2) for event, x, y, _, height in boxes if event.kind == "send"}
    found = []
    for event, x, y, width, height in boxes:
        if event.kind == "recv" and event.link in sends:
            send, from_x, from_y = sends[event.link]
            found.append((send, event, (send.phase, [(from_x, from_y), (x + width, y + height / 2)])))
    if len(found) > MOST_ARROWS or timeline.ranks > 8:
        found = [one for one in found if timeline.group_of(one[0].rank) != timeline.group_of(one[1].rank)]
    return [arrow for _, _, arrow in found] if len(found) <= MOST_ARROWS else []


def width_of(timelines, seconds):
    """Points: so that the numbers of forward blocks fit, unless that is too much for a page."""
    forward = [event.end - event.begin for timeline in timelines for event in timeline.events if event.kind == "F"]
    middle = float(numpy.median(forward)) if forward else 0
    return min(max(11 * seconds / middle if middle > 0 else 0, 800), 1150)


def draw(timelines):
    """The figure of these timelines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter

    plt.rcParams["svg.hashsalt"] = "minitaw"  # the same file from the same numbers
    seconds = max(timeline.length for timeline in timelines) or 1.0
    scale, unit = next((scale, unit) for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= 10 * scale or scale == 1e-6)
    panels, width = [Panel(timeline) for timeline in timelines], width_of(timelines, seconds)
    heads = [20 + 10 * timeline.title.count("\n") for timeline in timelines]
    height = sum(panel.height + head + 34 for panel, head in zip(panels, heads)) + 44
    left, right = 0.105 * width / (1.11 * width) + 0.004, 0.995
    figure = plt.figure(figsize=(width / (right - left) / 72, height / 72))
    y = height
    for panel, head in zip(panels, heads):
        y -= head + panel.height
        axes = figure.add_axes((left, y / height, right - left, panel.height / height))
        axes.set_xlim(0, seconds)
        draw_panel(axes, panel, seconds, width)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:.6g}"))
        axes.tick_params(labelsize=8)
        axes.set_xlabel(f"{unit} since the step began", fontsize=8)
        y -= 34
    seen = {event.phase for timeline in timelines for event in timeline.events}
    entries = [Patch(facecolor=colour, label=name) for phase, (name, colour) in PHASES.items() if phase in seen]
    entries.append(Patch(facecolor="#e4e4e4", label="idle, or waits"))
    figure.legend(handles=entries, loc="lower left", ncols=max(1, min(len(entries), int(width / 150))), fontsize=8, frameon=False,
                  bbox_to_anchor=(0.0, 0.0))
    return figure


# The command.

def chosen_cases(path, text):
    result = load(path)
    with_timeline = [case for case in result.cases if case.has_timeline]
    if text is None:
        if not with_timeline:
            raise BadInput(f"no case of {path} has a timeline; minitaw run --timeline keeps them")
        if len(with_timeline) > 1:
            raise BadInput(f"{path} has timelines of {len(with_timeline)} cases; choose with --case, for example --case {with_timeline[0].number}")
        return with_timeline
    if text == "all":
        return with_timeline
    numbers = text.split(",")
    for number in numbers:
        if not number.isdecimal() or int(number) >= len(result.cases):
            raise BadInput(f"{path} has no case {number}; it has {len(result.cases)} case{'' if len(result.cases) == 1 else 's'}")
    return [result.cases[int(number)] for number in numbers]


def timelines_of(options):
    timelines = []
    for path in options.files:
        if pathlib.Path(path).suffix == ".json":
            timelines += planned_timelines(path)
            continue
        for case in chosen_cases(path, options.case):
            measured = measured_timeline(case)
            timelines += planned_beside(case, measured, options.program) if options.planned else []
            timelines.append(measured)
    return timelines


def main(words=None):
    parser = Parser(prog="timeline", description="Draws when the actions of a step ran: of result files (minitaw run --timeline) and of plans "
                                                 "(minitaw plan --timeline PLAN.json), one above the other on one axis of time (docs/show.md).")
    parser.add_argument("files", metavar="FILE", nargs="+", help="result file (.h5), or a plan (.json)")
    parser.add_argument("-o", "--output", metavar="OUT", default="timeline.png",
                        help="a picture (.png, .svg, .pdf), or a Chrome trace for ui.perfetto.dev (.json); default: timeline.png")
    parser.add_argument("--case", metavar="N", help="numbers of cases of the result file, as 0,2 or all, if several have a timeline")
    parser.add_argument("--planned", action="store_true", help="draw the plan of each case above it: every action takes its measured mean")
    parser.add_argument("--program", default="build/host/minitaw", help="the program that plans (default: %(default)s)")
    options = parser.parse_args(words)
    suffix = pathlib.Path(options.output).suffix
    if suffix not in (".png", ".svg", ".pdf", ".json"):
        raise BadInput(f"-o: \"{options.output}\" must end in .png, .svg or .pdf (a picture) or .json (a Chrome trace, for Perfetto)")
    timelines = timelines_of(options)
    if suffix == ".json":
        write_file(options.output, chrome_trace(timelines))
    else:
        save(draw(timelines), options.output)
    put_out(f"{options.output}\n")


def save(figure, path):
    """The same file from the same numbers."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    try:
        figure.savefig(path, dpi=110, metadata=undated.get(pathlib.Path(path).suffix))
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error
