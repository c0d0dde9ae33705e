"""When every action of a measured step ran: a row for each rank and lane, coloured by kind."""

from dataclasses import dataclass

import numpy

from . import svg
from .book import LeftOut, Section
from .html import Markup, figure, join, tag
from .load import read_timeline
from .text import exists, listed, percent, plural, seconds_text, time_unit, tokens_text_of

WIDTH, LEFT, ROW = 1080, 104, 11
MOST_DRAWN, MOST_RECTANGLES, MOST_RANKS = 4, 6000, 24
# What counts as what, as `minitaw show --timeline` has it.
COMPUTE = {"F": "F", "BW": "BW", "B": "B", "W": "W", "embed": "E", "loss": "E", "dembed": "E"}
PAYLOAD = {"weights": "weights", "gradient": "gradients", "activation": "activations", "activation_grad": "activations", "ends": "ends",
           "ends_gradient": "ends"}
NAMES = {"F": "F: forward", "BW": "BW: backward, both halves", "B": "B: backward towards the input", "W": "W: backward towards the weights",
         "E": "embedding, head, loss", "U": "update, add, zero", "weights": "transfer of weights", "gradients": "of gradients",
         "activations": "of activations", "ends": "of embedding and head"}
LOCAL = {"zero", "add", "load", "update"}


@dataclass
class Span:
    rank: int
    lane: str
    phase: str
    begin: float
    end: float


def phase_of(kind, payload):
    if kind == "join":
        return None
    if kind in COMPUTE:
        return COMPUTE[kind]
    return "U" if kind in LOCAL else PAYLOAD.get(payload, "weights")


def spans_of(case):
    """The actions that are drawn, in seconds of the step."""
    columns, codes = read_timeline(case)
    for i in range(len(columns["rank"])):
        phase = phase_of(codes["kind"][columns["kind"][i]], codes["payload"][columns["payload"][i]])
        begin, end = float(columns["begin"][i]), float(columns["end"][i])
        if phase and end > begin:
            yield Span(int(columns["rank"][i]), codes["lane"][columns["lane"][i]], phase, begin, end)


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
    lanes = {"compute": 0, "intra": 1, "inter": 2}
    order = sorted(rows, key=lambda key: (key[0], lanes.get(key[1], 3)))
    parts, y, last = [], frame.top, None
    for rank, lane in order:
        if rank != last:
            y += 5 if last is not None else 0
            parts.append(svg.text(4, y + 9, f"rank {rank}", "row"))
        last = rank
        parts.append(svg.text(LEFT - 4, y + 9, lane, "row end"))
        parts.append(svg.rect(frame.left, y, frame.right - frame.left, ROW - 1, "lane"))
        paths = {}
        for span in rows[rank, lane]:
            x, width = frame.x(span.begin), max(frame.x(span.end) - frame.x(span.begin), 0.4)
            paths.setdefault(span.phase, []).append(f"M{svg.at(x)} {svg.at(y)}h{svg.at(width)}v{ROW - 1}h{svg.at(-width)}z")
        parts += [tag("path", d="".join(path), class_=f"t-{phase}") for phase, path in paths.items()]
        y += ROW
    return parts


def height_of(rows):
    return ROW * len(rows) + 5 * (len({rank for rank, _ in rows}) - 1)


def draw(case, book, spans):
    length = max([case.get("time/length").item() if case.get("time/length").size else 0, *[span.end for span in spans]])
    rows, ranks = fit(spans, length)
    frame = svg.Frame(WIDTH, height_of(rows) + 54, left=LEFT, right=10, top=8, bottom=46)
    frame.scale_x(0, length)
    divisor, unit = time_unit(length)
    marks = [m * divisor for m in svg.round_steps(length / divisor, 10) if m * divisor <= length * 1.0001]
    total = len({span.rank for span in spans})
    axis = frame.x_axis(marks, f"since the step began [{unit}]", lambda v: svg.mark_text(v / divisor))
    shares = f"{percent(1 - case['exposed_share'] - case['idle_share'])} computing, {percent(case['exposed_share'])} exposed, " \
             f"{percent(case['idle_share'])} idle" if exists(case["idle_share"]) else ""
    title = f"Case {case.label}: {book.naming(case)}, {plural(case['ranks'], 'rank')} in groups {case['groups']}, {tokens_text_of(case)}"
    count = sum(map(len, rows.values()))
    notes = [f"{plural(len(spans), 'action')} in {plural(count, 'rectangle')}, neighbours of one kind drawn as one." if count < len(spans) else ""]
    notes.append(f"Ranks {ranks[0]} to {ranks[-1]} of {total}." if len(ranks) < total else "")
    label = f"{title}. One step of {seconds_text(length)}: {shares}."
    drawing = svg.drawing(frame.width, frame.height, label, axis, *draw_rows(frame, rows))
    box = tag("div", drawing, class_="scroll timeline", tabindex="0", role="region", aria_label=f"timeline of case {case.label}")
    return figure(title, box, f"A step of {seconds_text(length)}: {shares}. " + " ".join(n for n in notes if n), wide=True)


def chosen(cases):
    """One case for each schedule, the longest sequence first, up to what a page bears."""
    best = {}
    for case in cases:
        name = case["schedule"]
        if name not in best or case["seq"] > best[name]["seq"]:
            best[name] = case
    return sorted(best.values(), key=lambda case: (case.file.letter, case.number))[:MOST_DRAWN]


def section(book):
    known = [case for case in book.cases if case.has_timeline]
    if not known:
        return LeftOut("Timelines", "the file has none; minitaw run --timeline keeps them")
    drawn = [(case, list(spans_of(case))) for case in chosen(known)]
    drawings = [draw(case, book, spans) for case, spans in drawn if spans]
    phases = {span.phase for _, spans in drawn for span in spans}
    entries = [(svg.swatch(tag("path", d="M1 1h22v12h-22z", class_=f"t-{p}"), 24), name) for p, name in NAMES.items() if p in phases]
    rest = [case.label for case in known if case not in [c for c, _ in drawn]]
    words = "The actions of one step, a row for each rank and lane: computing, transfers inside the group (intra) and between groups (inter)."
    if rest:
        words += f" {plural(len(rest), 'case')} more in the file ({listed(rest)}): minitaw show FILE --timeline OUT.svg --case N draws any."
    return Section("Timelines", Markup(join([tag("p", words), svg.legend(entries), *drawings])), "timelines")
