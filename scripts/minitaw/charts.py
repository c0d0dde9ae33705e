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

from .drawing import GRID, LINE, POINTS, add_legend, handles_of, legend_size, new_figure, short
from .numbers import byte_unit, count_text, exists, plural, time_unit

MOST_PANELS = 12  # of a picture or page, which says how many there are
MOST_TICKS = 8
LEAST_STEP = 1.1  # between ticks: marks over each other say nothing
ASIDE, MOST_ASIDE = 2, 10  # points between lines, so that none hides another, and of all of them
BETWEEN_BARS = 0.3  # of a bar, between those of one name and the next
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
    "between.rate": "adapter of a node",
}
RATES = ["tokens_per_s", "tokens_per_s_rank"]  # as fast as a step is short


@dataclass
class Chart:
    draw: Callable  # of axes
    height: float  # inches, without its legend
    names: list  # in the legend
    title: str = ""


# Numbers.


def scale_of(units, largest):
    """Divisor and name of a unit so that numbers are handy: B, KiB/step, ms."""
    base, slash, rest = units.partition("/")
    choose = {"B": byte_unit, "s": time_unit}.get(base)
    if not choose:
        return 1, "" if units == "1" else units
    divisor, name = choose(largest)
    return divisor, name + slash + rest


def label_of(name, units):
    label = LABELS.get(name, name)
    return f"{label} [{units}]" if units else label


def scaled(points, units):
    """The points in a handy unit, and its name."""
    divisor, name = scale_of(units, points["high"].max())
    numbers = ["value", "low", "high"]
    return points.assign(**points[numbers] / divisor), name


def ends_of(case, column):
    """The least and the most of the repetitions; of only one, what follows from the quartiles of its
    steps."""
    values = [run.get(column) for run in case["runs"] if run["valid"]]
    values = list(filter(exists, values))
    if len(values) > 1:
        return min(values), max(values)
    value, median = case[column], case["median_s"]
    quartiles = [case.get(name, math.nan) for name in ("q1_s", "q3_s")]
    if column == "median_s" and all(map(exists, quartiles)):
        return tuple(quartiles)
    if column in RATES and all(quartile > 0 for quartile in quartiles):
        return value * median / quartiles[1], value * median / quartiles[0]
    return value, value


def points_of(cases, column, across="seq"):
    """A row for each case: line, x, value, ends of its whisker, and whether it is predicted."""
    rows = [
        (
            case["line"],
            case[across],
            case[column],
            *ends_of(case, column),
            not case["file"].sessions,
        )
        for _, case in cases.iterrows()
    ]
    return pandas.DataFrame(rows, columns=["line", "x", "value", "low", "high", "predicted"])


# Lines and bars.


def whiskers(points):
    """As matplotlib wants them; None if they have no length."""
    lengths = numpy.array([points["value"] - points["low"], points["high"] - points["value"]])
    return lengths.clip(0) if lengths.any() else None


def draw_lines(axes, points, styles, label):
    """Over a number of which some differ much: a logarithmic axis."""
    lines = points.groupby(["line", "predicted"], sort=False)
    for number, ((name, predicted), some) in enumerate(lines):
        some = some.sort_values("x")
        drawn = axes.errorbar(
            some["x"],
            some["value"],
            yerr=whiskers(some),
            capsize=3,
            elinewidth=0.9,
            label=name,
            fillstyle="none" if predicted else "full",
            **styles[name],
        )
        aside = min(ASIDE, MOST_ASIDE / lines.ngroups) * (number - (lines.ngroups - 1) / 2) / POINTS
        moved = axes.transData + ScaledTranslation(aside, 0, axes.figure.dpi_scale_trans)
        for part in drawn.get_children():
            part.set_transform(moved)
    axes.set_ylim(min(0, axes.get_ylim()[0]), 1.06 * max(axes.get_ylim()[1], 1e-12))
    axes.set_title(label, loc="left", fontsize=9)
    axes.grid(True, linewidth=0.6, **GRID)
    mark_numbers(axes, sorted(points["x"].unique().tolist()))


def mark_numbers(axes, numbers):
    """Ticks of the lower axis, of which some may be left out."""
    if numbers[0] > 0 and numbers[-1] / numbers[0] > 2:
        axes.set_xscale("log", base=2)
        before = [0, *numbers]
        numbers = [number for low, number in zip(before, numbers) if number > LEAST_STEP * low]
    marks = numbers[:: math.ceil(len(numbers) / MOST_TICKS)]
    axes.set_xticks(marks, [count_text(int(x)) if x == int(x) else f"{x:g}" for x in marks])
    axes.minorticks_off()
    axes.margins(x=0.08)


