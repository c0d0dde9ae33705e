# SPDX-License-Identifier: BSD-3-Clause
"""When every action of a step ran: measured (minitaw run --timeline) or predicted (minitaw predict
--timeline)."""

import numpy
import pandas

from .book import run_with
from .command import BadInput, from_json
from .numbers import percent, plural, seconds_text
from .record import array, clean, describe, group_sizes
from .sealed import guarded

# Phase: what a legend calls it, colour, and the kinds of actions, or of what transfers move. Hues
# of the palette of Okabe and Ito; compute in full colours, transfers in shades that differ in
# lightness too.
PHASES = {
    "F": ("F: forward", "#56b4e9", "F"),
    "BW": ("BW: backward, both halves", "#e69f00", "BW"),
    "B": ("B: backward towards the input", "#c98500", "B"),
    "W": ("W: backward towards the weights", "#f5d76b", "W"),
    "E": ("embedding, head, loss", "#009e73", "embed loss dembed"),
    "U": ("update, add, zero", "#8c8c8c", "zero add load square update"),
    "weights": ("transfer: weights", "#0072b2", "weights"),
    "gradients": ("transfer: gradients", "#d55e00", "gradient squares"),
    "activations": ("transfer: activations", "#cc79a7", "activation activation_grad"),
    "embeddings": (
        "transfer: embedding, norm, head",
        "#00573f",
        "embeddings embeddings_gradient",
    ),
    "context": ("transfer: keys and values", "#7a5195", "keys key_gradient"),
}
PHASE_OF = {kind: phase for phase, (_, _, kinds) in PHASES.items() for kind in kinds.split()}
LARGEST_NUMBER = 2**53  # that JSON keeps
MOST_RANKS = 2**16  # that a step has
SHOWN = range(32)  # ranks, unless others are asked for
# Fields of an event. Both sides of a message and all members of a collective share a link; -1: does
# not apply. Times are seconds since the step began.
TEXTS = ["lane", "kind", "segment", "payload"]
NUMBERS = ["rank", "shard", "micro_batch", "link"]
TIMES = ["begin", "end"]
TYPES = dict.fromkeys(TEXTS, str) | dict.fromkeys(NUMBERS, int) | dict.fromkeys(TIMES, float)


class Timeline:
    """One step of some ranks."""

    def __init__(self, heading, note, groups, column, ranks=SHOWN):
        """column(name): of the events of all ranks, too many to hold all columns. Raises one of
        command.MISSHAPEN if an event cannot be. Adds what follows: phase (None: no work, never
        drawn), when data move, and the row among the events of a rank and lane that overlap."""
        count = sum(groups)
        if not 0 < min(groups) <= count <= MOST_RANKS:
            raise ValueError("groups that are none")
        self.heading, self.note, self.groups = heading, note, groups  # sizes
        self.ranks = sorted({*range(count)} & {*ranks})
        if len(self.ranks) < count:
            self.heading += f"; {len(self.ranks)} of the ranks, chosen by --ranks"
        at = numpy.flatnonzero(numpy.isin(column("rank"), self.ranks))
        events = pandas.DataFrame({name: column(name)[at] for name in TYPES}).astype(TYPES)
        self.events, self.length = events, column("end").max(initial=0)
        good = (events.link >= -1).all() and (events[TIMES] >= 0).all(axis=None)
        good = good and numpy.isin(column("rank"), range(count)).all()
        if not (good and self.length < LARGEST_NUMBER):
            raise ValueError(f"an event that cannot be of {plural(count, 'rank')}")
        whole = events.segment == "all"
        events["name"] = events.kind.where(whole, events.kind + "." + events.segment)
        moved = events.payload.map(PHASE_OF).fillna("weights")
        events["phase"] = events.kind.map(PHASE_OF).fillna(moved).mask(events.kind == "join", None)
        if self.drawn.empty:
            raise BadInput(f"--ranks: none of these acts in {heading}, of ranks 0 to {count - 1}")
        links = column("link")
        shared = numpy.isin(links, events.link[events.link >= 0])  # with ranks that are not shown
        latest = pandas.Series(column("begin")[shared]).groupby(links[shared]).max()
        moving = events.link.map(latest).fillna(events.begin)
        events["moving"] = moving.clip(upper=events.end)
        events["row"] = rows_of(self.drawn).reindex(events.index, fill_value=-1)

    @property
    def drawn(self):
        return self.events[self.events.phase.notna()]

    @property
    def lanes(self):
        """Those that are used, in the order of their first appearance on any rank; compute
        first."""
        return sorted(self.drawn.lane.unique(), key=lambda name: name != "compute")


def rows_of(events):
    rows, ends = {}, {}
    for event in events.sort_values(TIMES).itertuples():
        taken = ends.setdefault((event.rank, event.lane), [])
        free = (row for row, end in enumerate(taken) if end <= event.begin)
        rows[event.Index] = row = next(free, len(taken))
        taken[row : row + 1] = [event.end]
    return pandas.Series(rows, dtype=int)


# Reading.


def measured_timeline(case, ranks=SHOWN):
    """Of a case that run --timeline has kept."""
    path, run = case.file.path, run_with(case, "timeline/rank")
    if run is None:
        raise BadInput(
            f"case {case.case} of {path} has no timeline; minitaw run --timeline keeps it"
        )

    def made():
        found = Timeline(heading, "", group_sizes(run), column, ranks)
        found.note = note_on(run, found.length)
        return found

    def column(name):
        return array(run, f"timeline/{name}")

    heading = f"{describe(run)} (measured)"
    return guarded(path, made)


def note_on(run, length):
    """Where the time of the step went, in percent."""
    exposed, idle = run.exposed_share, run.idle_share
    hidden = f"; {percent(run.overlap)} of communication hidden" if run.overlap >= 0 else ""
    return (
        f"step {seconds_text(length)}: {percent(1 - exposed - idle)} computing, "
        f"{percent(exposed)} exposed to transfers, {percent(idle)} idle{hidden}"
    )


def predicted_timeline(one, ranks):
    """Of one object of a file. Raises one of command.MISSHAPEN if it is none."""
    heading, _, note = clean(one["title"]).partition("\n")
    columns = {name: numpy.array(one["events"][name]) for name in TYPES}
    for name in TEXTS:
        columns[name] = numpy.array(one["codes"][name])[columns[name]]
    return Timeline(f"{heading} (predicted)", note, one["groups"], columns.get, ranks)


def predicted_timelines(path, ranks=SHOWN):
    """Those of a file that minitaw predict --timeline has written."""

    def made(content):
        return [predicted_timeline(one, ranks) for one in content["timelines"]]

    found = from_json(path, made, "timeline of minitaw predict --timeline")
    if not found:
        raise BadInput(f"{path} holds no timeline; minitaw predict --timeline writes them")
    return found
