# SPDX-License-Identifier: BSD-3-Clause
"""The sections of a page of results: each is a list of blocks, or a text that says why there is
none (docs/report.md)."""

import numpy

from . import charts
from .book import Failures, Picture, figures_table, table
from .charts import STEP_PARTS, TRAFFIC_KINDS
from .drawing import as_image
from .events import measured_timeline
from .numbers import (
    NO_FIGURE,
    bytes_text,
    exists,
    figure,
    listed,
    percent,
    plural,
    seconds_text,
)
from .provenance import session_texts
from .record import describe, reason_of
from .scaling import scaling_section
from .settings import grouped, panels
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


def failures_of(cases):
    """Rows of the cases that are not valid: status, reason, and which they are."""
    bad = [case for case in cases if not case.valid]
    rows = []
    for (status, reason), some in grouped(bad, lambda c: (c["status"], reason_of(c))).items():
        which = ", ".join(f"{case.label} ({case['schedule']})" for case in some)
        word = status if status != "ok" else "INVALID"
        rows.append((word, reason.removeprefix(f"{status}: "), which))
    return rows


def doubts_of(cases):
    """ "no warm-up and noisy: 2, 5" """

    def kind_of(case):
        return " and ".join(part.partition(":")[0] for part in case.doubt.split("; "))

    kinds = grouped([case for case in cases if case.doubt], kind_of)
    return "; ".join(
        f"{kind}: {listed(case.label for case in some)}" for kind, some in kinds.items()
    )


def cases_section(book):
    if not book.cases:
        return "no case was run"
    failed, doubts = failures_of(book.cases), doubts_of(book.valid)
    statuses = grouped(book.cases, lambda case: case["status"])
    counts = ", ".join(f"{len(some)} {status}" for status, some in statuses.items())
    said = f"{plural(len(book.cases), 'case')}: {counts}."
    if doubts:
        said += f" Valid with a doubt, {doubts}."
    elif not failed:
        said += " All ended valid."
    for result in book.results:
        letter = result.letter and result.letter + ": "
        if result.slowest:
            said += f" {letter}{result.slowest[:1].upper()}{result.slowest[1:]}."
    return [
        said,
        Failures(failed),
        figures_table("All cases", FIGURES, book.cases),
        ABOUT_FIGURES,
        figures_table("More figures", MORE_FIGURES, book.cases),
        ABOUT_MORE_FIGURES,
    ]


def charts_section(book):
    if not book.valid:
        return "there is no valid case"
    names = ["Bytes between groups", "Throughput", "Memory", "Time of a step"]
    every, pictures = panels(book.valid), []
    for title, cases in every[: charts.MOST_PANELS]:
        for name, chart in zip(names, charts.charts_of(cases, book.styles, book.naming)):
            if chart:
                drawn = charts.chart_figure([("", [chart])], 4.8)
                caption = ", ".join(filter(None, [name, title]))
                pictures.append(Picture(caption, as_image(drawn)))
    return [
        "Medians of valid cases. Bytes and parts of a step are those at the longest sequence.",
        pictures,
        *charts.not_drawn(len(every) - charts.MOST_PANELS),
    ]


def traffic_section(book):
    moved = [case for case in book.valid if case["bytes_inside"] + case["bytes_between"] > 0]
    if not moved:
        return "no valid case moved any"
    head = ["all", *(name for name, _, _ in TRAFFIC_KINDS)]

    def cells_of(which):
        def cells(case):
            sizes = case.traffic()[which]
            return [bytes_text(int(size)) for size in (sizes.sum(), *sizes)]

        return cells

    tables = []
    for which, where in enumerate(("between", "inside")):
        if any(case[f"bytes_{where}"] > 0 for case in moved):
            caption = f"Bytes {where} groups of a step, all ranks together"
            tables.append(table(caption, head, moved, cells_of(which)))
    return [
        "Over MPI every byte is counted, so these figures are exact: no spread, no noise. A case "
        "is valid only if every rank sent every other the planned bytes of each kind. Bytes of "
        "NCCL's collectives are by formula.",
        *tables,
    ]


