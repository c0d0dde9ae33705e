"""The page of a result: what a reader wants to know, as data; report.html says it in words (docs/report.md)."""

import itertools
import pathlib
from collections import namedtuple
from dataclasses import dataclass

import jinja2
import markupsafe
import numpy

from . import timeline
from .command import Parser, put_out, write_file
from .figures import (
    FORBIDDEN, MEMORY_KINDS, SETTINGS, STEP_PARTS, TRAFFIC_KINDS, as_svg, at_longest, axis_of_counts, bars_figure, byte_unit, bytes_text, count_text,
    draw_bars, draw_lines, draw_rates_and_memory, draw_step, draw_traffic, exists, figure, grouped, legend_below, listed, new_figure, panels, percent, plural,
    rate_text, seconds_text, setting_text, shared_settings, short, styles_of, telling)
from .record import FACTS, describe, fastest, load_all, quietest, reason_of, texts_of, verdict_of
from .rules import MODEL

# What is too much for a page is cut, and the page says so.
MOST_PANELS, MOST_ROWS, MOST_SAMPLE_ROWS, MOST_TIMELINES = 6, 40, 100, 4
TITLES = {"cases": "Cases", "traffic": "Bytes moved", "throughput": "Throughput and memory", "scaling": "Scaling", "time": "Where the time went",
          "planned": "Planned against measured", "samples": "Samples", "timelines": "Timelines", "counters": "Device counters",
          "provenance": "Provenance"}


@dataclass
class Cell:
    """Of a table. `value`: the exact one, for programs that read the page."""
    text: str
    value: object = None
    kind: str = "n"
    span: int = 1


Table = namedtuple("Table", "caption head rows kind", defaults=[""])


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
        same = grouped(self.cases, lambda case: tuple(case[name] for name in ("schedule", "seq", *SETTINGS))).values()
        self.with_file = any(len({case.file.letter for case in some}) > 1 for some in same)
        self.styles = styles_of(map(self.naming, self.cases))
        self.told = [name for name in telling(self.cases, ("schedule", "seq", *SETTINGS)) if name != "schedule"]

    def naming(self, case):
        return case["schedule"] + (f" ({case.file.letter})" if self.with_file else "")

    def telling(self, case):
        """The settings that tell this case from others of its schedule: "512 tokens, 2 ranks"."""
        return ", ".join(f"{count_text(case['seq'])} tokens" if name == "seq" else setting_text(name, case[name]) for name in self.told)

    def table(self, caption, columns, cases, cells_of, kind=""):
        """A row for each case. Settings stand in its first cell: columns of their own would push the figures off a phone. Columns in which
        no case has a figure are left out."""
        rows = []
        for case in cases:
            mark, good = ("✘", "bad") if not case.valid else ("!", "doubt") if case.doubt else ("✔", "good")
            rows.append([{"mark": mark, "kind": good, "label": case.label, "name": self.naming(case), "telling": self.telling(case)}, *cells_of(case)])
        full = [row[1:] for row in rows if len(row) > 2]
        used = [0, *[i + 1 for i in range(len(columns)) if not full or any(cells[i].text != "–" for cells in full)]]
        for row in rows:
            row[1].span = min(row[1].span, len(used) - 1)
        return Table(caption, [["schedule", *columns][i] for i in used], [[row[i] for i in used] if len(row) > 2 else row for row in rows], kind)

    def picture(self, drawn, title, wide=False):
        self.pictures += 1
        return {"title": title, "svg": markupsafe.Markup(as_svg(drawn, title, self.pictures)), "wide": wide}

    def by_panel(self, cases, what, parts, draw):
        """Bars of the panels at the longest sequence, by draw(axes, cases), and how many are not drawn."""
        every, found = panels(cases), []
        for title, some in every[:MOST_PANELS]:
            seq, longest = at_longest(some)
            rest, shown = f"the first {MOST_ROWS} of {len(longest)} cases" if len(longest) > MOST_ROWS else "", longest[:MOST_ROWS]
            drawn = bars_figure(map(self.naming, shown), parts, lambda axes, shown=shown: draw(axes, shown))
            found.append(self.picture(drawn, "; ".join(filter(None, (what, title, f"{count_text(seq)} tokens", rest)))))
        return {"pictures": found, "rest": len(every) - len(found)}


# The top: may this result be quoted, and what is its figure of merit.

