# SPDX-License-Identifier: BSD-3-Clause
"""The sections of a page of results: each is a list of blocks, or a text that says why there is
none (docs/report.md)."""

import numpy
import pandas

from . import charts
from .book import Failures, Picture, figures_of, table
from .drawing import WIDTH, as_image
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
from .record import array, describe, labels, reason_of, transfers
from .scaling import scaling_section
from .settings import panels
from .timeline import draw as draw_timelines

MOST_TIMELINES = 4  # of a page

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
    "tflops_rank": ("TFLOP/s per rank", figure),
    "last_loss": ("last loss", lambda value: figure(value, 5)),
    "gradient_error": ("gradient error", lambda value: f"{value:.0e}"),
}
ENERGY = {
    "energy": ("timed steps [J]", figure),
    "energy_per_token": ("[J/token]", figure),
}
ABOUT_FIGURES = (
    "Marks: ✔ valid, ! valid with a doubt, ✘ not valid. A sample is the step of the slowest rank. "
    "Spread: third minus first quartile of the samples, as a share of the median. Bytes between "
    "groups are those of one step, all ranks together: exact. Exposed: held up by transfers; idle: "
    "nothing to do; both are shares of the time of a step, mean over ranks."
)
ABOUT_MORE_FIGURES = (
    "Overlap: hidden part of the communication. Gradient error: against the serial reference, – "
    "where it was not checked."
)


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
    bad = cases[~cases["valid"]]
    reasons = [reason_of(case) for case in bad.itertuples()]
    rows = []
    for (status, reason), some in bad.assign(why=reasons).groupby(["status", "why"], sort=False):
        which = ", ".join(some["label"] + " (" + some["schedule"] + ")")
        word = status if status != "ok" else "INVALID"
        rows.append((word, reason.removeprefix(f"{status}: "), which))
    return rows


def doubts_of(cases):
    """ "no warm-up and noisy: 2, 5" """

    def kind_of(doubt):
        return " and ".join(part.partition(":")[0] for part in doubt.split("; "))

    some = cases[cases["doubt"] != ""]
    kinds = some.groupby(some["doubt"].map(kind_of), sort=False)["label"]
    return "; ".join(f"{kind}: {listed(which)}" for kind, which in kinds)


def cases_section(book):
    failed, doubts = failures_of(book.cases), doubts_of(book.valid)
    statuses = book.cases["status"].value_counts(sort=False)
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
        table("All cases", book.cases, figures_of(book.cases, FIGURES)),
        ABOUT_FIGURES,
        table("More figures", book.cases, figures_of(book.cases, MORE_FIGURES)),
        ABOUT_MORE_FIGURES,
    ]


# Charts.


def traffic_of(cases, between):
    """Bytes of a step by kind, a row for each case."""
    rows = []
    for case in cases.itertuples():
        moved = transfers(case)
        rows.append(moved[moved["between"] == between].groupby("kind")["counted"].sum())
    return pandas.DataFrame(rows, index=cases.index, columns=list(TRAFFIC_KINDS)).fillna(0)


def stack(cases, parts, looks, label, units):
    divisor, unit = charts.scale_of(units, parts.sum(axis=1).max())
    parts = (parts / divisor).set_axis(cases["line"])
    return charts.stack(parts, looks, label.format(unit))


def against_length(book, cases, column, units, whisker=""):
    points, unit = charts.scaled(charts.points_of(cases, column), units)
    label = charts.label_of(column, unit) + whisker
    return charts.chart(points, book.styles, label, charts.label_of("seq", "token"))


def whisker_text(cases):
    repeated = cases["runs"].map(len) > 1
    kinds = {True: "all repetitions", False: "quartiles of the steps"}
    return ", whiskers: " + " or ".join(kinds[kind] for kind in repeated.unique())


def charts_of(book, cases):
    """Bytes between groups, throughput, memory and where the time of a step went, all of valid
    cases; None for what they have no figures of. Bytes and time are those of the longest
    sequence."""
    longest = cases["seq"].max()
    last = cases[cases["seq"] == longest]
    at = f"at {count_text(int(longest))} tokens"
    found = [None] * 4
    if (cases["bytes_between"] > 0).any():
        label = f"sent between groups {at} [{{}}/step]"
        found[0] = stack(last, traffic_of(last, True), TRAFFIC_KINDS, label, "B")
    found[1] = against_length(book, cases, "tokens_per_s", "token/s", whisker_text(cases))
    found[2] = against_length(book, cases, "memory_measured", "B")
    timed = last[last["compute_s"].notna()]
    if len(timed):
        label = f"step {at}, mean over ranks [{{}}]"
        found[3] = stack(timed, timed[list(STEP_PARTS)], STEP_PARTS, label, "s")
    return found


