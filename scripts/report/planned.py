"""Planned against measured: memory by kind and rank, and the idle share of the schedule against that of the run."""

import numpy

from . import bars, svg
from .book import LeftOut, Section
from .group import at_longest, panels, tokens_text
from .html import figure as html_figure
from .html import fold, join, number, table, tag
from .style import MEMORY_KINDS
from .text import byte_unit, bytes_text, exists, figure, listed, percent, plural
from .throughput import cut

MOST_TABLES, MOST_RANKS = 24, 64
ROW = 34


def memory(case, name):
    """Bytes [rank, kind]; None if the case has none."""
    values = case.get(f"memory/{name}")
    return values.astype(float) if values.ndim == 2 and values.size else None


def kinds_of(case):
    return MEMORY_KINDS


def memory_sentence(cases):
    known = [case for case in cases if memory(case, "measured") is not None and memory(case, "planned") is not None]
    differ = [case for case in known if not numpy.array_equal(case.get("memory/planned"), case.get("memory/measured"))]
    if not known:
        return "No case says how much memory it planned and got."
    if not differ:
        return f"In all {plural(len(known), 'case')} that ran, every rank was handed out exactly the planned bytes of every kind."
    worst = max(differ, key=lambda case: float(abs(memory(case, "measured") - memory(case, "planned")).max()))
    largest = float(abs(memory(worst, "measured") - memory(worst, "planned")).max())
    return (f"In {len(differ)} of {plural(len(known), 'case')} planned and measured memory differ: {listed(case.label for case in differ)}; "
            f"most in case {worst.label}, by {bytes_text(largest)} of one kind on one rank.")


def worst_rank(case):
    """Planned and measured bytes by kind of the rank that got most."""
    measured = memory(case, "measured")
    rank = int(measured.sum(axis=1).argmax())
    return memory(case, "planned")[rank], measured[rank]


def memory_bar(case, book, divisor):
    name = book.naming(case)
    if memory(case, "measured") is None:
        return bars.Bar(name, note=f"{case['status']}: nothing measured")
    planned, measured = worst_rank(case)
    return bars.Bar(name, [(f"m{k}", kind, v / divisor) for k, (kind, v) in enumerate(zip(MEMORY_KINDS, measured)) if v], planned.sum() / divisor)


def memory_charts(book):
    for title, cases in panels(book.cases):
        seq, longest = at_longest(cases)
        known = [case for case in longest if memory(case, "measured") is not None]
        if not known:
            continue
        largest = max(worst_rank(case)[i].sum() for case in known for i in (0, 1))
        divisor, unit = byte_unit(largest)
        name = "Memory by kind: " + "; ".join(part for part in (title, tokens_text(seq)) if part)
        some = [memory_bar(case, book, divisor) for case in longest]
        yield html_figure(name, bars.bar_chart(some, name, f"worst rank [{unit}]", unit, largest / divisor))


def memory_table(case, book):
    """Every rank and kind: planned, and the difference where there is one."""
    planned, measured = memory(case, "planned"), memory(case, "measured")
    rows = []
    for rank in range(min(len(planned), MOST_RANKS)):
        cells = [tag("th", f"{rank}", scope="row")]
        for p, m in zip([*planned[rank], planned[rank].sum()], [*measured[rank], measured[rank].sum()]):
            cells.append(number(bytes_text(p) + (f" ({'+' if m > p else '−'}{bytes_text(abs(m - p))})" if m != p else ""), int(p)))
        rows.append(cells)
    rest = f"; the first {MOST_RANKS} of {len(planned)} ranks" if len(planned) > MOST_RANKS else ""
    title = f"case {case.label}: {book.naming(case)}, {plural(case['ranks'], 'rank')}, {tokens_text(case['seq'])}{rest}"
    return table(["rank", *MEMORY_KINDS, "together"], rows, title)


def planned_idle(case):
    """Share of the ticks in which ranks compute nothing: the idle time of the order alone; None if unknown."""
    idle = case.get("idle_ticks")
    return float(idle.mean() / case["ticks"]) if idle.size and case["ticks"] > 0 else None


def idle_chart(cases, book, title):
    """Two marks on a line for each case: what the order plans, and what was measured."""
    frame = svg.Frame(height=ROW * len(cases) + 52, left=8, right=20, top=4)
    values = [(case, planned_idle(case), case["bubble"] if exists(case["bubble"]) else case["idle_share"]) for case in cases]
    values = [(case, p, m) for case, p, m in values if p is not None and exists(m)]
    steps = svg.round_steps(100 * max(max(p, m) for _, p, m in values), 5)
    frame.scale_x(0, steps[-1], inset=5)
    parts, said = [frame.x_axis(steps, "idle, mean over ranks [% of the step]")], []
    for row, (case, p, m) in enumerate(values):
        top = frame.top + ROW * row
        y, a, b = top + 22, frame.x(100 * p), frame.x(100 * m)
        tip = f"{book.naming(case)}: planned {percent(p)}, measured {percent(m)}"
        parts.append(svg.row_head(frame, top, book.naming(case), f"{100 * p:.1f} → {100 * m:.1f} %", "tick"))
        parts.append(svg.line(a, y, b, y, "dumbbell"))
        parts += [svg.marker("ring", a, y, "plan", tip), svg.marker("circle", b, y, "c1", tip)]
        said.append(tip)
    return svg.drawing(frame.width, frame.height, f"{title}. " + "; ".join(said), *parts)


def idle_charts(book):
    for title, cases in panels(book.valid):
        seq, longest = at_longest(cases)
        some = [case for case in longest if planned_idle(case) is not None and exists(case["idle_share"])]
        if some:
            name = "Idle, planned and measured: " + "; ".join(part for part in (title, tokens_text(seq)) if part)
            yield html_figure(name, idle_chart(some, book, name))


def section(book):
    known = [case for case in book.cases if memory(case, "measured") is not None and memory(case, "planned") is not None]
    if not known:
        return LeftOut("Planned against measured", "no case ran far enough")
    content = [tag("h3", "Memory"), tag("p", memory_sentence(book.cases), " Bars: handed out on the worst rank at the longest sequence; "
                                        "the line across each is the plan.")]
    content += [bars.bar_legend([(f"m{k}", kind) for k, kind in enumerate(MEMORY_KINDS)]), *cut(list(memory_charts(book)))]
    tables = [memory_table(case, book) for case in known[:MOST_TABLES]]
    rest = f" (the first {MOST_TABLES} of {len(known)} cases)" if len(known) > MOST_TABLES else ""
    content.append(fold(f"Planned memory of every rank by kind, differences in brackets{rest}", tag("div", *tables, class_="tables")))
    idle = list(idle_charts(book))
    if idle:
        entries = [(svg.swatch(svg.marker("ring", 7, 7, "plan"), 14), "planned: ticks of the order without computation, transfers free"),
                   (svg.swatch(svg.marker("circle", 7, 7, "c1"), 14), "measured: idle share of the step")]
        content += [tag("h3", "Idle time"), svg.legend(entries), *cut(idle)]
    return Section("Planned against measured", join(content), "planned")
