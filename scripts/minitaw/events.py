# SPDX-License-Identifier: BSD-3-Clause
"""When every action of a step ran: measured (minitaw run --timeline) or predicted (minitaw predict
--timeline)."""

from dataclasses import dataclass, fields

import numpy

from .command import BadInput, from_json
from .numbers import plural
from .reader import RENEW
from .record import describe, read_timeline

# Phase: what a legend calls it, colour. Hues of the palette of Okabe and Ito; compute in full
# colours, transfers in shades that differ in lightness too.
PHASES = {
    "F": ("F: forward", "#56b4e9"),
    "BW": ("BW: backward, both halves", "#e69f00"),
    "B": ("B: backward towards the input", "#c98500"),
    "W": ("W: backward towards the weights", "#f5d76b"),
    "E": ("embedding, head, loss", "#009e73"),
    "U": ("update, add, zero", "#8c8c8c"),
    "weights": ("transfer: weights", "#0072b2"),
    "gradients": ("transfer: gradients", "#d55e00"),
    "activations": ("transfer: activations", "#cc79a7"),
    "embeddings": ("transfer: embedding, norm, head", "#00573f"),
    "context": ("transfer: keys and values", "#7a5195"),
}
COMPUTE = {
    "F": "F",
    "BW": "BW",
    "B": "B",
    "W": "W",
    "F.keys": "F",
    "F.attend": "F",
    "B.keys": "B",
    "B.attend": "B",
    "B.weights": "W",
    "B.finish": "B",
    "embed": "E",
    "loss": "E",
    "dembed": "E",
    "zero": "U",
    "add": "U",
    "load": "U",
    "square": "U",
    "update": "U",
}
# The phase of what moves.
PAYLOADS = {
    "weights": "weights",
    "gradient": "gradients",
    "activation": "activations",
    "activation_grad": "activations",
    "keys": "context",
    "key_gradient": "context",
    "embeddings": "embeddings",
    "embeddings_gradient": "embeddings",
    "squares": "gradients",
}
LARGEST_NUMBER = 2**53  # that JSON keeps
MOST_RANKS = 2**16  # that a drawing has rows for


@dataclass(slots=True)
class Event:
    """One action of one rank. Both sides of a message and all members of a collective share a
    link. -1: does not apply."""

    rank: int
    lane: str
    kind: str
    payload: str
    shard: int
    micro_batch: int
    link: int
    begin: float  # seconds since the step began
    end: float

    @property
    def phase(self):
        """None for what is no work: never drawn."""
        if self.kind == "join":
            return None
        return COMPUTE.get(self.kind) or PAYLOADS.get(self.payload, "weights")

    def fault(self):
        """The first field that cannot be, as "link -7"; empty if all can."""
        for one in fields(self):
            value = getattr(self, one.name)
            if one.type is str:
                good = isinstance(value, str)
            elif one.type is float:
                good = is_number(value)
            else:
                good = isinstance(value, int) and is_number(value)
                good = good and value >= (0 if one.name == "rank" else -1)
            if not good:
                return f"{one.name} {str(value)[:40]}"
        return ""


COLUMNS = [one.name for one in fields(Event)]


def is_number(value):
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and abs(value) < LARGEST_NUMBER


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

    def moving_begins(self):
        """{link: seconds at which the last side of a message, or member of a collective, is
        there}: data move from then on."""
        latest = {}
        for event in self.events:
            if event.link >= 0:
                latest[event.link] = max(latest.get(event.link, 0.0), event.begin)
        return latest

    @property
    def lanes(self):
        """Those that are used, in the order of their first appearance on any rank; compute
        first."""
        names = dict.fromkeys(event.lane for event in self.events if event.phase)
        return sorted(names, key=lambda name: name != "compute")

    def check(self):
        """Raises ValueError if an event cannot be."""
        if not all(isinstance(text, str) for text in (self.heading, self.note)):
            raise ValueError("a title that is no text")
        sizes_fit = all(isinstance(size, int) and 0 < size <= MOST_RANKS for size in self.groups)
        if not sizes_fit or self.ranks > MOST_RANKS:
            raise ValueError("groups that are none")
        for number, event in enumerate(self.events):
            if fault := event.fault():
                raise ValueError(f"event {number} has {fault}")
            if event.rank >= self.ranks:
                ranks = f"rank {event.rank} of {plural(self.ranks, 'rank')}"
                raise ValueError(f"event {number} has {ranks}")


def events_of(columns):
    return [Event(*values) for values in zip(*(columns[name] for name in COLUMNS))]


def measured_timeline(case):
    """Of a case that run --timeline has kept."""
    number, path = case["case"], case.file.path
    if not case.has_timeline:
        raise BadInput(f"case {number} of {path} has no timeline; minitaw run --timeline keeps it")
    heading = f"{describe(case)} (measured)"
    found = Timeline(heading, "", case.group_sizes, events_of(read_timeline(case)))
    try:
        found.check()
    except ValueError as error:
        raise BadInput(
            f"{path} is damaged, or no result of miniTaw: the timeline of case {number}: {error}; "
            f"{RENEW}"
        ) from error
    found.note = note_on(case, found.length)
    return found


def note_on(case, length):
    """Where the time of the step went, in percent."""
    exposed, idle = 100 * case["exposed_share"], 100 * case["idle_share"]
    note = (
        f"step {1e3 * length:.4g} ms: {100 - exposed - idle:.1f}% computing, "
        f"{exposed:.1f}% exposed to transfers, {idle:.1f}% idle"
    )
    if case["overlap"] >= 0:
        note += f"; {100 * case['overlap']:.1f}% of communication hidden"
    return note


def predicted_timeline(one):
    """Of one object of a file. Raises one of command.MISSHAPEN if it is none."""
    heading, _, note = one["title"].partition("\n")
    columns = dict(one["events"])
    for name, codes in one["codes"].items():
        columns[name] = [codes[code] for code in one["events"][name]]
    if len({len(columns[name]) for name in COLUMNS}) != 1:
        raise ValueError("columns of different lengths")
    found = Timeline(f"{heading} (predicted)", note, one["groups"], events_of(columns))
    found.check()
    return found


def predicted_timelines(path):
    """Those of a file that minitaw predict --timeline has written."""

    def timelines_of(content):
        return list(map(predicted_timeline, content["timelines"]))

    found = from_json(path, timelines_of, "timeline of minitaw predict --timeline")
    if not found:
        raise BadInput(f"{path} holds no timeline; minitaw predict --timeline writes them")
    return found


def rows_of(timeline):
    """The row of each event among those of its rank and lane that overlap; None for what is not
    drawn. And how many rows each (rank, lane) has."""
    events = timeline.events
    rows, ends = [None] * len(events), {}
    for i in sorted(range(len(events)), key=lambda i: (events[i].begin, events[i].end)):
        event = events[i]
        if event.phase:
            taken = ends.setdefault((event.rank, event.lane), [])
            free = (row for row, end in enumerate(taken) if end <= event.begin)
            row = next(free, len(taken))
            taken[row : row + 1] = [event.end]
            rows[i] = row
    return rows, {lane: len(taken) for lane, taken in ends.items()}
