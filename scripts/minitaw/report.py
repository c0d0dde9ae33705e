# SPDX-License-Identifier: BSD-3-Clause
"""What result files say: as a page, which report.html lays out, or as a picture of its charts
(docs/report.md)."""

import pathlib
import textwrap
from collections import namedtuple

import jinja2
import numpy

from . import figures, timeline
from .bundle import session_texts
from .check_rules import MODEL
from .command import BadInput, Parser, plural, write_file, write_stdout
from .figures import (
    SETTINGS,
    STEP_PARTS,
    TRAFFIC_KINDS,
    bytes_text,
    count_text,
    figure,
    grouped,
    listed,
    panels,
    percent,
    seconds_text,
    setting_text,
    telling,
)
from .record import FORBIDDEN, describe, exists, fastest, load_all, quietest, reason_of

# What is too much for a page is cut, and the page says so.
MOST_TIMELINES = 4
TITLES = {
    "cases": "Cases",
    "screening": "Screening",
    "charts": "Bytes, throughput, memory and time",
    "traffic": "Bytes moved",
    "scaling": "Scaling",
    "time": "Where the time went",
    "memory": "Memory",
    "timelines": "Timelines",
    "counters": "Device counters",
    "provenance": "Provenance",
}

# What sections are made of, beside paragraphs (str), figures (lists of pictures) and texts to
# unfold (dict).
Table = namedtuple("Table", "caption head rows")  # rows: [(case, [text, ...])]
Picture = namedtuple("Picture", "title address wide", defaults=[False])
Failures = namedtuple("Failures", "rows")  # [(status, reason, cases)]


class Book:
    """All cases, with one name and one look for each line on the whole page."""

    def __init__(self, results):
        self.results = results
        self.cases = [case for result in results for case in result.cases]
        self.valid = [case for case in self.cases if case.valid]
        same = grouped(
            self.cases, lambda case: tuple(case[name] for name in ("schedule", "seq", *SETTINGS))
        ).values()
        self.with_file = any(len({case.file.letter for case in some}) > 1 for some in same)
        self.styles = figures.styles_of(map(self.naming, self.cases))
        self.told = [
            name
            for name in telling(self.cases, ("schedule", "seq", *SETTINGS))
            if name != "schedule"
        ]
        self.sessions = [session for result in results for session in result.sessions]
        links = dict.fromkeys(
            " ".join(session["links"]) for session in self.sessions if len(session.get("links", []))
        )
        self.links = [f"links between nodes: {listed(links, 3)}"] if links else []

    def naming(self, case):
        return case["schedule"] + (f" ({case.file.letter})" if self.with_file else "")

    def telling(self, case):
        """The settings that tell this case from others of its schedule: "512 tokens, 2 ranks"."""
        return ", ".join(
            f"{count_text(case['seq'])} tokens" if name == "seq" else setting_text(name, case[name])
            for name in self.told
        )


def table(caption, head, cases, cells_of):
    """A row for each case, whose settings stand in a first cell: columns of their own would push
    the figures off a phone. Columns in which no case has a figure are left out."""
    rows = [cells_of(case) for case in cases]
    used = [i for i in range(len(head)) if any(row[i] != "–" for row in rows)]
    return Table(
        caption,
        [head[i] for i in used],
        [(case, [row[i] for i in used]) for case, row in zip(cases, rows)],
    )


# The top: may this result be quoted, and what is its figure of merit.


def top(book):
    verdicts = [
        (
            result,
            verdict,
            "good" if verdict == "VALID" else "doubt" if verdict.startswith("VALID") else "bad",
        )
        for result in book.results
        for verdict in [result.verdict]
    ]
    names = telling(book.valid, MODEL)
    models = grouped(book.valid, lambda case: tuple(case[name] for name in names))
    merits = [
        {
            "case": fastest(some),
            "quiet": quietest(some),
            "model": ", ".join(map(setting_text, names, key)),
        }
        for key, some in models.items()
    ]
    sessions = book.sessions
    ranks, nodes = (
        max((count(s) for s in sessions), default=0)
        for count in (lambda s: len(s.get("devices", [])), lambda s: len(set(s.get("nodes", []))))
    )
    dates = sorted(session["started"] for session in sessions if session.get("started"))
    origin = [
        "miniTaw "
        + listed(
            dict.fromkeys(f"{s.get('version', '')} ({s.get('git_hash', '')})" for s in sessions), 3
        ),
        f"{plural(ranks, 'rank')} on {plural(nodes, 'node')}: "
        + listed(dict.fromkeys(d for s in sessions for d in s.get("devices", [])), 3),
        " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "",
    ]
    lengths = {case["seq"] for case in book.cases}
    shared = figures.shared_settings(book.cases) + (
        [f"{count_text(lengths.pop())} tokens in a sequence"] if len(lengths) == 1 else []
    )
    return {"verdicts": verdicts, "merits": merits, "origin": origin + book.links, "shared": shared}


