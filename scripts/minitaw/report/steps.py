"""Every sample of every case, and when every action of a measured step ran."""

from dataclasses import dataclass

import numpy

from ..record import read_timeline
from ..timeline import PHASES, events_of
from .book import LeftOut, Section
from .charts import Frame, at, drawing, legend, line, mark_text, marker, rect, round_steps, row_head, swatch, text_at
from .markup import (
    captioned, count_text, exists, figures, join, listed, Markup, percent, plural, seconds_text, tag, time_unit, tokens_text_of)

# Every sample of every case, against the case's median: how far can these figures be trusted?

SAMPLES_ROW, BAR = 34, 12
PER_CHART, MOST_CASES, MOST_SAMPLES = 15, 120, 400
NARROWEST, WIDEST = 0.02, 0.6  # of the axis to each side, as a share of the median
SHAPES = ["circle", "ring", "square", "diamond", "up", "down", "plus", "cross"]


def median_of(case):
    return float(numpy.median(case.samples))


def is_noisy(case):
    """As the verdict says."""
    return "noisy" in case.doubt


def quartiles(case):
    return [float(v) for v in numpy.quantile(case.samples, [0.25, 0.75])]


def spread(case):
    """(q3 - q1) / median, as the summary of schema 4 has it."""
    q1, q3 = quartiles(case)
    return (q3 - q1) / median_of(case)


def reach_of(cases):
    """How far the axis goes to each side: nine in ten samples, no less and no more than is useful."""
    off = numpy.concatenate([abs(case.samples / median_of(case) - 1) for case in cases])
    return float(min(max(numpy.quantile(off, 0.9) * 1.15, NARROWEST), WIDEST))


def thinned(case):
    """Samples that are drawn, with their repetition: evenly chosen if there are very many."""
    keep = numpy.unique(numpy.linspace(0, len(case.samples) - 1, min(len(case.samples), MOST_SAMPLES)).astype(int))
    return case.samples[keep] / median_of(case) - 1, case.repetition[keep]


def name_of(case, book):
    return f"{case.label}: {book.naming(case)}, {case['ranks']} r, {count_text(case['seq'])}"


def draw_case(frame, case, book, top, reach):
    q1, q3 = (v / median_of(case) - 1 for v in quartiles(case))
    note = f"{percent(spread(case))}" + (" noisy" if is_noisy(case) else "")
    parts = [row_head(frame, top, name_of(case, book), note, "failed" if is_noisy(case) else "tick")]
    middle = top + 16 + BAR / 2
    low, high = (min(max(v, -reach), reach) for v in (q1, q3))
    parts.append(rect(frame.x(low), middle - BAR / 2, frame.x(high) - frame.x(low), BAR, "quartiles"))
    parts.append(line(frame.x(0), middle - BAR / 2, frame.x(0), middle + BAR / 2, "median"))
    shares, repetitions = thinned(case)
    for share, repetition in zip(shares, repetitions):
        shape, colour = SHAPES[int(repetition) % len(SHAPES)], f"c{int(repetition) % 8}"
        if abs(share) > reach:
            x = frame.x(reach if share > 0 else -reach)
            parts.append(text_at(x, middle + 4, "›" if share > 0 else "‹", "off mid"))
        else:
            parts.append(marker(shape, frame.x(share), middle, colour + " sample"))
    return parts


def chart(cases, book, reach, title):
    frame = Frame(height=SAMPLES_ROW * len(cases) + 52, left=8, right=8, top=4)
    frame.scale_x(-reach, reach, inset=10)
    step = next(s for s in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2) if reach / s <= 3.5)
    marks = [i * step for i in range(-int(reach / step), int(reach / step) + 1)]
    parts = [frame.x_axis(marks, "difference from the median of the case [%]", lambda v: f"{100 * v:+.3g}" if v else "0")]
    said = []
    for number, case in enumerate(cases):
        parts += draw_case(frame, case, book, frame.top + SAMPLES_ROW * number, reach)
        said.append(f"case {name_of(case, book)}: {plural(len(case.samples), 'sample')}, median {seconds_text(median_of(case))}, "
                    f"spread {percent(spread(case))}{', noisy' if is_noisy(case) else ''}")
    return drawing(frame.width, frame.height, f"{title}. " + "; ".join(said), *parts)


