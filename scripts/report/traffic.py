"""Bytes inside and between groups, by kind: counted in the transport and planned from the schedule."""

import numpy

from . import bars
from .book import LeftOut, Section
from .group import at_longest, panels, tokens_text
from .html import figure as html_figure
from .html import join, tag
from .style import TRAFFIC_KINDS
from .text import byte_unit, bytes_text, listed, plural
from .throughput import cut

KIND_NAMES = [(kind, "embedding and head" if kind == "ends" else kind) for kind in TRAFFIC_KINDS]


def split(case, name):
    """([inside by kind], [between by kind]) bytes per step; None if the case has no such matrix."""
    matrix = case.get(f"bytes/{name}")
    if matrix.ndim != 3:
        return None
    groups = group_of_ranks(case["groups"])
    same = groups[:, None] == groups[None, :]
    return matrix[same].sum(axis=0), matrix[~same].sum(axis=0)


def group_of_ranks(text):
    """Number of the group of each rank: "1+2" is 0 1 1."""
    sizes = [int(size) for size in text.split("+")]
    return numpy.repeat(numpy.arange(len(sizes)), sizes)


def bar_of(case, book, which, divisor):
    schedule = book.naming(case)
    counted, planned = split(case, "counted"), split(case, "planned")
    if counted is None:
        return bars.Bar(schedule, note=f"{case['status']}: nothing counted")
    parts = [(class_, name, value / divisor) for (class_, name), value in zip(KIND_NAMES, counted[which]) if value]
    return bars.Bar(schedule, parts, planned[which].sum() / divisor if planned else None, note="" if parts else "0")


def agreement(book):
    """Whether the transport moved what the schedule says."""
    known = [case for case in book.cases if case.get("bytes/counted").size]
    differ = [case for case in known if not numpy.array_equal(case.get("bytes/counted"), case.get("bytes/planned"))]
    if not differ:
        return f"In all {plural(len(known), 'case')} with counts, every rank sent every other exactly the planned bytes of each kind."
    worst = max(differ, key=lambda case: abs(difference(case)))
    return (f"In {len(differ)} of {plural(len(known), 'case')} counted and planned bytes differ: {listed(case.label for case in differ)}; "
            f"most in case {worst.label}, by {bytes_text(abs(difference(worst)))} a step.")


def difference(case):
    return float(case.get("bytes/counted").astype(float).sum() - case.get("bytes/planned").astype(float).sum())


def section(book):
    moved = [case for case in book.cases if case.get("bytes/counted").size and case["bytes_inside"] + case["bytes_between"] > 0]
    if not moved:
        return LeftOut("Bytes moved", "no case moved any")
    drawings = []
    for title, cases in panels(book.cases):
        seq, longest = at_longest(cases)
        chosen = [case for case in longest if case["ranks"] > 1]
        largest = max((case[name] for case in chosen for name in ("bytes_inside", "bytes_between")), default=0)
        if not largest:
            continue
        divisor, unit = byte_unit(largest)
        for which, where in enumerate(("inside groups", "between groups")):
            if not any(case["bytes_between" if which else "bytes_inside"] for case in moved):
                continue
            name = f"Bytes {where}: " + "; ".join(part for part in (title, tokens_text(seq)) if part)
            some = [bar_of(case, book, which, divisor) for case in chosen]
            drawings.append(html_figure(name, bars.bar_chart(some, name, f"sent {where} [{unit}/step]", f"{unit}/step", largest / divisor)))
    words = "All ranks together, one step, at the longest sequence. Bars are counted in the transport; the line across each is the plan."
    sums = sum(case.get("bytes/counted").sum(axis=(0, 1)) for case in moved)
    used = [entry for entry, total in zip(KIND_NAMES, sums) if total]
    content = [tag("p", agreement(book)), tag("p", words), bars.bar_legend(used)]
    return Section("Bytes moved", join([*content, *cut(drawings, pairs=True)]), "bytes")
