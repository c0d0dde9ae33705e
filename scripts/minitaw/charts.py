# SPDX-License-Identifier: BSD-3-Clause
"""Charts of the page, of pictures and of figures for a paper: lines over a number, or bars of names
(docs/report.md)."""

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import numpy
import pandas
from matplotlib.transforms import ScaledTranslation
from pandas.api.types import is_numeric_dtype

from .drawing import GRID, LINE, POINTS, add_legend, legend_size, new_figure, short
from .numbers import byte_unit, count_text, exists, plural, time_unit
from .record import rows_of

MOST_PANELS = 12  # of a picture or page, which says how many there are
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


@dataclass
class Chart:
    draw: Callable  # of axes
    height: float  # inches, without its legend
    names: list  # in the legend
    title: str = ""


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


# Lines and bars.


def draw_lines(axes, points, styles):
    lines = points.groupby(["line", "predicted"], sort=False)
    step = min(ASIDE, MOST_ASIDE / lines.ngroups)
    for number, ((name, predicted), some) in enumerate(lines):
        some = some.sort_values("x")
        drawn = axes.errorbar(
            some.x,
            some.value,
            yerr=whiskers(some),
            capsize=3,
            elinewidth=0.9,
            label=name,
            fillstyle="none" if predicted else "full",
            **styles[name],
        )
        aside = step * (number - (lines.ngroups - 1) / 2) / POINTS
        moved = axes.transData + ScaledTranslation(aside, 0, axes.figure.dpi_scale_trans)
        for part in drawn.get_children():
            part.set_transform(moved)
    low, high = axes.get_ylim()
    axes.set_ylim(min(0, low), 1.06 * max(high, 1e-12))
    axes.grid(True, linewidth=0.6, **GRID)
    mark_numbers(axes, sorted(points.x.unique().tolist()))


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


def bars(names, parts, label, errors=None):
    """A bar for each name, of parts that follow each other: [(title, lengths, look)]."""
    names, rows = [short(name) for name in names], range(len(names))

    def draw(axes):
        left = 0
        for title, lengths, look in parts:
            axes.barh(rows, lengths, 0.7, left, label=title, xerr=errors, capsize=3, **look)
            left = left + lengths
        axes.set_yticks(rows, names, fontsize=9)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.set_xlabel(label)
        axes.grid(True, axis="x", linewidth=0.6, **GRID)

    height = sum(0.3 + 0.12 * name.count("\n") for name in names)
    return Chart(draw, 0.9 + height, [title for title, _, _ in parts if title])


def chart(points, styles, name, units, across, more=""):
    """Lines over numbers; bars where x is a name, or the same for all."""
    divisor, unit = handy(units, points.value.max())
    points = points.assign(**points[["value", "low", "high"]] / divisor)
    label = label_of(name, unit) + more
    if is_numeric_dtype(points.x) and points.x.nunique() > 1:

        def draw(axes):
            draw_lines(axes, points, styles)
            axes.set_title(label, loc="left", fontsize=9)
            axes.set_xlabel(across)

        return Chart(draw, 2.5, list(points.line.unique()))

    points = pandas.concat(some for _, some in points.groupby("line", sort=False))
    names = points.line + (", " + points.x.astype(str) if points.x.nunique() > 1 else "")
    edges = [styles[line]["color"] for line in points.line]
    fills = ["none" if hollow else edge for hollow, edge in zip(points.predicted, edges)]
    look = {"color": fills, "edgecolor": edges}
    return bars(names, [("", points.value.to_numpy(), look)], label, whiskers(points))


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


# Figures.


def draw_chart(part, chart, width):
    """Into a figure or a part of one, with the legend below."""
    axes = part.subplots()
    chart.draw(axes)
    letters = int((width - AXIS) / LETTER)
    axes.set_xlabel(textwrap.fill(axes.get_xlabel(), letters))
    axes.set_title(textwrap.fill(axes.get_title("left"), letters), loc="left", fontsize=9)
    axes.set_title(chart.title)
    if chart.names:
        add_legend(part, axes, width)


def chart_figure(rows, width, title="", note=""):
    """A figure of rows of charts, of which some may be None, each so many inches wide."""
    columns, heights = max(map(len, rows)), []
    for row in rows:
        sizes = [chart.height + legend_size(chart.names, width)[1] for chart in row if chart]
        heights.append(max(sizes))
    title, note = (textwrap.fill(text, int(columns * width / LETTER)) for text in (title, note))
    lines = sum(1.5 + text.count("\n") for text in (title, note) if text)
    drawn = new_figure(width * columns, sum(heights) + LINE * lines)
    parts = drawn.subfigures(len(rows), columns, squeeze=False, height_ratios=heights)
    for some, row in zip(parts, rows):
        for part, chart in zip(some, row):
            if chart:
                draw_chart(part, chart, width)
    drawn.suptitle(title, fontsize=9)
    drawn.supxlabel(note, x=0.01, ha="left", fontsize=8)
    return drawn


def not_drawn(rest):
    """A paragraph on panels that are too many for a page."""
    return [f"{plural(rest, 'panel')} more not drawn; the tables have their numbers."] * (rest > 0)
