# SPDX-License-Identifier: BSD-3-Clause
"""The sections of a page of results: each is a list of blocks, or a text that says why there is
none (docs/show.md). report.html has their titles and what is true of every page."""

import numpy
import pandas

from . import charts
from .book import Failures, Picture, table
from .drawing import as_image
from .events import measured_timeline
from .numbers import (
    NO_FIGURE,
    bytes_text,
    count_text,
    figure,
    listed,
    percent,
    plural,
    seconds_text,
)
from .provenance import session_texts
from .record import array, describe, labels, reason_of, rows_of, transfers
from .scaling import scaling_section
from .settings import panels
from .timeline import draw as draw_timelines

MOST_PANELS, MOST_TIMELINES = 12, 4  # of a page, which says how many there are

# Bytes come first: they are exact.
FIGURES = {
    "bytes_between": ("between groups", bytes_text),
    "tokens_per_s": ("token/s", figure),
    "median_s": ("step, median", seconds_text),
    "spread": ("spread", percent),
    "memory_measured": ("memory, worst rank", bytes_text),
    "exposed_share": ("exposed", percent),
    "idle_share": ("idle", percent),
    "mfu": ("MFU", percent),
}
MORE_FIGURES = {
    "bytes_inside": ("inside groups", bytes_text),
    "rate_between": ("GB/s between", figure),
    "rate_inside": ("GB/s inside", figure),
    "overlap": ("overlap", percent),
    "tflops_causal": ("TFLOP/s", figure),
    "last_loss": ("last loss", lambda value: figure(value, 5)),
    "gradient_error": ("gradient error", lambda value: f"{value:.0e}" if value else "0"),
}
ENERGY = {
    "energy": ("timed steps [J]", figure),
    "energy_per_token": ("[J/token]", figure),
}
# Of bytes: what a table calls them, colour and hatch.
TRAFFIC_KINDS = {
    "weights": ("weights", "#d55e00", ""),
    "gradients": ("gradients", "#e69f00", "////"),
    "activations": ("activations", "#cc79a7", "\\\\\\\\"),
    "embeddings": ("embedding and head", "#56b4e9", "xxxx"),
    "context": ("keys and values", "#009e73", "...."),
}
# Of a step: what a table calls it, colour and hatch.
STEP_PARTS = {
    "compute_s": ("computing", "#4d4d4d", ""),
    **{f"exposed_{kind}_s": (f"waiting for {name}", *look)
       for kind, (name, *look) in TRAFFIC_KINDS.items()},
    "idle_s": ("idle", "#c8c8c8", ""),
}  # fmt: skip


# Cases.


def failures_of(cases):
    """Rows of the cases that are not valid: status, reason, and which they are."""
    bad = cases[~cases.valid]
    reasons = [reason_of(case) for case in rows_of(bad)]
    rows = []
    for (status, reason), some in bad.assign(why=reasons).groupby(["status", "why"], sort=False):
        which = ", ".join(some.label + " (" + some.schedule + ")")
        word = status if status != "ok" else "INVALID"
        rows.append((word, reason.removeprefix(f"{status}: "), which))
    return rows


def doubts_of(cases):
    """ "no warm-up and noisy: 2, 5" """

    def kind_of(doubt):
        return " and ".join(part.partition(":")[0] for part in doubt.split("; "))

    some = cases[cases.doubt != ""]
    kinds = some.groupby(some.doubt.map(kind_of), sort=False)["label"]
    return "; ".join(f"{kind}: {listed(which)}" for kind, which in kinds)


def cases_section(book):
    failed, doubts = failures_of(book.cases), doubts_of(book.valid)
    statuses = book.cases.status.value_counts(sort=False)
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    said = f"{plural(len(book.cases), 'case')}: {counts}."
    if doubts:
        said += f" Valid with a doubt, {doubts}."
    elif not failed:
        said += " All ended valid."
    for file in book.files:
        letter = file.letter and file.letter + ": "
        if file.slowest:
            said += f" {letter}{file.slowest[:1].upper()}{file.slowest[1:]}."
    return [
        said,
        Failures(failed),
        table("All cases", book.cases, FIGURES),
        table("More figures", book.cases, MORE_FIGURES),
    ]


# Charts.


def traffic_of(cases, between):
    """Bytes of a step by kind, a row for each case."""
    moved = [transfers(case) for case in rows_of(cases)]
    rows = [some[some.between == between].groupby("kind").counted.sum() for some in moved]
    return pandas.DataFrame(rows, cases.index, list(TRAFFIC_KINDS)).fillna(0).astype(int)


