"""The page of a result: what a reader wants to know, as data; report.html says it in words (docs/report.md)."""

import pathlib
from dataclasses import dataclass

import jinja2
import markupsafe
import numpy

from . import timeline
from .command import Parser, put_out, write_file
from .figures import (
    FORBIDDEN, MEMORY_KINDS, SETTINGS, STEP_PARTS, TRAFFIC_KINDS, as_svg, at_longest, axis_of_counts, bars_figure, byte_unit, bytes_text, count_text,
    draw_bars, draw_lines, exists, figure, grouped, legend_below, listed, new_figure, panels, percent, plural, rate_whiskers,
    seconds_text, setting_text, shared_settings, short, styles_of, telling, time_unit)
from .record import describe, fastest, load_all, reason_of, verdict_of
from .rules import MODEL

# What is too much for a page is cut, and the page says so.
MOST_PANELS, MOST_ROWS, MOST_TABLES, MOST_RANKS, MOST_SAMPLE_ROWS, MOST_TIMELINES = 6, 40, 24, 64, 100, 4
TITLES = {"cases": "Cases", "throughput": "Throughput and memory", "scaling": "Scaling", "traffic": "Bytes moved", "time": "Where the time went",
          "planned": "Planned against measured", "samples": "Samples", "timelines": "Timelines", "counters": "Device counters",
          "provenance": "Provenance"}
COLUMN_TITLES = {"seq": "S [token]", "micro_batches": "M", "micro_batch": "B"}


@dataclass
class Cell:
    """Of a table. `value`: the exact one, for programs that read the page."""
    text: str
    value: object = None
    kind: str = "n"
    span: int = 1


@dataclass
class Table:
    caption: str
    head: list
    rows: list
    kind: str = ""


def number(value, text=figure):
    return Cell(text(value), value)


def values(many, text=bytes_text):
    return [number(value, text) for value in many]


class Book:
    """All cases, with one name and one look for each line on the whole page."""

    def __init__(self, results):
        self.results, self.pictures = results, 0
        self.cases = [case for result in results for case in result.cases]
        self.valid = [case for case in self.cases if case.valid]
        same = grouped(self.cases, lambda case: case["identity"]).values()
        self.with_file = any(len({case.file.letter for case in some}) > 1 for some in same)
        self.styles = styles_of(map(self.naming, self.cases))
        told = telling(self.cases, ("schedule", "seq", *SETTINGS))
        self.columns = [name for name in told if name != "schedule"]
        self.head = ["schedule", *[COLUMN_TITLES.get(name, SETTINGS.get(name) or name) for name in self.columns]]

    def naming(self, case):
        return case["schedule"] + (f" ({case.file.letter})" if self.with_file else "")

    def who(self, case):
        """The first cells of a row: the case, and the settings that tell cases apart."""
        mark, kind = ("✘", "bad") if not case.valid else ("!", "doubt") if case.doubt else ("✔", "good")
        return [{"mark": mark, "kind": kind, "label": case.label, "name": self.naming(case)},
                *[Cell(count_text(case[name]) if name == "seq" else str(case[name])) for name in self.columns]]

    def picture(self, drawn, title, wide=False):
        self.pictures += 1
        return {"title": title, "svg": markupsafe.Markup(as_svg(drawn, title, self.pictures)), "wide": wide}

    def by_panel(self, cases, what, make):
        """Drawings of the panels at the longest sequence, and how many are not drawn."""
        parts, found = panels(cases), []
        for title, some in parts[:MOST_PANELS]:
            seq, longest = at_longest(some)
            rest = f"the first {MOST_ROWS} of {len(longest)} cases" if len(longest) > MOST_ROWS else ""
            found.append(self.picture(make(longest[:MOST_ROWS]), "; ".join(filter(None, (what, title, f"{count_text(seq)} tokens", rest)))))
        return {"pictures": found, "rest": len(parts) - len(found)}


# The top: may this result be quoted, and what is its figure of merit.

def kind_of(verdict):
    return "bad" if not verdict.startswith("VALID") else "good" if verdict == "VALID" else "doubt"