# Sections: what they are made of, or a text that says why there is none.

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
COUNTERS = {
    "clock_min": ("lowest clock [MHz]", figure),
    "temperature_max": ("hottest [°C]", figure),
    "power_mean": ("power, all ranks [W]", figure),
    "energy_per_token": ("energy [J/token]", figure),
    "throttled": ("slowed", percent),
    "node_power_mean": ("power, nodes [W]", figure),
    "node_energy_per_token": ("energy, nodes [J/token]", figure),
}


def figures_table(caption, columns, cases, more=(), more_of=lambda case: []):
    """Columns of the summary, and more."""
    return table(
        caption,
        [*[title for title, _ in columns.values()], *more],
        cases,
        lambda case: [
            *[
                text(case[name]) if exists(case[name]) and case["median_s"] > 0 else "–"
                for name, (_, text) in columns.items()
            ],
            *more_of(case),
        ],
    )


def cases_section(book):
    if not book.cases:
        return "no case was run"
    failed = [
        (
            status if status != "ok" else "INVALID",
            reason.removeprefix(f"{status}: "),
            ", ".join(f"{c.label} ({c['schedule']})" for c in some),
        )
        for (status, reason), some in grouped(
            [c for c in book.cases if not c.valid], lambda c: (c["status"], reason_of(c))
        ).items()
    ]
    counts = ", ".join(
        f"{len(some)} {status}"
        for status, some in grouped(book.cases, lambda case: case["status"]).items()
    )
    kinds = grouped(
        [c for c in book.valid if c.doubt],
        lambda c: " and ".join(part.partition(":")[0] for part in c.doubt.split("; ")),
    )
    doubts = "; ".join(
        f"{kind}: {listed(case.label for case in some)}" for kind, some in kinds.items()
    )  # "no warm-up and noisy: 2, 5"
    stands_out = "".join(
        f" {result.letter and result.letter + ': '}{sentence[:1].upper()}{sentence[1:]}."
        for result in book.results
        for sentence in result.stands_out
    )
    return [
        f"{plural(len(book.cases), 'case')}: {counts}."
        + (f" Valid with a doubt, {doubts}." if doubts else "" if failed else " All ended valid.")
        + stands_out,
        Failures(failed),
        figures_table("All cases", FIGURES, book.cases),
        "Marks: ✔ valid, ! valid with a doubt, ✘ not valid. A sample is the step of the slowest rank. Spread: third minus first quartile of the "
        "samples, as a share of the median. Bytes between groups are those of one step, all ranks together: exact. Exposed: held up by transfers; "
        "idle: nothing to do; both are shares of the time of a step, mean over ranks.",
        figures_table("More figures", MORE_FIGURES, book.cases),
        "Overlap: hidden part of the communication. Gradient error: against the serial reference, – where nobody checked it.",
    ]


def not_drawn(rest):
    return (
        [f"{plural(rest, 'panel')} more not drawn; the tables have their numbers."]
        if rest > 0
        else []
    )


def charts_section(book):
    if not book.valid:
        return "there is no valid case"
    every, names = panels(book.valid), [
        "Bytes between groups",
        "Throughput",
        "Memory",
        "Time of a step",
    ]
    return [
        "Medians of valid cases. Bytes and parts of a step are those at the longest sequence.",
        [
            Picture(
                ", ".join(filter(None, [name, title])),
                figures.as_image(figures.chart_figure([("", [chart])], 4.8)),
            )
            for title, cases in every[: figures.MOST_PANELS]
            for name, chart in zip(names, figures.charts_of(cases, book.styles, book.naming))
            if chart
        ],
        *not_drawn(len(every) - figures.MOST_PANELS),
    ]


