"""Throughput and memory against sequence length: one line for each schedule, a panel for every other setting."""

from . import bars, lines
from .book import LeftOut, Section
from .group import MOST_PANELS, lines_of, panels, split_families, tokens_text
from .head import reason_of
from .html import figure as html_figure
from .html import figures, join, tag
from .text import byte_unit, count_text, plural
from .text import figure as figure_text


def rate_point(case):
    low, high = (case.tokens / case[q] if case[q] > 0 else None for q in ("q3_s", "q1_s"))
    tip = f"case {case.label}: {case['schedule']}, {tokens_text(case['seq'])}: {figure_text(case['tokens_per_s'], 5)} token/s"
    return lines.Point(case["seq"], case["tokens_per_s"], low, high, tip)


def failed_point(case):
    return lines.Point(case["seq"], 0, tip=f"case {case.label}: {case['schedule']}, {tokens_text(case['seq'])}: {reason_of(case)}")


def memory_point(divisor, unit):
    def point(case):
        y = case["memory_measured"] / divisor
        return lines.Point(case["seq"], y, tip=f"case {case.label}: {case['schedule']}, {tokens_text(case['seq'])}: {figure_text(y)} {unit}")
    return point


def chart(title, cases, others, book, point, y, largest):
    """A line chart; with a single sequence length, bars."""
    drawn = [lines.Line(name, [point(c) for c in some if c.valid], [failed_point(c) for c in some if not c.valid])
             for name, some in lines_of(cases, book.naming).items()]
    drawn += [lines.Line(name, [point(c) for c in some if c.valid], faint=True) for name, some in lines_of(others, book.naming).items()]
    marks = sorted({case["seq"] for case in cases + others})
    if len(marks) == 1:
        return bars.bar_chart([bar_of(one, book) for one in drawn if not one.faint], title, y[0], y[1], largest)
    x = ("sequence length [token]", marks, lambda v: count_text(int(v)), True)
    return lines.line_chart(drawn, book.styles, title, x, y, largest)


def bar_of(one, book):
    if not one.points:
        return bars.Bar(one.name, note=one.failed[0].tip.split(": ", 2)[-1] if one.failed else "no valid case")
    p = one.points[0]
    return bars.Bar(one.name, [(f"c{book.styles.colour(one.name)} bar", "", p.y)], spread=(p.low, p.high) if p.low else None)


def panel(what, title, some, others, book, point, y, largest):
    name = f"{what}: {title}" if title else what
    lengths = {case["seq"] for case in some + others}
    if len(lengths) == 1:
        name += f" at {tokens_text(lengths.pop())}"
    return html_figure(name, chart(name, some, others, book, point, y, largest))


def scale(cases, value):
    """One scale for all panels, so that they can be compared by eye, unless some would be squeezed flat: then None."""
    tops = [max((value(case) for case in some if case.valid), default=None) for _, some in panels(cases)]
    tops = [top for top in tops if top]
    return max(tops) if tops and max(tops) < 4 * min(tops) else None


def best_rate(case):
    return max(case["tokens_per_s"], case.tokens / case["q1_s"])


def draw_panels(book):
    """Throughput and memory of a panel side by side. Returns the drawings and whether they differ in scale."""
    fastest, largest = scale(book.cases, best_rate), scale(book.cases, lambda case: case["memory_measured"])
    drawings = []
    for title, cases in panels(book.cases):
        valid = [case for case in cases if case.valid]
        divisor, unit = byte_unit(largest or max((case["memory_measured"] for case in valid), default=0))
        for suffix, some, others in split_families(cases, book.naming) if valid else []:
            here = "; ".join(part for part in (title, suffix) if part)
            drawings.append(panel("Throughput", here, some, others, book, rate_point, ("all ranks [token/s]", "token/s"), fastest))
            memory = (f"worst rank [{unit}]", unit)
            drawings.append(panel("Memory", here, some, others, book, memory_point(divisor, unit), memory, largest and largest / divisor))
    return drawings, fastest is None or largest is None


def cut(drawings, pairs=False):
    """The first panels and, if there are more, a sentence about the rest."""
    if len(drawings) <= MOST_PANELS:
        return [figures(drawings, pairs)]
    rest = len(drawings) - MOST_PANELS
    return [figures(drawings[:MOST_PANELS], pairs), tag("p", f"{plural(rest, 'panel')} more not drawn; the table of cases has their figures.")]


def section(book):
    if not book.valid:
        return LeftOut("Throughput and memory", "there is no valid case")
    names = dict.fromkeys(book.naming(case) for case in book.cases)
    several = len({case["seq"] for case in book.cases}) > 1
    drawings, own_scales = draw_panels(book)
    words = "Medians; bars go from the first to the third quartile."
    if own_scales:
        words += " Every panel has a scale of its own."
    if any(not case.valid for case in book.cases):
        words += " ✕: a case without a valid result."
    if len(names) > 8:
        words += " Schedules are drawn family by family; grey lines are the others, for comparison." if several else ""
    content = [tag("p", words)]
    if several:
        content.append(lines.line_legend(names, book.styles))
    return Section("Throughput and memory", join([*content, *cut(drawings, pairs=True)]), "throughput")
