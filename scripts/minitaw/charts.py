# SPDX-License-Identifier: BSD-3-Clause
"""Charts of the page and figures for a paper: lines over a number, or bars of names
(docs/show.md)."""

import math
import textwrap

import numpy
import pandas
from matplotlib.transforms import ScaledTranslation
from pandas.api.types import is_numeric_dtype

from .drawing import GRID, LINE, POINTS, WIDTH, add_legend, new_figure, short
from .numbers import byte_unit, count_text, exists, time_unit
from .record import rows_of

MOST_TICKS = 8
LEAST_STEP = 1.1  # between ticks: marks over each other say nothing
ASIDE, MOST_ASIDE = 2, 10  # points between lines, so that none hides another, and of all of them
LETTER = 0.068  # inches, of a title or note
AXIS = 1.2  # inches, beside an axis, for its names
# Of columns that pages and figures show; the others go by their name.
LABELS = {
    "tokens_per_s": "throughput",
    "tokens_per_s_rank": "throughput of a rank",
    "median_s": "step",
    "memory_measured": "memory of the worst rank",
    "bytes_between": "sent between groups in a step",
    "seq": "sequence length",
    "group_count": "groups",
    "between.rate": "adapter of a node",
}


# Numbers.


def label_of(name, units):
    label = LABELS.get(name, name)
    return label if units in ("", "1", "text") else f"{label} [{units}]"


def handy(units, largest):
    """Divisor and name of a unit that makes numbers handy: B, KiB/step, ms."""
    base, slash, rest = units.partition("/")
    choose = {"B": byte_unit, "s": time_unit}.get(base, lambda _: (1, base))
    divisor, name = choose(largest)
    return divisor, name + slash + rest


def ends_of(case, column):
    """The least and the most of the repetitions; of only one, what follows from the quartiles of
    its steps."""
    values = [run.get(column) for run in case.runs if run.valid]
    if len(values) > 1 and all(map(exists, values)):
        return min(values), max(values)
    low, median, high = (case.get(name, math.nan) for name in ("q1_s", "median_s", "q3_s"))
    if not min(low, median, high) > 0:
        return math.nan, math.nan
    rates = case[column] * median / high, case[column] * median / low
    known = {"median_s": (low, high), "tokens_per_s": rates, "tokens_per_s_rank": rates}
    return known.get(column, (math.nan, math.nan))


def points_of(cases, column, across="seq"):
    """A row for each case: line, x, whether it is predicted, value, ends of its whisker."""
    rows = [
        (case.line, case[across], not case.file.sessions, case[column], *ends_of(case, column))
        for case in rows_of(cases)
    ]
    return pandas.DataFrame(rows, columns=["line", "x", "predicted", "value", "low", "high"])


def whiskers(points):
    """As matplotlib wants them; None if there are none."""
    lengths = numpy.array([points.value - points.low, points.high - points.value])
    return None if numpy.isnan(lengths).all() else lengths.clip(0)


# Figures.


def filled(text, width):
    """Broken into lines that fit beside an axis."""
    return textwrap.fill(text, int((width - AXIS) / LETTER))


def add_note(drawn, text):
    """Below the axis of a figure, which grows."""
    (axes,), text = drawn.axes, filled(text, drawn.get_figwidth())
    axes.set_xlabel(f"{axes.get_xlabel()}\n{text}")
    drawn.set_figheight(drawn.get_figheight() + LINE * (1 + text.count("\n")))


def lines(points, styles, label, across, width=WIDTH):
    drawn = new_figure(width, max(2.5, 0.6 * width))
    axes, parts = drawn.subplots(), points.groupby(["line", "predicted"], sort=False)
    step = min(ASIDE, MOST_ASIDE / parts.ngroups)
    for number, ((name, predicted), some) in enumerate(parts):
        some = some.sort_values("x")
        line = axes.errorbar(
            some.x,
            some.value,
            yerr=whiskers(some),
            capsize=3,
            elinewidth=0.9,
            label=name,
            fillstyle="none" if predicted else "full",
            **styles[name],
        )
        aside = step * (number - (parts.ngroups - 1) / 2) / POINTS
        moved = axes.transData + ScaledTranslation(aside, 0, drawn.dpi_scale_trans)
        for part in line.get_children():
            part.set_transform(moved)
    low, high = axes.get_ylim()
    axes.set_ylim(min(0, low), 1.06 * max(high, 1e-12))
    axes.grid(True, linewidth=0.6, **GRID)
    mark_numbers(axes, sorted(points.x.unique().tolist()))
    axes.set_title(filled(label, width), loc="left", fontsize=9)
    axes.set_xlabel(filled(across, width))
    add_legend(drawn, axes)
    return drawn


def mark_numbers(axes, numbers):
    """Ticks of the lower axis, of which some may be left out; it is logarithmic if they differ
    much."""
    if numbers[0] > 0 and numbers[-1] / numbers[0] > 2:
        axes.set_xscale("log", base=2)
        before = [0, *numbers]
        numbers = [number for low, number in zip(before, numbers) if number > LEAST_STEP * low]
    marks = numbers[:: math.ceil(len(numbers) / MOST_TICKS)]
    axes.set_xticks(marks, [count_text(int(x)) if x == int(x) else f"{x:g}" for x in marks])
    axes.minorticks_off()
    axes.margins(x=0.08)


def bars(names, parts, label, width=WIDTH, errors=None):
    """A bar for each name, of parts that follow each other: [(title, lengths, look)]."""
    names, rows, left = [short(name) for name in names], range(len(names)), 0
    drawn = new_figure(width, 0.9 + sum(0.3 + 0.12 * name.count("\n") for name in names))
    axes = drawn.subplots()
    for title, lengths, look in parts:
        axes.barh(rows, lengths, 0.7, left, label=title, xerr=errors, capsize=3, **look)
        left = left + lengths
    axes.set_yticks(rows, names, fontsize=9)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(filled(label, width))
    axes.grid(True, axis="x", linewidth=0.6, **GRID)
    add_legend(drawn, axes)
    return drawn


def chart(points, styles, name, units, across, more="", width=WIDTH):
    """Lines over numbers; bars where x is a name, or the same for all."""
    divisor, unit = handy(units, points.value.max())
    points = points.assign(**points[["value", "low", "high"]] / divisor)
    label = label_of(name, unit) + more
    if is_numeric_dtype(points.x) and points.x.nunique() > 1:
        return lines(points, styles, label, across, width)
    points = pandas.concat(some for _, some in points.groupby("line", sort=False))
    names = points.line + (", " + points.x.astype(str) if points.x.nunique() > 1 else "")
    edges = [styles[line]["color"] for line in points.line]
    fills = ["none" if hollow else edge for hollow, edge in zip(points.predicted, edges)]
    look = {"color": fills, "edgecolor": edges}
    return bars(names, [("", points.value.to_numpy(), look)], label, width, whiskers(points))


def stack(names, parts, looks, label, units):
    """A stacked bar for each row of a table, whose columns are parts. looks: {column: (name,
    colour, hatch)}; the label has the unit at {}."""
    divisor, unit = handy(units, parts.sum(axis=1).max())
    found = []
    for column in parts.columns[parts.any()]:
        title, colour, hatch = looks[column]
        look = {"color": colour, "hatch": hatch, "edgecolor": "#ffffff", "linewidth": 0.4}
        found.append((title, parts[column].to_numpy() / divisor, look))
    return bars(names, found, label.format(unit))