def time_section(book):
    known = [case for case in book.cases if exists(case["compute_s"])]
    if not known:
        return "no case has it"
    columns = {name: (title, seconds_text) for name, (title, _, _) in STEP_PARTS.items()}
    shares = {"exposed_share": ("exposed, share", percent), "idle_share": ("idle, share", percent)}
    return [
        "The step whose length is the median, mean over ranks. Waiting for, or exposed: what the "
        "rank waits for is a transfer that is under way. Idle: it waits for another rank's "
        "computation, or has nothing to do.",
        figures_table("Parts of a step, mean over ranks", columns | shares, known),
    ]


MEMORY_KINDS = ["weights", "gradients", "optimiser", "activations", "buffers", "tokens",
                "context"]  # fmt: skip


def memory_cells(case):
    """Of the rank that got most by kind, and what the others got; and the ticks in which ranks
    compute nothing."""
    memory, idle = case.get("memory/measured"), case.get("idle_ticks")
    of_ranks = memory.sum(axis=1)
    rising = numpy.sort(of_ranks)
    kinds = [bytes_text(int(size)) for size in memory[of_ranks.argmax()]]
    worst, median, least = (bytes_text(int(rising[rank])) for rank in (-1, case["ranks"] // 2, 0))
    ticks = NO_FIGURE
    if idle.size and case["ticks"]:
        ticks = f"{figure(idle.mean(), 3)} of {case['ticks']}"
    return [worst, *kinds, median, least, ticks]


def memory_section(book):
    known = [case for case in book.cases if case.get("memory/measured").size]
    if not known:
        return "no case ran far enough"
    head = ["worst rank", *MEMORY_KINDS, "median rank", "least", "ticks without work"]
    return [
        "Allocated through Kokkos, by kind. A case is valid only if no rank exceeds its plan. "
        "Ticks without work: those of the order in which a rank computes nothing, mean over ranks; "
        "ticks are no time.",
        table("Memory of the worst rank, and of others", head, known, memory_cells),
    ]


def timelines_section(book):
    """One case of each schedule, the longest sequence first."""
    known = [case for case in book.cases if case.has_timeline]
    if not known:
        return "the file has none; minitaw run --timeline keeps them"
    chosen = [
        max(some, key=lambda case: case["seq"]) for some in grouped(known, book.naming).values()
    ][:MOST_TIMELINES]
    said = "The actions of one step: a row for each lane of each rank."
    if rest := listed(case.label for case in known if case not in chosen):
        said += f" The file has more, of cases {rest}: scripts/timeline FILE --case N draws any."
    pictures = []
    for case in chosen:
        drawn = draw_timelines([measured_timeline(case)])
        title = f"Case {case.label}: {describe(case)}"
        pictures.append(Picture(title, as_image(drawn), wide=True))
    return [said, pictures]


def energy_section(book):
    known = [case for case in book.cases if exists(case["energy"])]
    if not known:
        ended = [case["energy_source"] for case in book.cases if case["status"] == "ok"]
        reasons = dict.fromkeys(text.removeprefix("unavailable: ") for text in ended)
        return "unavailable: " + ("; ".join(reasons) or "no case ran to its end with them")
    about = "Energy of what the counters cover, the gaps between timed steps included."
    table = figures_table(
        "Energy of the timed steps",
        ENERGY,
        known,
        ["counters of"],
        lambda case: [case["energy_source"]],
    )
    return [about, table]


def provenance_section(book):
    blocks = []
    for result in book.results:
        letter = result.letter and result.letter + ": "
        sessions = plural(len(result.sessions), "session")
        blocks += [f"{letter}{result.path.name}, {sessions}.", session_texts(result)]
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