def top(book):
    verdicts = [(result, verdict, kind_of(verdict)) for result in book.results for verdict in [verdict_of(result.cases)]]
    names = telling(book.valid, MODEL)
    models = grouped(book.valid, lambda case: tuple(case[name] for name in names))
    merits = [{"case": fastest(some), "words": describe(fastest(some)), "samples": plural(len(fastest(some).samples), "sample"),
               "model": ", ".join(map(setting_text, names, key))} for key, some in models.items()]
    sessions = [session for result in book.results for session in result.sessions]
    ranks, nodes = (max((count(s) for s in sessions), default=0) for count in (lambda s: len(s.get("devices", [])), lambda s: len(set(s.get("hosts", [])))))
    dates = sorted(session["started"] for session in sessions if session.get("started"))
    origin = ["miniTaw " + listed(dict.fromkeys(f"{s.get('version', '')} ({s.get('git_hash', '')})" for s in sessions), 3),
              f"{plural(ranks, 'rank')} on {plural(nodes, 'node')}: " + listed(dict.fromkeys(d for s in sessions for d in s.get("devices", [])), 3),
              " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else ""]
    links = listed(dict.fromkeys(" ".join(s["links"]) for s in sessions if len(s.get("links", []))), 3)
    lengths = {case["seq"] for case in book.cases}
    shared = shared_settings(book.cases) + ([f"{count_text(lengths.pop())} tokens in a sequence"] if len(lengths) == 1 else [])
    return {"verdicts": verdicts, "merits": merits, "origin": origin + ([f"links between nodes: {links}"] if links else []), "shared": shared}


# All cases in a table, and in words what failed and why.

FIGURES = {"tokens_per_s": ("token/s", figure), "median_s": ("step, median", seconds_text), "spread": ("spread", percent),
           "bytes_between": ("between groups", bytes_text), "bytes_inside": ("inside groups", bytes_text),
           "memory_measured": ("memory, worst rank", bytes_text), "exposed_share": ("exposed", percent), "idle_share": ("idle", percent),
           "overlap": ("overlap", percent), "tflops_causal": ("TFLOP/s", figure), "last_loss": ("last loss", lambda value: figure(value, 5)),
           "gradient_error": ("gradient error", lambda value: f"{value:.0e}" if exists(value) else "–")}


def cases_section(book):
    if not book.cases:
        return "no case was run"
    rows = []
    for case in book.cases:
        cells = [number(case[name], text) for name, (_, text) in FIGURES.items()]
        if not case["median_s"] > 0:
            cells = [Cell(f"{case['status']}: {reason_of(case).removeprefix(case['status'] + ': ')}", kind="bad", span=len(FIGURES))]
        elif case.doubt:
            cells[2].kind = "n doubt"
        rows.append([*book.who(case), *cells])
    failed = [(status if status != "ok" else "INVALID", reason.removeprefix(f"{status}: "), len(some), listed(f"{c.label} ({c['schedule']})" for c in some))
              for (status, reason), some in grouped([c for c in book.cases if not c.valid], lambda c: (c["status"], reason_of(c))).items()]
    counts = ", ".join(f"{len(some)} {status}" for status, some in grouped(book.cases, lambda case: case["status"]).items())
    noisy = [case.label for case in book.valid if case.doubt]
    return {"table": Table("All cases", [*book.head, *[title for title, _ in FIGURES.values()]], rows, "cases"), "failed": failed,
            "counts": counts, "bad": len(book.cases) - len(book.valid), "noisy": listed(noisy)}


# Throughput and memory against sequence length, or as bars where there is one length only.

def rates_and_memory(book, cases):
    divisor, unit = byte_unit(max(case["memory_measured"] for case in cases if case.valid))
    several = len({case["seq"] for case in cases}) > 1
    drawn = new_figure(height=4.6 + 0.12 * len(book.styles) if several else 1.5 + 0.5 * len(cases))
    axes = drawn.subplots(2, 1)
    if several:
        draw_lines(axes[0], cases, book.styles, book.naming, lambda case: case["tokens_per_s"], whiskers=rate_whiskers)
        draw_lines(axes[1], cases, book.styles, book.naming, lambda case: case["memory_measured"] / divisor)
        for one in axes:
            axis_of_counts(one, [case["seq"] for case in cases], "sequence length [token]")
        axes[0].set_title("throughput, all ranks [token/s]", loc="left", fontsize=9)
        axes[1].set_title(f"memory of the worst rank [{unit}]", loc="left", fontsize=9)
        legend_below(drawn, axes[0])
        return drawn
    for one, column, scale, label, ends in ((axes[0], "tokens_per_s", 1, "throughput, all ranks [token/s]", rate_whiskers),
                                            (axes[1], "memory_measured", divisor, f"memory, worst rank [{unit}]", None)):
        rows = [(book.naming(c), [c[column] / scale] if c.valid else [], None, ends(c) if ends and c.valid else None) for c in cases]
        draw_bars(one, rows, [("", "#0072b2", "")], label)
    return drawn


def throughput_section(book):
    if not book.valid:
        return "there is no valid case"
    parts = [(title, some) for title, some in panels(book.cases) if any(case.valid for case in some)]
    return {"pictures": [book.picture(rates_and_memory(book, some), title or "All schedules") for title, some in parts[:MOST_PANELS]],
            "rest": max(0, len(parts) - MOST_PANELS)}


# Strong and weak scaling: the same lines over ranks, with the tokens of a step fixed for all or for each rank.

FREE = ("ranks", "groups", "micro_batches", "micro_batch", "micro_batch_per_rank", "replicas")
FIXED = [name for name in SETTINGS if name not in FREE] + ["seq"]


def apart(cases):
    """Lines with one case for each number of ranks: else one for each number of groups, of copies, and size of a micro-batch."""
    for names in ((), ("group_count",), ("group_count", "replicas"), ("group_count", "replicas", "micro_batch"), ("groups", *FREE[2:])):
        parts = grouped(cases, lambda case, names=names: tuple(case[name] for name in names))
        if all(len({case["ranks"] for case in some}) == len(some) for some in parts.values()):
            break
    for key, some in parts.items():
        suffix = "".join(f", {name.replace('_', ' ')} {value}" for name, value in zip(names, key) if len(parts) > 1)
        yield suffix, sorted(some, key=lambda case: case["ranks"])


def efficiency(case, line):
    """Rate of a rank against that of a rank of the smallest job: 1 is ideal, for both kinds of scaling."""
    return case["tokens_per_s_rank"] / line[0]["tokens_per_s_rank"]


def scaling_part(book, kind, tokens_of):
    pictures, rows, parts = [], [], 0
    for _, cases in grouped(book.valid, lambda case: (tokens_of(case), *[case[name] for name in FIXED])).items():
        lines = {name + suffix: line for name, some in grouped(cases, book.naming).items() for suffix, line in apart(some) if len(line) > 1}
        if not lines:
            continue
        parts += 1
        drawn, name_of = new_figure(height=4.4 + 0.12 * len(lines)), {id(case): name for name, line in lines.items() for case in line}
        axes, some = drawn.subplots(2, 1), [case for line in lines.values() for case in line]
        shares = {id(case): 100 * efficiency(case, line) for line in lines.values() for case in line}
        for one, value, label in ((axes[0], lambda c: c["tokens_per_s"], "throughput, all ranks [token/s]"),
                                  (axes[1], lambda c, shares=shares: shares[id(c)], "efficiency [%]")):
            draw_lines(one, some, styles_of(lines), lambda case, names=name_of: names[id(case)], value, x=lambda case: case["ranks"])
            axis_of_counts(one, [case["ranks"] for case in some], "ranks")
            one.set_title(label, loc="left", fontsize=9)
        legend_below(drawn, axes[0])
        if len(pictures) < MOST_PANELS:
            title = f"{kind} scaling: {figure(tokens_of(some[0]))} tokens in a step{' of each rank' if kind == 'Weak' else ''}"
            pictures.append(book.picture(drawn, f"{title}, {count_text(some[0]['seq'])} in a sequence"))
        rows += [[name, number(case["ranks"]), case["groups"], number(case.tokens), number(case["tokens_per_s"]),
                  number(case["tokens_per_s"] / line[0]["tokens_per_s"]), number(efficiency(case, line), percent)] for name, line in lines.items() for case in line]
    head = ["schedule", "ranks", "groups", "tokens in a step", "token/s", "speed-up", "efficiency"]
    return {"pictures": pictures, "rest": parts - len(pictures), "table": Table(f"{kind} scaling in numbers", head, rows)} if rows else None


def scaling_section(book):
    parts = {"Strong": scaling_part(book, "Strong", lambda case: case.tokens), "Weak": scaling_part(book, "Weak", lambda case: case.tokens / case["ranks"])}
    return parts if any(parts.values()) else "no two valid cases differ in ranks with the tokens of a step, or of a rank and step, kept the same"


# Bytes between and inside groups, by kind: counted in the transport and planned from the schedule.

def traffic(case, name):
    """Bytes per step by kind, between groups and inside."""
    matrix, sizes = case.get(f"bytes/{name}"), [int(size) for size in case["groups"].split("+")]
    group = numpy.repeat(numpy.arange(len(sizes)), sizes)
    same = group[:, None] == group[None, :]
    return [matrix[chosen].sum(axis=0) if matrix.ndim == 3 else numpy.zeros(len(TRAFFIC_KINDS), int) for chosen in (~same, same)]


def traffic_section(book):
    known = [case for case in book.cases if case.get("bytes/counted").size]
    moved = [case for case in known if case["bytes_inside"] + case["bytes_between"] > 0]
    if not moved:
        return "no case moved any"
    parts = []
    for which, where in enumerate(("between groups", "inside groups")):
        some = [case for case in moved if traffic(case, "counted")[which].any()]
        if not some:
            continue
        rows = [[*book.who(c), *values(int(v) for v in [traffic(c, "counted")[which].sum(), traffic(c, "planned")[which].sum(), *traffic(c, "counted")[which]])]
                for c in moved]

        def draw(cases, which=which, where=where):
            divisor, unit = byte_unit(max(traffic(case, name)[which].sum() for case in cases for name in ("counted", "planned")))
            bars = [(book.naming(c), traffic(c, "counted")[which] / divisor, traffic(c, "planned")[which].sum() / divisor, None) for c in cases]
            return bars_figure(bars, TRAFFIC_KINDS, f"sent {where} [{unit}/step]")

        head = [*book.head, "counted", "planned", *[name for name, _, _ in TRAFFIC_KINDS]]
        parts.append({**book.by_panel(some, f"Bytes {where}", draw), "table": Table(f"Bytes {where} of a step, all ranks together", head, rows)})
    differ = [case.label for case in known if not numpy.array_equal(case.get("bytes/counted"), case.get("bytes/planned"))]
    return {"parts": parts, "known": len(known), "differ": differ}


# Where the time of a step went.

def time_section(book):
    known = [case for case in book.cases if exists(case["compute_s"])]
    if not known:
        return "no case has it"

    def draw(cases):
        divisor, unit = time_unit(max(sum(case[name] for name in STEP_PARTS) for case in cases))
        bars = [(book.naming(case), [case[name] / divisor for name in STEP_PARTS], None, None) for case in cases]
        return bars_figure(bars, list(STEP_PARTS.values()), f"mean over ranks [{unit}/step]")

    head = [*book.head, *[name for name, _, _ in STEP_PARTS.values()], "exposed, share", "idle, share"]
    rows = [[*book.who(c), *values([c[name] for name in STEP_PARTS], seconds_text), *values([c["exposed_share"], c["idle_share"]], percent)] for c in known]
    return {**book.by_panel(known, "Parts of a step", draw), "table": Table("Parts of a step, mean over ranks", head, rows)}


# Planned against measured: memory by kind and rank, and the idle share of the schedule against that of the run.

def planned_idle(case):
    """Share of the ticks in which ranks compute nothing: the idle time of the order alone."""
    idle = case.get("idle_ticks")
    return float(idle.mean() / case["ticks"]) if idle.size and case["ticks"] > 0 else None


def planned_section(book):
    known = [case for case in book.cases if case.get("memory/planned").size and case.get("memory/measured").size]
    if not known:
        return "no case ran far enough"

    def worst(case):
        rank = case.get("memory/measured").sum(axis=1).argmax()
        return case.get("memory/planned")[rank], case.get("memory/measured")[rank]

    def draw(cases):
        divisor, unit = byte_unit(max(kinds.sum() for case in cases for kinds in worst(case)))
        return bars_figure([(book.naming(c), worst(c)[1] / divisor, worst(c)[0].sum() / divisor, None) for c in cases], MEMORY_KINDS, f"worst rank [{unit}]")

    head = [*book.head, "memory planned", "measured", *[f"{name}" for name, _, _ in MEMORY_KINDS], "idle planned", "idle measured"]
    rows = [[*book.who(c), *values(int(v) for v in [worst(c)[0].sum(), worst(c)[1].sum(), *worst(c)[1]]), number(planned_idle(c), percent),
             number(c["idle_share"], percent)] for c in known]
    tables = [Table(f"case {c.label}: {book.naming(c)}" + (f"; the first {MOST_RANKS} of {c['ranks']} ranks" if c["ranks"] > MOST_RANKS else ""),
                    ["rank", *[name for name, _, _ in MEMORY_KINDS], "together"],
                    [[str(rank), *values(int(v) for v in [*kinds, kinds.sum()])] for rank, kinds in enumerate(c.get("memory/planned")[:MOST_RANKS])])
              for c in known[:MOST_TABLES]]
    differ = [case.label for case in known if not numpy.array_equal(case.get("memory/planned"), case.get("memory/measured"))]
    return {**book.by_panel(known, "Memory by kind", draw), "table": Table("Memory of the worst rank and idle share, planned and measured", head, rows),
            "tables": tables, "more": len(known) - len(tables), "differ": differ, "known": len(known)}


# Every sample of every case, against the case's median: how far can these figures be trusted?

def samples_figure(book, cases, reach):
    drawn = new_figure(height=0.9 + 0.32 * len(cases))
    axes = drawn.subplots()
    for y, case in enumerate(cases):
        middle = numpy.median(case.samples)
        q1, q3 = numpy.clip(numpy.quantile(case.samples, [0.25, 0.75]) / middle - 1, -reach, reach)
        axes.broken_barh([(100 * q1, 100 * (q3 - q1))], (y - 0.35, 0.7), facecolors="#e69f00" if case.doubt else "#808080", alpha=0.4)
        axes.plot([0, 0], [y - 0.35, y + 0.35], color="#000000", linewidth=1.4)
        keep = numpy.unique(numpy.linspace(0, len(case.samples) - 1, min(len(case.samples), 200)).astype(int))
        for look, repetition in zip(styles_of(numpy.unique(case.repetition)).values(), numpy.unique(case.repetition)):
            own = keep[case.repetition[keep] == repetition]
            axes.plot(100 * numpy.clip(case.samples[own] / middle - 1, -reach, reach), [y] * len(own), look["marker"], color=look["color"], markersize=4, alpha=0.8)
    axes.set_yticks(range(len(cases)), [short(f"{c.label} {book.naming(c)}, {count_text(c['seq'])}") for c in cases], fontsize=9)
    axes.set_xlim(-104 * reach, 104 * reach)
    axes.set_xlabel("difference from the median of the case [%]")
    axes.set_ylim(len(cases) - 0.4, -0.6)
    axes.grid(True, axis="x", color="#808080", alpha=0.25, linewidth=0.6)
    return drawn


def samples_section(book):
    known = [case for case in book.cases if len(case.samples)]
    if not known:
        return "no case has any"
    shown = known
    if len(known) > MOST_SAMPLE_ROWS:
        widest = {id(case) for case in sorted(known, key=lambda case: -case["spread"])[:MOST_SAMPLE_ROWS]}
        shown = [case for case in known if id(case) in widest]
    off = numpy.concatenate([abs(case.samples / numpy.median(case.samples) - 1) for case in shown])
    reach = float(min(max(1.15 * numpy.quantile(off, 0.9), 0.02), 0.6))  # nine samples in ten, no less and no more than is useful
    charts = [shown[begin:begin + 20] for begin in range(0, len(shown), 20)]
    return {"pictures": [book.picture(samples_figure(book, some, reach), f"Samples of cases {some[0].label} to {some[-1].label}") for some in charts],
            "shown": len(shown), "known": len(known), "repeats": max(int(case.repetition.max()) + 1 for case in known)}


def timelines_section(book):
    """One case of each schedule, the longest sequence first."""
    known = [case for case in book.cases if case.has_timeline]
    if not known:
        return "the file has none; minitaw run --timeline keeps them"
    chosen = [max(some, key=lambda case: case["seq"]) for some in grouped(known, book.naming).values()][:MOST_TIMELINES]
    return {"pictures": [book.picture(timeline.draw([timeline.measured_timeline(case)]), f"Case {case.label}: {describe(case)}", wide=True) for case in chosen],
            "rest": listed(case.label for case in known if case not in chosen)}


# Device counters. Bits of NVML's mask of reasons why clocks are lowered (nvmlClocksEventReasons) that mean heat or power.

REASONS = {0x4: "power limit", 0x8: "hardware slow-down", 0x20: "heat (driver)", 0x40: "heat (hardware)", 0x80: "power brake"}
COUNTERS = {"clock_min": ("lowest clock [MHz]", figure), "temperature_max": ("hottest [°C]", figure), "power_mean": ("power, all ranks [W]", figure),
            "energy_per_token": ("energy [J/token]", figure), "throttled": ("slowed", percent)}


def slowed_by(case):
    masks = case.get("device/throttle").astype(numpy.uint64)
    shares = {name: float(((masks & numpy.uint64(bit)) != 0).any(axis=-1).mean()) if masks.size else 0 for bit, name in REASONS.items()}
    return ", ".join(f"{name} {percent(share, 0)}" for name, share in shares.items() if share) or "–"


def counters_section(book):
    known = [case for case in book.cases if case.get("device/clock").size or exists(case["energy_per_token"])]
    reasons = dict.fromkeys(case["counters"].removeprefix("unavailable").removeprefix(": ") for case in book.cases if case not in known and case["status"] == "ok")
    if not known:
        return "unavailable: " + ("; ".join(filter(None, reasons)) or "no case ran to its end with them")
    rows = [[*book.who(c), *[number(c[name], text) for name, (_, text) in COUNTERS.items()], slowed_by(c)] for c in known]
    head = [*book.head, *[title for title, _ in COUNTERS.values()], "by (share of samples)"]
    return {"table": Table("Device counters", head, rows), "slowed": [case.label for case in known if case["throttled"] > 0],
            "sources": listed(dict.fromkeys(case["counters"] for case in known)), "reasons": list(filter(None, reasons)), "without": len(book.cases) - len(known)}


# Where the results come from.

BUILD = {"version": "miniTaw", "git_hash": "commit", "build_type": "build type", "compiler": "compiler", "compiler_flags": "flags", "kokkos": "Kokkos",
         "mpi": "MPI", "nccl": "NCCL", "cuda": "CUDA", "driver": "device driver", "libraries": "libraries", "cpu": "processor", "os": "system",
         "started": "started (UTC)", "deck_path": "deck", "overrides": "--set", "links": "shaped links"}
TEXTS = {"command": "Command", "deck": "Deck", "environment": "Environment (variables on the allow-list)", "log": "What run printed"}


def as_list(value):
    return [value] if isinstance(value, str) else [str(one) for one in value]


def rank_rows(session):
    """Rank, host, device, cores; neighbours that are alike share a row."""
    columns = [name for name in ("hosts", "devices", "cores") if len(session.get(name, []))]
    found = []
    for rank in range(max((len(session[name]) for name in columns), default=0)):
        cells = [str(session[name][rank]) if rank < len(session[name]) else "–" for name in columns]
        if found and found[-1][1:] == cells:
            found[-1][0] = f"{found[-1][0].split('–')[0]}–{rank}"
        else:
            found.append([str(rank), *cells])
    return columns, found


def of_file(result):
    rows = [[title, ", ".join(said)] for name, title in BUILD.items()
            if (said := dict.fromkeys(filter(None, (text for s in result.sessions for text in as_list(s.get(name, "")))))) ]
    maps = {str(rank_rows(session)): rank_rows(session) for session in result.sessions}.values()
    tables = [Table("Build and libraries", ["what", "value"], rows, "build")]
    tables += [Table("Ranks and where they ran", ["rank", *[name.removesuffix("s") if name != "cores" else name for name in columns]], some, "build")
               for columns, some in maps if some]
    texts = [(title, text) for name, title in TEXTS.items()
             for text in dict.fromkeys("\n".join(as_list(session.get(name, ""))) for session in result.sessions) if text]
    return {"name": f"{result.letter}: {result.name}" if result.letter else result.name, "sessions": plural(len(result.sessions), "session"),
            "tables": tables, "texts": texts}


def provenance_section(book):
    return {"files": [of_file(result) for result in book.results]}


def page(results):
    """The whole page as text."""
    book, here = Book(results), pathlib.Path(__file__).parent
    sections = {name: globals()[f"{name}_section"](book) for name in TITLES}
    loader = jinja2.Environment(loader=jinja2.FileSystemLoader(here), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
                                finalize=lambda value: FORBIDDEN.sub("\ufffd", value) if type(value) is str else value)
    loader.filters |= {"figure": figure, "bytes": bytes_text, "seconds": seconds_text, "plural": plural, "listed": listed, "exact": repr}
    title = "miniTaw: " + ", ".join(result.path.stem for result in results)
    return loader.get_template("report.html").render(title=title, top=top(book), sections=sections, titles=TITLES, count=len(book.cases)) + "\n"


def main(words=None):
    parser = Parser(prog="report", description="Writes what result files say as one page: for a browser, a phone or paper (docs/report.md).")
    parser.add_argument("files", metavar="FILE.h5", nargs="+", help="result file of minitaw run")
    parser.add_argument("-o", "--output", metavar="PAGE.html", default="report.html", help="default: %(default)s")
    options = parser.parse_args(words)
    write_file(options.output, page(load_all(options.files)))
    put_out(f"{options.output}\n")