def samples_section(book):
    known = [case for case in book.cases if len(case.samples) and median_of(case) > 0]
    if not known:
        return LeftOut("Samples", "no case has any")
    shown = known
    if len(known) > MOST_CASES:
        widest = sorted(known, key=lambda case: (is_noisy(case), spread(case)), reverse=True)[:MOST_CASES]
        shown = [case for case in known if case in widest]
    reach = reach_of(shown)
    drawings = []
    for begin in range(0, len(shown), PER_CHART):
        some = shown[begin:begin + PER_CHART]
        name = "Samples of " + (f"case {some[0].label}" if len(some) == 1 else f"cases {some[0].label} to {some[-1].label}")
        drawings.append(captioned(name, chart(some, book, reach, name)))
    noisy = sum(is_noisy(case) for case in known)
    repeats = max(int(case.repetition.max()) + 1 for case in known)
    words = ["A sample is the time of a step on the slowest rank, here as its difference from the median of its case. Box: first to third "
             "quartile; behind each name its width (the spread). ", f"{plural(noisy, 'case')} noisy." if noisy else "No case is flagged as noisy."]
    if len(known) > MOST_CASES:
        words.append(f" The {MOST_CASES} of {len(known)} cases with the widest spread.")
    words.append(" ‹ ›: further out.")
    content = [tag("p", *words)]
    if repeats > 1:
        content.append(legend([(swatch(marker(SHAPES[r % len(SHAPES)], 7, 7, f"c{r % 8} sample"), 14), f"repetition {r}")
                                   for r in range(min(repeats, len(SHAPES)))]))
    return Section("Samples", join([*content, figures(drawings)]), "samples")


# When every action of a measured step ran: a row for each rank and lane, coloured by kind.

WIDTH, LEFT, TIMELINE_ROW = 1080, 116, 11
MOST_DRAWN, MOST_RECTANGLES, MOST_RANKS = 4, 6000, 24


@dataclass
class Span:
    rank: int
    lane: str
    phase: str
    begin: float
    end: float


def spans_of(case):
    """The actions that are drawn, in seconds of the step."""
    for event in events_of(read_timeline(case)):
        if event.phase and event.end > event.begin:
            yield Span(event.rank, event.lane, event.phase, event.begin, event.end)


def merged(spans, pixel):
    """Neighbours of one colour that are less than a third of a pixel apart become one rectangle."""
    rows = {}
    for span in sorted(spans, key=lambda span: span.begin):
        row = rows.setdefault((span.rank, span.lane), [])
        last = row[-1] if row else None
        if last and last.phase == span.phase and span.begin - last.end < pixel / 3 and span.end - last.begin < 2 * pixel:
            last.end = max(last.end, span.end)
        else:
            row.append(Span(**vars(span)))
    return rows