def top(book):
    verdicts = [(result, verdict, "good" if verdict == "VALID" else "doubt" if verdict.startswith("VALID") else "bad")
                for result in book.results for verdict in [verdict_of(result.cases)]]
    names = telling(book.valid, MODEL)
    models = grouped(book.valid, lambda case: tuple(case[name] for name in names))
    merits = [{"case": fastest(some), "quiet": quietest(some), "model": ", ".join(map(setting_text, names, key))} for key, some in models.items()]
    sessions = [session for result in book.results for session in result.sessions]
    ranks, nodes = (max((count(s) for s in sessions), default=0) for count in (lambda s: len(s.get("devices", [])), lambda s: len(set(s.get("nodes", [])))))
    dates = sorted(session["started"] for session in sessions if session.get("started"))
    origin = ["miniTaw " + listed(dict.fromkeys(f"{s.get('version', '')} ({s.get('git_hash', '')})" for s in sessions), 3),
              f"{plural(ranks, 'rank')} on {plural(nodes, 'node')}: " + listed(dict.fromkeys(d for s in sessions for d in s.get("devices", [])), 3),
              " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else ""]
    links = listed(dict.fromkeys(" ".join(s["links"]) for s in sessions if len(s.get("links", []))), 3)
    lengths = {case["seq"] for case in book.cases}
    shared = shared_settings(book.cases) + ([f"{count_text(lengths.pop())} tokens in a sequence"] if len(lengths) == 1 else [])
    return {"verdicts": verdicts, "merits": merits, "origin": origin + ([f"links between nodes: {links}"] if links else []), "shared": shared,
            "words": lambda case: ", ".join(filter(None, (book.naming(case), book.telling(case))))}


# All cases in a table, and in words what failed and why. Bytes come first: they are exact. What a file does not have is left out.

FIGURES = {"bytes_between": ("between groups", bytes_text), "tokens_per_s": ("token/s", figure), "median_s": ("step, median", seconds_text),
           "spread": ("spread", percent), "memory_measured": ("memory, worst rank", bytes_text), "exposed_share": ("exposed", percent),
           "idle_share": ("idle", percent), "mfu": ("MFU", percent)}
MORE_FIGURES = {"bytes_inside": ("inside groups", bytes_text), "rate_between": ("reached between", rate_text), "rate_inside": ("reached inside", rate_text),
                "overlap": ("overlap", percent), "tflops_causal": ("TFLOP/s", figure), "tflops_rank": ("TFLOP/s per rank", figure),
                "last_loss": ("last loss", lambda value: figure(value, 5)), "gradient_error": ("gradient error", lambda value: f"{value:.0e}" if exists(value) else "–")}


def figures_table(book, caption, figures, kind=""):
    def cells_of(case):
        if not case["median_s"] > 0:
            return [Cell(f"{case['status']}: {reason_of(case).removeprefix(case['status'] + ': ')}", kind="bad", span=len(figures))]
        found = {name: number(case.row.get(name), text) for name, (_, text) in figures.items()}
        if case.doubt and "spread" in found:
            found["spread"].kind = "n doubt"
        return list(found.values())

    return book.table(caption, [title for title, _ in figures.values()], book.cases, cells_of, kind)


def cases_section(book):
    if not book.cases:
        return "no case was run"
    failed = [(status if status != "ok" else "INVALID", reason.removeprefix(f"{status}: "), len(some), listed(f"{c.label} ({c['schedule']})" for c in some))
              for (status, reason), some in grouped([c for c in book.cases if not c.valid], lambda c: (c["status"], reason_of(c))).items()]
    counts = ", ".join(f"{len(some)} {status}" for status, some in grouped(book.cases, lambda case: case["status"]).items())
    kinds = grouped([c for c in book.valid if c.doubt], lambda c: " and ".join(part.partition(":")[0] for part in c.doubt.split("; ")))
    doubts = [f"{kind}: {listed(case.label for case in some)}" for kind, some in kinds.items()]  # "no warm-up and noisy: 2, 5"
    return {"tables": [figures_table(book, "All cases", FIGURES, "cases"), figures_table(book, "More figures", MORE_FIGURES, "cases")],
            "failed": failed, "counts": counts, "bad": len(book.cases) - len(book.valid), "doubts": doubts}


# Bytes between and inside groups, by kind: counted in the transport and planned from the schedule.

def traffic_section(book):
    known = [case for case in book.cases if case.get("bytes/counted").size]
    moved = [case for case in known if case["bytes_inside"] + case["bytes_between"] > 0]
    if not moved:
        return "no case moved any"
    parts, head = [], ["counted", "planned", *[name for name, _, _ in TRAFFIC_KINDS]]
    for which, where in enumerate(("between groups", "inside groups")):
        def cells_of(case, which=which):
            counted = case.traffic("counted")[which]
            return values(int(v) for v in [counted.sum(), case.traffic("planned")[which].sum(), *counted])

        some = [case for case in moved if case.traffic("counted")[which].any()]
        if some:
            pictures = book.by_panel(some, f"Bytes {where}", TRAFFIC_KINDS,
                                     lambda axes, cases, which=which, where=where: draw_traffic(axes, cases, book.naming, which, f"sent {where}"))
            parts.append({**pictures, "table": book.table(f"Bytes {where} of a step, all ranks together", head, moved, cells_of)})
    differ = [case.label for case in known if not numpy.array_equal(case.get("bytes/counted"), case.get("bytes/planned"))]
    return {"parts": parts, "known": len(known), "differ": differ}


# Throughput and memory against sequence length, or as bars where there is one length only.

def throughput_section(book):
    if not book.valid:
        return "there is no valid case"
    parts, pictures = [(title, some) for title, some in panels(book.cases) if any(case.valid for case in some)], []
    for title, some in parts[:MOST_PANELS]:
        several = len({case["seq"] for case in some}) > 1
        drawn = new_figure(height=4.6 + 0.12 * len(book.styles) if several else 1.5 + 0.5 * len(some))
        axes = drawn.subplots(2, 1)
        draw_rates_and_memory(axes, some, book.styles, book.naming, several)
        if several:
            legend_below(drawn, axes[0])
        pictures.append(book.picture(drawn, title or "All schedules"))
    return {"pictures": pictures, "rest": len(parts) - len(pictures)}


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


def scaling_part(book, kind, tokens_of):
    pictures, rows, parts = [], [], 0
    for _, cases in grouped(book.valid, lambda case: (tokens_of(case), *[case[name] for name in FIXED])).items():
        lines = {name + suffix: line for name, some in grouped(cases, book.naming).items() for suffix, line in apart(some) if len(line) > 1}
        if not lines:
            continue
        parts += 1
        some, name_of = [case for line in lines.values() for case in line], {id(case): name for name, line in lines.items() for case in line}
        # Rate of a rank against that of a rank of the smallest job: 1 is ideal, for both kinds of scaling.
        efficiency = {id(case): case["tokens_per_s_rank"] / line[0]["tokens_per_s_rank"] for line in lines.values() for case in line}
        drawn = new_figure(height=4.4 + 0.12 * len(lines))
        axes = drawn.subplots(2, 1)
        for one, value, label in ((axes[0], lambda c: c["tokens_per_s"], "throughput, all ranks [token/s]"),
                                  (axes[1], lambda c, efficiency=efficiency: 100 * efficiency[id(c)], "efficiency [%]")):
            draw_lines(one, some, styles_of(lines), lambda case, names=name_of: names[id(case)], value, x=lambda case: case["ranks"])
            axis_of_counts(one, [case["ranks"] for case in some], "ranks")
            one.set_title(label, loc="left", fontsize=9)
        legend_below(drawn, axes[0])
        if len(pictures) < MOST_PANELS:
            title = f"{kind} scaling: {figure(tokens_of(some[0]))} tokens in a step{' of each rank' if kind == 'Weak' else ''}"
            pictures.append(book.picture(drawn, f"{title}, {count_text(some[0]['seq'])} in a sequence"))
        rows += [[name, number(case["ranks"]), case["groups"], number(case.tokens), number(case["tokens_per_s"]),
                  number(case["tokens_per_s"] / line[0]["tokens_per_s"]), number(efficiency[id(case)], percent)] for name, line in lines.items() for case in line]
    head = ["schedule", "ranks", "groups", "tokens in a step", "token/s", "speed-up", "efficiency"]
    return {"pictures": pictures, "rest": parts - len(pictures), "table": Table(f"{kind} scaling in numbers", head, rows)} if rows else None


def scaling_section(book):
    parts = {"Strong": scaling_part(book, "Strong", lambda case: case.tokens), "Weak": scaling_part(book, "Weak", lambda case: case.tokens / case["ranks"])}
    return parts if any(parts.values()) else "no two valid cases differ in ranks with the tokens of a step, or of a rank and step, kept the same"


# Where the time of a step went.

def time_section(book):
    known = [case for case in book.cases if exists(case["compute_s"])]
    if not known:
        return "no case has it"
    table = book.table("Parts of a step, mean over ranks", [*[name for name, _, _ in STEP_PARTS.values()], "exposed, share", "idle, share"], known,
                       lambda c: [*values([c[name] for name in STEP_PARTS], seconds_text), *values([c["exposed_share"], c["idle_share"]], percent)])
    return {**book.by_panel(known, "Parts of a step", STEP_PARTS, lambda axes, cases: draw_step(axes, cases, book.naming, "mean over ranks")), "table": table}


# Planned against measured: memory of the worst rank by kind, and what the others need; and the ticks in which ranks compute nothing, which are no time.

def planned_section(book):
    known = [case for case in book.cases if case.get("memory/planned").size and case.get("memory/measured").size]
    if not known:
        return "no case ran far enough"

    def worst(case):
        rank = case.get("memory/measured").sum(axis=1).argmax()
        return case.get("memory/planned")[rank], case.get("memory/measured")[rank]

    def draw(axes, cases):
        divisor, unit = byte_unit(max(kinds.sum() for case in cases for kinds in worst(case)))
        draw_bars(axes, [(book.naming(c), worst(c)[1] / divisor, worst(c)[0].sum() / divisor, None) for c in cases], MEMORY_KINDS, f"worst rank [{unit}]")

    def cells_of(case):
        planned, measured = worst(case)
        ticks, idle, every = case["ticks"], case.get("idle_ticks"), numpy.sort(case.get("memory/measured").sum(axis=1))[[case["ranks"] // 2, 0]]
        return [*values(int(v) for v in [planned.sum(), measured.sum(), *measured, *every]), Cell(f"{figure(idle.mean(), 3)} of {ticks}" if idle.size and ticks else "–")]

    kinds = [name for name, _, _ in MEMORY_KINDS]
    differ = [case.label for case in known if not numpy.array_equal(case.get("memory/planned"), case.get("memory/measured"))]
    table = book.table("Memory of the worst rank, planned and measured, and of others", ["memory planned", "measured", *kinds, "median rank", "least", "ticks without work"], known, cells_of)
    return {**book.by_panel(known, "Memory by kind", MEMORY_KINDS, draw), "table": table, "differ": differ, "known": len(known)}


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
    return Cell(", ".join(f"{name} {percent(share, 0)}" for name, share in shares.items() if share) or "–", kind="")


def counters_section(book):
    known = [case for case in book.cases if case.get("device/clock").size or exists(case["energy_per_token"])]
    reasons = dict.fromkeys(case["counters"].removeprefix("unavailable").removeprefix(": ") for case in book.cases if case not in known and case["status"] == "ok")
    if not known:
        return "unavailable: " + ("; ".join(filter(None, reasons)) or "no case ran to its end with them")
    table = book.table("Device counters", [*[title for title, _ in COUNTERS.values()], "by (share of samples)"], known,
                       lambda c: [*[number(c[name], text) for name, (_, text) in COUNTERS.items()], slowed_by(c)])
    return {"table": table, "slowed": [case.label for case in known if case["throttled"] > 0],
            "sources": listed(dict.fromkeys(case["counters"] for case in known)), "reasons": list(filter(None, reasons)), "without": len(book.cases) - len(known)}


# Where the results come from.

BUILD = FACTS | {"cpu": "processor", "os": "system", "started": "started (UTC)"}
TEXTS = {"command": "Command", "deck": "Deck", "environment": "Environment (variables on the allow-list)", "log": "What run printed"}


def rank_rows(session):
    """Rank, host, device, cores; neighbours that are alike share a row."""
    columns = [name for name in ("hosts", "devices", "cores") if len(session.get(name, []))]
    cells = list(itertools.zip_longest(*(texts_of(session, name) for name in columns), fillvalue="–"))
    alike = [list(ranks) for _, ranks in itertools.groupby(range(len(cells)), cells.__getitem__)]
    return columns, [["–".join(dict.fromkeys([str(ranks[0]), str(ranks[-1])])), *cells[ranks[0]]] for ranks in alike]


def of_file(result):
    rows = [[title, ", ".join(said)] for name, title in BUILD.items()
            if (said := dict.fromkeys(filter(None, (text for s in result.sessions for text in texts_of(s, name)))))]
    maps = {str(rank_rows(session)): rank_rows(session) for session in result.sessions}.values()
    tables = [Table("Build and libraries", ["what", "value"], rows, "build")]
    tables += [Table("Ranks and where they ran", ["rank", *[name.removesuffix("s") if name != "cores" else name for name in columns]], some, "build")
               for columns, some in maps if some]
    texts = [(title, text) for name, title in TEXTS.items()
             for text in dict.fromkeys("\n".join(texts_of(session, name)) for session in result.sessions) if text]
    return {"name": f"{result.letter}: {result.name}" if result.letter else result.name, "sessions": plural(len(result.sessions), "session"),
            "tables": tables, "texts": texts}


def provenance_section(book):
    return [of_file(result) for result in book.results]


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