def traffic_section(book):
    moved = [case for case in book.valid if case["bytes_inside"] + case["bytes_between"] > 0]
    if not moved:
        return "no valid case moved any"
    tables = [
        table(
            f"Bytes {where} groups of a step, all ranks together",
            ["all", *[name for name, _, _ in TRAFFIC_KINDS]],
            moved,
            lambda case, which=which: [
                bytes_text(int(size))
                for size in (case.traffic()[which].sum(), *case.traffic()[which])
            ],
        )
        for which, where in enumerate(("between", "inside"))
        if any(case[f"bytes_{where}"] > 0 for case in moved)
    ]
    return [
        "Over MPI every byte is counted, so these figures are exact: no spread, no noise. A case is valid only if every rank sent every other the "
        "planned bytes of each kind. Bytes of NCCL's collectives are by formula.",
        *tables,
    ]


# Strong and weak scaling: cases that are alike but for ranks, with the tokens of a step fixed for
# all or for each rank.

FIXED = [
    name
    for name in SETTINGS
    if name
    not in ("ranks", "groups", "micro_batches", "micro_batch", "micro_batch_per_rank", "replicas")
] + ["seq"]


def scaling_lines(book, cases):
    """{name: the fastest case of each number of ranks}, where there are several numbers."""
    lines = {
        name: [
            fastest(same) for _, same in sorted(grouped(some, lambda case: case["ranks"]).items())
        ]
        for name, some in grouped(cases, book.naming).items()
    }
    return {name: line for name, line in lines.items() if len(line) > 1}


def scaling_part(book, kind, tokens_of):
    alike = grouped(
        book.valid, lambda case: (tokens_of(case), *[case[name] for name in FIXED])
    ).values()
    parts, pictures = list(filter(None, (scaling_lines(book, cases) for cases in alike))), []
    first = {id(case): line[0] for lines in parts for line in lines.values() for case in line}

    def gain(case, column):
        return case[column] / first[id(case)][column]

    for lines in parts[: figures.MOST_PANELS]:
        drawn, some = figures.new_figure(height=4), next(iter(lines.values()))[0]
        axes = drawn.subplots(2, 1, sharex=True)
        figures.draw_lines(
            axes[0],
            lines,
            book.styles,
            lambda case: case["ranks"],
            lambda case: case["tokens_per_s"],
            "throughput, all ranks [token/s]",
        )
        figures.draw_lines(
            axes[1],
            lines,
            book.styles,
            lambda case: case["ranks"],
            lambda case: 100 * gain(case, "tokens_per_s_rank"),
            "efficiency [%]",
        )
        axes[1].set_xlabel("ranks")
        figures.legend_below(drawn, axes[0])
        title = f"{kind} scaling: {figure(tokens_of(some))} tokens in a step{' of each rank' if kind == 'Weak' else ''}"
        pictures.append(
            Picture(f"{title}, {count_text(some['seq'])} in a sequence", figures.as_image(drawn))
        )
    head = ["ranks", "groups", "tokens in a step", "token/s", "speed-up", "efficiency"]
    rows = table(
        f"{kind} scaling in numbers",
        head,
        [case for lines in parts for line in lines.values() for case in line],
        lambda case: [
            figure(case["ranks"]),
            case["groups"],
            figure(case.tokens),
            figure(case["tokens_per_s"]),
            figure(gain(case, "tokens_per_s")),
            percent(gain(case, "tokens_per_s_rank")),
        ],
    )
    return [pictures, *not_drawn(len(parts) - len(pictures)), rows] if parts else []


def scaling_section(book):
    parts = scaling_part(book, "Strong", lambda case: case.tokens) + scaling_part(
        book, "Weak", lambda case: case.tokens / case["ranks"]
    )
    return (
        [
            "Strong scaling: the tokens of a step stay the same, whatever the ranks. Weak scaling: they grow with the ranks. Of a schedule the fastest "
            "case of each number of ranks. Efficiency is the rate of a rank against that of a rank of the smallest job.",
            *parts,
        ]
        if parts
        else "no two valid cases differ in ranks with the tokens of a step, or of a rank and step, kept the same"
    )


def time_section(book):
    known = [case for case in book.cases if exists(case["compute_s"])]
    columns = {name: (title, seconds_text) for name, (title, _, _) in STEP_PARTS.items()}
    shares = {"exposed_share": ("exposed, share", percent), "idle_share": ("idle, share", percent)}
    return (
        [
            "The step whose length is the median, mean over ranks. Waiting for, or exposed: what the rank waits for is a transfer that is under way. "
            "Idle: it waits for another rank's computation, or has nothing to do.",
            figures_table("Parts of a step, mean over ranks", columns | shares, known),
        ]
        if known
        else "no case has it"
    )