def charts_section(book):
    if book.valid.empty:
        return "there is no valid case"
    names = ["Bytes between groups", "Throughput", "Memory", "Time of a step"]
    every, pictures = panels(book.valid), []
    for title, cases in every[: charts.MOST_PANELS]:
        for name, chart in zip(names, charts_of(book, cases)):
            if chart:
                drawn = charts.chart_figure([[chart]], WIDTH)
                caption = ", ".join(filter(None, [name, title]))
                pictures.append(Picture(caption, as_image(drawn)))
    return [
        "Medians of valid cases. Bytes and parts of a step are those at the longest sequence.",
        pictures,
        *charts.not_drawn(len(every) - charts.MOST_PANELS),
    ]


# Tables by kind.


def traffic_section(book):
    moved = book.valid[book.valid["bytes_inside"] + book.valid["bytes_between"] > 0]
    if moved.empty:
        return "no valid case moved any"
    tables = []
    for where in ("between", "inside"):
        if (moved[f"bytes_{where}"] > 0).any():
            sizes = traffic_of(moved, where == "between")
            columns = {"all": sizes.sum(axis=1)}
            columns |= {TRAFFIC_KINDS[kind][0]: sizes[kind] for kind in sizes}
            texts = {name: some.astype(int).map(bytes_text) for name, some in columns.items()}
            caption = f"Bytes {where} groups of a step, all ranks together"
            tables.append(table(caption, moved, texts))
    return [
        "Over MPI every byte is counted, so these figures are exact: no spread, no noise. A case "
        "is valid only if every rank sent every other the planned bytes of each kind. Bytes of "
        "NCCL's collectives are by formula.",
        *tables,
    ]


def time_section(book):
    known = book.cases[book.cases["compute_s"].notna()]
    if known.empty:
        return "no case has it"
    columns = {name: (title, seconds_text) for name, (title, _, _) in STEP_PARTS.items()}
    shares = {"exposed_share": ("exposed, share", percent), "idle_share": ("idle, share", percent)}
    return [
        "The step whose length is the median, mean over ranks. Waiting for, or exposed: what the "
        "rank waits for is a transfer that is under way. Idle: it waits for another rank's "
        "computation, or has nothing to do.",
        table("Parts of a step, mean over ranks", known, figures_of(known, columns | shares)),
    ]


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
    if idle.size and run["ticks"]:
        ticks = f"{figure(float(idle.mean()), 3)} of {run['ticks']}"
    texts = {name: bytes_text(int(size)) for name, size in sizes.items()}
    return texts | {"ticks without work": ticks}


def memory_section(book):
    known, runs = book.with_array("memory/measured")
    if known.empty:
        return "no case ran far enough"
    texts = pandas.DataFrame(list(map(memory_texts, runs)), known.index)
    return [
        "Allocated through Kokkos, by kind. A case is valid only if no rank exceeds its plan. "
        "Ticks without work: those of the order in which a rank computes nothing, mean over ranks; "
        "ticks are no time.",
        table("Memory of the worst rank, and of others", known, texts),
    ]


def energy_section(book):
    known = book.cases[book.cases["energy"].notna()]
    if known.empty:
        ended = book.cases[book.cases["status"] == "ok"]
        reasons = ended["energy_source"].str.removeprefix("unavailable: ").unique()
        return "unavailable: " + ("; ".join(reasons) or "no case ran to its end with them")
    columns = figures_of(known, ENERGY) | {"counters of": known["energy_source"].tolist()}
    about = "Energy of what the counters cover, the gaps between timed steps included."
    return [about, table("Energy of the timed steps", known, columns)]


# The rest.


def timelines_section(book):
    """One case of each schedule, the longest sequence first."""
    known, _ = book.with_array("timeline/rank")
    if known.empty:
        return "the file has none; minitaw run --timeline keeps them"
    chosen = known.loc[known.groupby("line", sort=False)["seq"].idxmax()].head(MOST_TIMELINES)
    said = "The actions of one step: a row for each lane of each rank."
    if rest := listed(known["label"].drop(chosen.index)):
        said += f" The file has more, of cases {rest}: scripts/timeline FILE --case N draws any."
    pictures = []
    for _, case in chosen.iterrows():
        drawn = draw_timelines([measured_timeline(case)])
        title = f"Case {case['label']}: {describe(case)}"
        pictures.append(Picture(title, as_image(drawn), wide=True))
    return [said, pictures]


def provenance_section(book):
    blocks = []
    for file in book.files:
        letter = file.letter and file.letter + ": "
        sessions = plural(len(file.sessions), "session")
        blocks += [f"{letter}{file.path.name}, {sessions}.", session_texts(file)]
    return blocks


# {name: (title, what makes it)}, in the order of the page.
SECTIONS = {
    "cases": ("Cases", cases_section),
    "charts": ("Bytes, throughput, memory and time", charts_section),
    "traffic": ("Bytes moved", traffic_section),
    "scaling": ("Scaling", scaling_section),
    "time": ("Where the time went", time_section),
    "memory": ("Memory", memory_section),
    "timelines": ("Timelines", timelines_section),
    "energy": ("Energy", energy_section),
    "provenance": ("Provenance", provenance_section),
}