def fit(spans, length):
    """Rows of rectangles: coarser, then fewer ranks, until there are few enough. Returns (rows, ranks shown)."""
    pixel = length / (WIDTH - LEFT)
    ranks = sorted({span.rank for span in spans})[:MOST_RANKS]
    while True:
        some = [span for span in spans if span.rank in set(ranks)]
        for coarser in (1, 2, 4):
            rows = merged(some, pixel * coarser)
            if sum(map(len, rows.values())) <= MOST_RECTANGLES:
                return rows, ranks
        if len(ranks) == 1:
            first = {key: row[:MOST_RECTANGLES // max(1, len(rows))] for key, row in rows.items()}
            return first, ranks
        ranks = ranks[:max(1, len(ranks) // 2)]


def draw_rows(frame, rows):
    """Rectangles of one colour and row are one path: a fifth of the bytes."""
    order = sorted(rows, key=lambda key: (key[0], key[1] != "compute", key[1]))
    parts, y, last = [], frame.top, None
    for rank, lane in order:
        if rank != last:
            y += 5 if last is not None else 0
            parts.append(text_at(4, y + 9, f"rank {rank}", "row"))
        last = rank
        parts.append(text_at(LEFT - 4, y + 9, lane, "row end"))
        parts.append(rect(frame.left, y, frame.right - frame.left, TIMELINE_ROW - 1, "lane"))
        paths = {}
        for span in rows[rank, lane]:
            x, width = frame.x(span.begin), max(frame.x(span.end) - frame.x(span.begin), 0.4)
            paths.setdefault(span.phase, []).append(f"M{at(x)} {at(y)}h{at(width)}v{TIMELINE_ROW - 1}h{at(-width)}z")
        parts += [tag("path", d="".join(path), class_=f"t-{phase}") for phase, path in paths.items()]
        y += TIMELINE_ROW
    return parts


def height_of(rows):
    return TIMELINE_ROW * len(rows) + 5 * (len({rank for rank, _ in rows}) - 1)


def draw(case, book, spans):
    length = max([case.get("time/length").item() if case.get("time/length").size else 0, *[span.end for span in spans]])
    rows, ranks = fit(spans, length)
    frame = Frame(WIDTH, height_of(rows) + 54, left=LEFT, right=10, top=8, bottom=46)
    frame.scale_x(0, length)
    divisor, unit = time_unit(length)
    marks = [m * divisor for m in round_steps(length / divisor, 10) if m * divisor <= length * 1.0001]
    total = len({span.rank for span in spans})
    axis = frame.x_axis(marks, f"since the step began [{unit}]", lambda v: mark_text(v / divisor))
    shares = f"{percent(1 - case['exposed_share'] - case['idle_share'])} computing, {percent(case['exposed_share'])} exposed, " \
             f"{percent(case['idle_share'])} idle" if exists(case["idle_share"]) else ""
    title = f"Case {case.label}: {book.naming(case)}, {plural(case['ranks'], 'rank')} in groups {case['groups']}, {tokens_text_of(case)}"
    count = sum(map(len, rows.values()))
    notes = [f"{plural(len(spans), 'action')} in {plural(count, 'rectangle')}, neighbours of one kind drawn as one." if count < len(spans) else ""]
    notes.append(f"Ranks {ranks[0]} to {ranks[-1]} of {total}." if len(ranks) < total else "")
    label = f"{title}. One step of {seconds_text(length)}: {shares}."
    picture = drawing(frame.width, frame.height, label, axis, *draw_rows(frame, rows))
    box = tag("div", picture, class_="scroll timeline", tabindex="0", role="region", aria_label=f"timeline of case {case.label}")
    return captioned(title, box, f"A step of {seconds_text(length)}: {shares}. " + " ".join(n for n in notes if n), wide=True)


def chosen(cases):
    """One case for each schedule, the longest sequence first, up to what a page bears."""
    best = {}
    for case in cases:
        name = case["schedule"]
        if name not in best or case["seq"] > best[name]["seq"]:
            best[name] = case
    return sorted(best.values(), key=lambda case: (case.file.letter, case.number))[:MOST_DRAWN]


def timeline_section(book):
    known = [case for case in book.cases if case.has_timeline]
    if not known:
        return LeftOut("Timelines", "the file has none; minitaw run --timeline keeps them")
    drawn = [(case, list(spans_of(case))) for case in chosen(known)]
    drawings = [draw(case, book, spans) for case, spans in drawn if spans]
    phases = {span.phase for _, spans in drawn for span in spans}
    entries = [(swatch(tag("path", d="M1 1h22v12h-22z", class_=f"t-{p}"), 24), name) for p, (name, _) in PHASES.items() if p in phases]
    rest = [case.label for case in known if case not in [c for c, _ in drawn]]
    words = "The actions of one step, a row for each rank and lane: computing, and transfers of operands and of gradients, in and out."
    if rest:
        words += f" {plural(len(rest), 'case')} more in the file ({listed(rest)}): scripts/timeline FILE --case N draws any."
    return Section("Timelines", Markup(join([tag("p", words), legend(entries), *drawings])), "timelines")