def memory_section(book):
    """Of the rank that got most by kind, and what the others got; and the ticks in which ranks
    compute nothing."""
    known = [case for case in book.cases if case.get("memory/measured").size]
    if not known:
        return "no case ran far enough"

    def cells_of(case):
        memory, idle = case.get("memory/measured"), case.get("idle_ticks")
        every = numpy.sort(memory.sum(axis=1))
        kinds = [bytes_text(int(size)) for size in memory[memory.sum(axis=1).argmax()]]
        kinds += ["–"] * (6 - len(kinds))  # earlier records have no tokens
        return [
            bytes_text(int(every[-1])),
            *kinds,
            *(bytes_text(int(size)) for size in (every[case["ranks"] // 2], every[0])),
            f"{figure(idle.mean(), 3)} of {case['ticks']}" if idle.size and case["ticks"] else "–",
        ]

    head = [
        "worst rank",
        "weights",
        "gradients",
        "optimiser",
        "activations",
        "buffers",
        "tokens",
        "median rank",
        "least",
        "ticks without work",
    ]
    return [
        "Allocated through Kokkos, by kind. A case is valid only if no rank exceeds its plan. Ticks without work: those of the "
        "order in which a rank computes nothing, mean over ranks; ticks are no time.",
        table("Memory of the worst rank, and of others", head, known, cells_of),
    ]


def timelines_section(book):
    """One case of each schedule, the longest sequence first."""
    known = [case for case in book.cases if case.has_timeline]
    if not known:
        return "the file has none; minitaw run --timeline keeps them"
    chosen = [
        max(some, key=lambda case: case["seq"]) for some in grouped(known, book.naming).values()
    ][:MOST_TIMELINES]
    rest = listed(case.label for case in known if case not in chosen)
    return [
        "The actions of one step: a row for each lane of each rank."
        + (
            f" The file has more, of cases {rest}: scripts/timeline FILE --case N draws any."
            if rest
            else ""
        ),
        [
            Picture(
                f"Case {case.label}: {describe(case)}",
                figures.as_image(timeline.draw([timeline.measured_timeline(case)])),
                True,
            )
            for case in chosen
        ],
    ]


# Device counters. Bits of NVML's mask of reasons why clocks are lowered (nvmlClocksEventReasons)
# that mean heat or power.

REASONS = {
    0x4: "power limit",
    0x8: "hardware slow-down",
    0x20: "heat (driver)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}


def slowed_by(case):
    masks = case.get("device/throttle").astype(numpy.uint64)
    shares = {
        name: float(((masks & numpy.uint64(bit)) != 0).any(axis=-1).mean()) if masks.size else 0
        for bit, name in REASONS.items()
    }
    return (
        ", ".join(f"{name} {percent(share, 0)}" for name, share in shares.items() if share) or "–"
    )


def counters_section(book):
    known = [
        case
        for case in book.cases
        if case.get("device/clock").size or any(exists(case[name]) for name in COUNTERS)
    ]
    if not known:
        reasons = dict.fromkeys(
            case["counters"].removeprefix("unavailable: ")
            for case in book.cases
            if case["status"] == "ok"
        )
        return "unavailable: " + ("; ".join(reasons) or "no case ran to its end with them")
    return [
        "Clocks, heat and power are of the devices alone, those of nodes of what their source says. Slowed: the share of timed steps in which heat or "
        "power lowered a clock.",
        figures_table(
            "Device counters",
            COUNTERS,
            known,
            ["by (share of samples)", "read through", "nodes through"],
            lambda case: [slowed_by(case), case["counters"], case.row.get("node_counters", "")],
        ),
    ]


def heat_map(units, values, nodes):
    """Medians over the rounds, relative to that of all: a row for each rank, a column for each
    partner. Slow is dark."""
    middle = numpy.ma.masked_invalid(numpy.ma.median(numpy.ma.masked_invalid(values), axis=0))
    usual = numpy.ma.median(middle)
    share = middle if units == "1" else usual / middle if units == "s" else middle / usual
    label = {"s": "usual latency over this one", "1": "of the rank's cores"}.get(
        units, "of the usual rate"
    )
    drawn = figures.new_figure(height=3.4)
    axes = drawn.subplots()
    axes.set(
        ylabel="rank", xlabel="partner", yticks=numpy.flatnonzero(numpy.diff(nodes, prepend=-1))
    )  # the first rank of each node
    drawn.colorbar(
        axes.imshow(share, cmap="magma", vmin=0, vmax=1.2, aspect="auto", interpolation="nearest"),
        label=label,
    )
    return figures.as_image(drawn)


SAID = {"judged": "judged", "sure": "sure", "not seen": "not_seen", "next": "next"}


def screening_section(book):
    known = [result for result in book.results if result.screening]
    if not known:
        return "minitaw screen was not run with this file"
    blocks = []
    for found in (result.screening for result in known):
        blocks += [
            f"{found['verdict']} ({found['settings']}).",
            {"Culprits": "\n".join(found["culprits"])} if len(found["culprits"]) else "No culprit.",
            *(
                [{name.capitalize(): found[key] for name, key in SAID.items()}]
                if found["judged"]
                else []
            ),
            [
                Picture(name, heat_map(units, values, found["node_of_rank"]))
                for name, (units, values) in found["measured"].items()
                if values.size
            ],
        ]
    return [
        "Medians over all rounds, relative to the median of all ranks or links; a load as it is. An empty cell was not measured.",
        *blocks,
    ]


def provenance_section(book):
    return [
        block
        for result in book.results
        for block in (
            f"{result.letter}{': ' if result.letter else ''}{result.path.name}, {plural(len(result.sessions), 'session')}.",
            session_texts(result),
        )
    ]


def page(results):
    """The whole page as text."""
    book, here = Book(results), pathlib.Path(__file__).parent
    sections = {name: globals()[f"{name}_section"](book) for name in TITLES}
    loader = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: FORBIDDEN.sub("\ufffd", value) if type(value) is str else value,
    )
    loader.filters |= {
        "figure": figure,
        "bytes": bytes_text,
        "seconds": seconds_text,
        "plural": plural,
    }
    title = "miniTaw: " + ", ".join(result.path.stem for result in results)
    return (
        loader.get_template("report.html").render(
            title=title,
            book=book,
            top=top(book),
            sections=sections,
            titles=TITLES,
            count=len(book.cases),
        )
        + "\n"
    )


# The charts of the page as one picture.


def picture_title(book):
    """What all cases share, the shape of links, and what is left out or in doubt."""
    bad, noisy, parts = (
        len(book.cases) - len(book.valid),
        sum(bool(case.doubt) for case in book.valid),
        len(panels(book.valid)),
    )
    return "; ".join(
        [
            ", ".join(figures.shared_settings(book.valid)),
            *book.links,
            *([f"{bad} of {plural(len(book.cases), 'case')} not valid, left out"] if bad else []),
            *(
                [f"{noisy} of {plural(len(book.valid), 'case')} in doubt (noisy or no warm-up)"]
                if noisy
                else []
            ),
            *(
                [f"the first {figures.MOST_PANELS} of {parts} panels"]
                if parts > figures.MOST_PANELS
                else []
            ),
        ]
    )


def picture(results):
    """A column of panels for each setting but schedule and sequence length."""
    book = Book(results)
    if not book.valid:
        raise BadInput(f"{results[0].path} has no valid case to draw ({len(book.cases)} in all)")
    columns = [
        (name, figures.charts_of(some, book.styles, book.naming))
        for name, some in panels(book.valid)[: figures.MOST_PANELS]
    ]
    if len(columns) == 1:  # two by two
        columns = [("", columns[0][1][side::2]) for side in (0, 1)]
    drawn = figures.chart_figure(columns, 6.5, legend_columns=3 * len(columns))
    drawn.suptitle(textwrap.fill(picture_title(book), 80 * len(columns)), fontsize="medium")
    return drawn


def main(words=None):
    parser = Parser(
        prog="report",
        description="Writes what result files say as one page, for a browser, a phone or paper, or its charts as a picture "
        "(docs/report.md).",
    )
    parser.add_argument("files", metavar="FILE.h5", nargs="+", help="result file of minitaw run")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        action="append",
        help="a page (.html), or a picture (.png, .svg, .pdf); may be repeated (default: report.html)",
    )
    options = parser.parse_args(words)
    outputs = {output: pathlib.Path(output).suffix for output in options.output or ["report.html"]}
    for output, suffix in outputs.items():
        if suffix not in (*figures.PICTURES, ".html", ""):
            raise BadInput(
                f'-o: "{output}" must end in .html (a page) or in .png, .svg or .pdf (a picture)'
            )
    results = load_all(options.files)
    drawn = picture(results) if set(outputs.values()) & set(figures.PICTURES) else None
    for output, suffix in outputs.items():
        (
            figures.save(drawn, output)
            if suffix in figures.PICTURES
            else write_file(output, page(results))
        )
        write_stdout(f"{output}\n")