def draw_bars(axes, points, styles, label):
    """A bar for each point, those of one x beside each other."""
    places, ticks = [], []
    for number, (_, some) in enumerate(points.groupby("x", sort=False)):
        rows = len(places) + BETWEEN_BARS * number + numpy.arange(len(some))
        places.extend(rows)
        ticks.append(rows.mean())
    points = pandas.concat([some for _, some in points.groupby("x", sort=False)])
    points = points.assign(place=places)
    for (name, predicted), some in points.groupby(["line", "predicted"], sort=False):
        colour = styles[name]["color"]
        axes.barh(
            some["place"],
            some["value"],
            xerr=whiskers(some),
            height=0.8,
            capsize=3,
            color="none" if predicted else colour,
            edgecolor=colour,
            label=name,
        )
    name_bars(axes, ticks, points["x"].unique(), places[-1], label)


def name_bars(axes, ticks, names, last, label):
    axes.set_yticks(ticks, [short(str(name)) for name in names], fontsize=9)
    axes.set_ylim(last + 0.6, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    axes.grid(True, axis="x", linewidth=0.6, **GRID)


def bars_height(names, bars):
    """Inches of so many bars, of which each name has some."""
    lines = sum(short(str(name)).count("\n") for name in names)
    return 0.9 + 0.3 * bars + 0.12 * lines


def chart(points, styles, label, across=""):
    """Lines over numbers, a label across; bars where there are names, or one number only."""
    lines = points["line"].unique().tolist()
    if is_numeric_dtype(points["x"]) and points["x"].nunique() > 1:

        def draw(axes):
            draw_lines(axes, points, styles, label)
            axes.set_xlabel(across)

        return Chart(draw, 2.5, lines)

    if is_numeric_dtype(points["x"]):
        points = points.assign(x=points["line"])
    legend = [] if (points["x"] == points["line"]).all() else lines
    height = bars_height(points["x"].unique(), len(points))
    return Chart(lambda axes: draw_bars(axes, points, styles, label), height, legend)


def stack(parts, looks, label):
    """A stacked bar for each row of a table, whose columns are parts. looks: {column: (name, colour,
    hatch)}."""
    parts = parts.fillna(0).loc[:, lambda table: (table != 0).any()]
    rows = numpy.arange(len(parts))

    def draw(axes):
        left = numpy.zeros(len(parts))
        for column in parts:
            name, colour, hatch = looks[column]
            axes.barh(
                rows,
                parts[column],
                left=left,
                height=0.7,
                color=colour,
                hatch=hatch,
                edgecolor="#ffffff",
                linewidth=0.4,
                label=name,
            )
            left = left + parts[column].to_numpy()
        name_bars(axes, rows, parts.index, len(parts) - 1, label)

    names = [looks[column][0] for column in parts]
    return Chart(draw, bars_height(parts.index, len(parts)), names)


# Figures.


def draw_chart(part, chart, width):
    """Into a figure or a part of one; the legend is below it."""
    axes = part.subplots()
    chart.draw(axes)
    axes.set_title(chart.title)
    letters = int((width - AXIS) / LETTER)
    axes.set_xlabel(textwrap.fill(axes.get_xlabel(), letters))
    axes.set_title(textwrap.fill(axes.get_title("left"), letters), loc="left", fontsize=9)
    handles = handles_of(axes)
    add_legend(part, {name: handles[name] for name in chart.names}, width)


def height_of(chart, width):
    legend = legend_size(chart.names, width)[1] if chart.names else 0
    return chart.height + legend


def chart_figure(rows, width, title="", note=""):
    """A figure of rows of charts, of which some may be None, each so many inches wide."""
    count = max(map(len, rows))
    heights = [max(height_of(chart, width) for chart in row if chart) for row in rows]
    texts = [textwrap.fill(text, int(count * width / LETTER)) for text in (title, note)]
    lines = sum(1.5 + text.count("\n") for text in texts if text)
    drawn = new_figure(width * count, sum(heights) + LINE * lines)
    parts = drawn.subfigures(len(rows), count, squeeze=False, height_ratios=heights)
    for part, chart in zip(parts.flat, (chart for row in rows for chart in row)):
        if chart:
            draw_chart(part, chart, width)
    if title:
        drawn.suptitle(texts[0], fontsize=9)
    if note:
        drawn.supxlabel(texts[1], x=0.01, ha="left", fontsize=8)
    return drawn


def not_drawn(rest):
    """A paragraph on panels that are too many for a page."""
    if rest <= 0:
        return []
    return [f"{plural(rest, 'panel')} more not drawn; the tables have their numbers."]
