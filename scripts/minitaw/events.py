# SPDX-License-Identifier: BSD-3-Clause
"""When every action of a step ran: measured (minitaw run --timeline) or predicted (minitaw predict
--timeline)."""

from dataclasses import dataclass

import numpy
import pandas
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from .book import run_with
from .command import BadInput, from_json
from .numbers import exists
from .record import array, describe, group_sizes
from .sealed import guarded

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
# Fields of an event. Both sides of a message and all members of a collective share a link; -1: does
# not apply. Times are seconds since the step began.
TEXTS = ["lane", "kind", "payload"]
NUMBERS = ["rank", "shard", "micro_batch", "link"]
TIMES = ["begin", "end"]


@dataclass
class Timeline:
    """One step of all ranks."""

    heading: str
    note: str  # below it
    groups: list  # sizes
    events: pandas.DataFrame  # an action a row

    def __post_init__(self):
        """Raises ValueError if an event cannot be."""
        if not all(isinstance(text, str) for text in (self.heading, self.note)):
            raise ValueError("a title that is no text")
        sizes_fit = all(isinstance(size, int) and 0 < size <= MOST_RANKS for size in self.groups)
        if not sizes_fit or self.ranks > MOST_RANKS:
            raise ValueError("groups that are none")
        self.events = self.events.copy()
        check(self.events, self.ranks)
        self.complete()

    def complete(self):
        """Adds what follows: group, phase (None: no work, never drawn), when data move, and the
        row among the events of its rank and lane that overlap."""
        events = self.events
        ends = numpy.cumsum(self.groups)
        events["group"] = numpy.searchsorted(ends, events["rank"], side="right")
        moved = events["payload"].map(PAYLOADS).fillna("weights")
        phases = events["kind"].map(COMPUTE).fillna(moved)
        events["phase"] = phases.where(events["kind"] != "join", None)
        latest = events.groupby("link")["begin"].transform("max")
        alone = events["link"] < 0
        events["moving"] = latest.mask(alone, events["begin"]).clip(upper=events["end"])
        events["row"] = rows_of(events)

    @property
    def ranks(self):
        return sum(self.groups)

    @property
    def length(self):
        return float(self.events["end"].max()) if len(self.events) else 0.0

    @property
    def drawn(self):
        return self.events[self.events["phase"].notna()]

    @property
    def lanes(self):
        """Those that are used, in the order of their first appearance on any rank; compute
        first."""
        return sorted(self.drawn["lane"].unique(), key=lambda name: name != "compute")


def check(events, ranks):
    for name in (*NUMBERS, *TIMES):
        column = events[name]
        is_number = is_numeric_dtype(column) and not is_bool_dtype(column)
        if len(column) and not (is_number and (column.abs() < LARGEST_NUMBER).all()):
            raise ValueError(f"an event whose {name} is no number, or too large")
    for name in NUMBERS:
        wrong = events.index[(events[name] % 1 != 0) | (events[name] < -1)]
        if len(wrong):
            raise ValueError(f"event {wrong[0]} has {name} {events[name][wrong[0]]}")
    for name in TEXTS:
        if not events[name].map(lambda text: isinstance(text, str)).all():
            raise ValueError(f"an event whose {name} is no text")
    if not events["rank"].between(0, ranks - 1).all():
        raise ValueError(f"events of ranks that are not among {ranks}")


def rows_of(events):
    rows, ends = pandas.Series(0, events.index), {}
    for event in events[events["phase"].notna()].sort_values(TIMES).itertuples():
        taken = ends.setdefault((event.rank, event.lane), [])
        free = (row for row, end in enumerate(taken) if end <= event.begin)
        row = next(free, len(taken))
        taken[row : row + 1] = [event.end]
        rows[event.Index] = row
    return rows


# Reading.


def measured_timeline(case):
    """Of a case that run --timeline has kept."""
    where = f"case {case['case']} of {case['file'].path}"
    run = run_with(case, "timeline/rank")
    if run is None:
        raise BadInput(f"{where} has no timeline; minitaw run --timeline keeps it")
    columns = {name: array(run, f"timeline/{name}") for name in (*TEXTS, *NUMBERS, *TIMES)}
    heading = f"{describe(run)} (measured)"

    def made():
        return Timeline(heading, "", group_sizes(run), pandas.DataFrame(columns))

    found = guarded(run["file"].path, made)
    found.note = note_on(run, found.length)
    return found


def note_on(run, length):
    """Where the time of the step went, in percent."""
    exposed, idle = 100 * run["exposed_share"], 100 * run["idle_share"]
    note = (
        f"step {1e3 * length:.4g} ms: {100 - exposed - idle:.1f}% computing, "
        f"{exposed:.1f}% exposed to transfers, {idle:.1f}% idle"
    )
    if exists(run["overlap"]) and run["overlap"] >= 0:
        note += f"; {100 * run['overlap']:.1f}% of communication hidden"
    return note


def predicted_timeline(one):
    """Of one object of a file. Raises one of command.MISSHAPEN if it is none."""
    heading, _, note = one["title"].partition("\n")
    columns = {name: one["events"][name] for name in (*NUMBERS, *TIMES)}
    for name in TEXTS:
        columns[name] = [one["codes"][name][code] for code in one["events"][name]]
    return Timeline(f"{heading} (predicted)", note, one["groups"], pandas.DataFrame(columns))


def predicted_timelines(path):
    """Those of a file that minitaw predict --timeline has written."""

    def timelines_of(content):
        return list(map(predicted_timeline, content["timelines"]))

    found = from_json(path, timelines_of, "timeline of minitaw predict --timeline")
    if not found:
        raise BadInput(f"{path} holds no timeline; minitaw predict --timeline writes them")
    return found