def charts_of(book, cases):
    """{title: figure} of bytes between groups, throughput, memory and where the time of a step
    went, all of valid cases, without those of which they have no figures. Bytes and time are those
    of the longest sequence."""

    def against_length(column, units, more=""):
        across = charts.label_of("seq", "token")
        points = charts.points_of(cases, column)
        return charts.chart(points, book.styles, column, units, across, more)

    last = cases[cases.seq == cases.seq.max()]
    timed = last[last.compute_s.notna()]
    at = f"at {count_text(int(cases.seq.max()))} tokens"
    ends = {True: "repetitions", False: "quartiles"}
    repeated = (cases.runs.map(len) > 1).unique()
    whiskers = ", whiskers: " + " or ".join(ends[one] for one in repeated)
    found = {}
    if (cases.bytes_between > 0).any():
        sent, sizes = f"sent between groups {at} [{{}}/step]", traffic_of(last, True)
        found["Bytes between groups"] = charts.stack(last.line, sizes, TRAFFIC_KINDS, sent, "B")
    found["Throughput"] = against_length("tokens_per_s", "token/s", whiskers)
    found["Memory"] = against_length("memory_measured", "B")
    if len(timed):
        step, parts = f"step {at}, mean over ranks [{{}}]", timed[list(STEP_PARTS)]
        found["Time of a step"] = charts.stack(timed.line, parts, STEP_PARTS, step, "s")
    return found


def charts_section(book):
    if book.valid.empty:
        return "there is no valid case"
    every = panels(book.valid)
    pictures = [
        Picture(", ".join(filter(None, [name, title])), as_image(drawn))
        for title, cases in every[:MOST_PANELS]
        for name, drawn in charts_of(book, cases).items()
    ]
    rest = len(every) - MOST_PANELS
    said = f"{plural(rest, 'panel')} more not drawn; the tables have their numbers."
    return [pictures, *[said] * (rest > 0)]


# Tables by kind.


def traffic_section(book):
    moved = book.valid[book.valid.bytes_inside + book.valid.bytes_between > 0]
    if moved.empty:
        return "no valid case moved any"
    tables = []
    for where in ("between", "inside"):
        if (moved[f"bytes_{where}"] > 0).any():
            sizes = traffic_of(moved, where == "between")
            sizes.insert(0, "all", sizes.sum(axis=1))
            titles = {kind: title for kind, (title, *_) in TRAFFIC_KINDS.items()}
            texts = sizes.map(bytes_text).rename(columns=titles)
            caption = f"Bytes {where} groups of a step, all ranks together"
            tables.append(table(caption, moved, {}, texts))
    return tables


def time_section(book):
    known = book.cases[book.cases.compute_s.notna()]
    if known.empty:
        return "no case has it"
    columns = {name: (title, seconds_text) for name, (title, _, _) in STEP_PARTS.items()}
    return [table("Parts of a step, mean over ranks", known, columns)]


def memory_texts(run):
    """Of the rank that got most by kind, and what the others got; and the ticks in which ranks
    compute nothing."""
    memory, idle = array(run, "memory/measured"), array(run, "idle_ticks")
    of_ranks = memory.sum(axis=1)
    rising = numpy.sort(of_ranks)
    sizes = {"worst rank": rising[-1]}
    sizes |= dict(zip(labels(run, "memory/measured"), memory[of_ranks.argmax()]))
    sizes |= {"median rank": rising[len(rising) // 2], "least": rising[0]}
    ticks = NO_FIGURE
    if idle.size and run.ticks:
        ticks = f"{figure(float(idle.mean()), 3)} of {run.ticks}"
    texts = {name: bytes_text(int(size)) for name, size in sizes.items()}
    return texts | {"ticks without work": ticks}


def memory_section(book):
    known, runs = book.with_array("memory/measured")
    if known.empty:
        return "no case ran far enough"
    texts = pandas.DataFrame(map(memory_texts, runs), known.index)
    return [table("Memory of the worst rank, and of others", known, {}, texts)]


def energy_section(book):
    known = book.cases[book.cases.energy.notna()]
    if known.empty:
        ended = book.cases[book.cases.status == "ok"]
        reasons = ended["energy_source"].str.removeprefix("unavailable: ").unique()
        return "unavailable: " + ("; ".join(reasons) or "no case ran to its end with them")
    sources = {"counters of": known.energy_source}
    return [table("Energy of the timed steps", known, ENERGY, sources)]


# The rest.


def timelines_section(book):
    """One case of each schedule, the longest sequence first."""
    known, _ = book.with_array("timeline/rank")
    if known.empty:
        return "the file has none; minitaw run --timeline keeps them"
    chosen = known.loc[known.groupby("line", sort=False)["seq"].idxmax()].head(MOST_TIMELINES)
    rest = listed(known.label.drop(chosen.index))
    said = f"The file has more, of cases {rest}: scripts/timeline FILE --case N draws any."
    pictures = []
    for case in rows_of(chosen):
        title = f"Case {case.label}: {describe(case)}"
        address = as_image(draw_timelines([measured_timeline(case)]))
        pictures.append(Picture(title, address, wide=True))
    return [pictures, *[said] * bool(rest)]


def provenance_section(book):
    blocks = []
    for file in book.files:
        letter = file.letter and file.letter + ": "
        sessions = plural(len(file.sessions), "session")
        blocks += [f"{letter}{file.path.name}, {sessions}.", session_texts(file)]
    return blocks


# What makes them, in the order of the page.
SECTIONS = {
    "cases": cases_section,
    "charts": charts_section,
    "traffic": traffic_section,
    "scaling": scaling_section,
    "time": time_section,
    "memory": memory_section,
    "timelines": timelines_section,
    "energy": energy_section,
    "provenance": provenance_section,
}
