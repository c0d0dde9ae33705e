"""Every sample of every case, against the case's median: how far can these figures be trusted?"""

import numpy

from . import svg
from .book import LeftOut, Section
from .html import figure as html_figure
from .html import figures, join, tag
from .text import count_text, percent, plural, seconds_text

ROW, BAR = 34, 12
PER_CHART, MOST_CASES, MOST_SAMPLES = 15, 120, 400
NARROWEST, WIDEST = 0.02, 0.6  # of the axis to each side, as a share of the median
SHAPES = ["circle", "ring", "square", "diamond", "up", "down", "plus", "cross"]


def median_of(case):
    return float(numpy.median(case.samples))


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
    note = f"{percent(spread(case))}" + (" noisy" if case.noisy else "")
    parts = [svg.row_head(frame, top, name_of(case, book), note, "failed" if case.noisy else "tick")]
    middle = top + 16 + BAR / 2
    low, high = (min(max(v, -reach), reach) for v in (q1, q3))
    parts.append(svg.rect(frame.x(low), middle - BAR / 2, frame.x(high) - frame.x(low), BAR, "quartiles"))
    parts.append(svg.line(frame.x(0), middle - BAR / 2, frame.x(0), middle + BAR / 2, "median"))
    shares, repetitions = thinned(case)
    for share, repetition in zip(shares, repetitions):
        shape, colour = SHAPES[int(repetition) % len(SHAPES)], f"c{int(repetition) % 8}"
        if abs(share) > reach:
            x = frame.x(reach if share > 0 else -reach)
            parts.append(svg.text(x, middle + 4, "›" if share > 0 else "‹", "off mid"))
        else:
            parts.append(svg.marker(shape, frame.x(share), middle, colour + " sample"))
    return parts


def chart(cases, book, reach, title):
    frame = svg.Frame(height=ROW * len(cases) + 52, left=8, right=8, top=4)
    frame.scale_x(-reach, reach, inset=10)
    step = next(s for s in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2) if reach / s <= 3.5)
    marks = [i * step for i in range(-int(reach / step), int(reach / step) + 1)]
    parts = [frame.x_axis(marks, "difference from the median of the case [%]", lambda v: f"{100 * v:+.3g}" if v else "0")]
    said = []
    for number, case in enumerate(cases):
        parts += draw_case(frame, case, book, frame.top + ROW * number, reach)
        said.append(f"case {name_of(case, book)}: {plural(len(case.samples), 'sample')}, median {seconds_text(median_of(case))}, "
                    f"spread {percent(spread(case))}{', noisy' if case.noisy else ''}")
    return svg.drawing(frame.width, frame.height, f"{title}. " + "; ".join(said), *parts)


def section(book):
    known = [case for case in book.cases if len(case.samples) and median_of(case) > 0]
    if not known:
        return LeftOut("Samples", "no case has any")
    shown = known
    if len(known) > MOST_CASES:
        widest = sorted(known, key=lambda case: (case.noisy, spread(case)), reverse=True)[:MOST_CASES]
        shown = [case for case in known if case in widest]
    reach = reach_of(shown)
    drawings = []
    for begin in range(0, len(shown), PER_CHART):
        some = shown[begin:begin + PER_CHART]
        name = "Samples of " + (f"case {some[0].label}" if len(some) == 1 else f"cases {some[0].label} to {some[-1].label}")
        drawings.append(html_figure(name, chart(some, book, reach, name)))
    noisy = sum(case.noisy for case in known)
    repeats = max(int(case.repetition.max()) + 1 for case in known)
    words = ["A sample is the time of a step on the slowest rank, here as its difference from the median of its case. Box: first to third "
             "quartile; behind each name its width (the spread). ", f"{plural(noisy, 'case')} noisy." if noisy else "No case is flagged as noisy."]
    if len(known) > MOST_CASES:
        words.append(f" The {MOST_CASES} of {len(known)} cases with the widest spread.")
    words.append(" ‹ ›: further out.")
    content = [tag("p", *words)]
    if repeats > 1:
        content.append(svg.legend([(svg.swatch(svg.marker(SHAPES[r % len(SHAPES)], 7, 7, f"c{r % 8} sample"), 14), f"repetition {r}")
                                   for r in range(min(repeats, len(SHAPES)))]))
    return Section("Samples", join([*content, figures(drawings)]), "samples")
