# SPDX-License-Identifier: BSD-3-Clause
"""Charts of cases that are alike but for schedule and sequence length: bytes between groups,
throughput, memory, and where the time of a step went."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy
from .drawing import (
    COLOURS,
    GRID,
    draw_lines,
    legend_of_panel,
    new_figure,
    short,
)
from .numbers import byte_unit, count_text, exists, plural, time_unit
from .settings import grouped

MOST_PANELS = 12  # of a picture or page, which says how many there are
# Of bytes: name, colour and hatch.
TRAFFIC_KINDS = [
    ("weights", "#d55e00", ""),
    ("gradients", "#e69f00", "////"),
    ("activations", "#cc79a7", "\\\\\\\\"),
    ("embedding and head", "#56b4e9", "xxxx"),
    ("keys and values", "#009e73", "...."),
]
# Of a step: column of the summary; name, colour and hatch.
STEP_PARTS = {
    "compute_s": ("computing", "#4d4d4d", ""),
    "exposed_weights_s": ("waiting for weights", "#d55e00", ""),
    "exposed_gradients_s": ("waiting for gradients", "#e69f00", "////"),
    "exposed_activations_s": ("waiting for activations", "#cc79a7", "\\\\\\\\"),
    "exposed_embeddings_s": ("waiting for embedding and head", "#56b4e9", "xxxx"),
    "exposed_context_s": ("waiting for keys and values", "#009e73", "...."),
    "idle_s": ("idle", "#c8c8c8", ""),
}
PLAIN = [("", COLOURS[0], "")]  # the one part of bars that have no parts


@dataclass
class Chart:
    height: float  # inches
    draw: Callable  # of axes


def no_unit(_):
    return 1, ""


def bars_chart(cases, naming, parts, values, label, unit_of, errors=None):
    """A stacked bar for each case: values[bar][part], in the order of parts: [(name, colour,
    hatch)]. `errors`: low and high ones of the bars. The label has the unit at {}."""
    names = [short(naming(case)) for case in cases]
    values = numpy.nan_to_num(numpy.array(values, float))
    divisor, unit = unit_of(values.sum(axis=1).max())

    def draw(axes):
        left = numpy.zeros(len(names))
        for (name, colour, hatch), widths in zip(parts, values.T / divisor):
            if widths.any():
                axes.barh(
                    range(len(names)),
                    widths,
                    left=left,
                    height=0.7,
                    color=colour,
                    hatch=hatch,
                    edgecolor="#ffffff",
                    linewidth=0.4,
                    label=name,
                    xerr=errors,
                    capsize=3,
                )
                left = left + widths
        axes.set_yticks(range(len(names)), names, fontsize=9)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.set_xlabel(label.format(unit))
        axes.grid(True, axis="x", linewidth=0.6, **GRID)

    lines = sum(1 + 0.4 * name.count("\n") for name in names)
    return Chart(0.9 + 0.3 * lines, draw)


def against_length(cases, styles, naming, column, label, unit_of, whiskers=None):
    """Lines over the sequence length, or bars where there is one length only."""
    if len({case["seq"] for case in cases}) == 1:
        values = [[case[column]] for case in cases]
        ends = whiskers and [whiskers(case) for case in cases]
        errors = numpy.abs(numpy.array(ends) - values).T if ends else None
        return bars_chart(cases, naming, PLAIN, values, label, unit_of, errors)
    divisor, unit = unit_of(max(case[column] for case in cases))

    def draw(axes):
        draw_lines(
            axes,
            grouped(cases, naming),
            styles,
            lambda case: case["seq"],
            lambda case: case[column] / divisor,
            label.format(unit),
            whiskers,
        )
        axes.set_xlabel("sequence length [token]")

    return Chart(2.5, draw)


def rate_whiskers(case):
    """Tokens/s of the third and of the first quartile of the step times."""
    quartiles = [case["q3_s"], case["q1_s"]]
    return [case.tokens / step if step > 0 else case["tokens_per_s"] for step in quartiles]


def traffic_chart(cases, naming, at):
    if not any(case["bytes_between"] > 0 for case in cases):
        return None
    bytes_between = [case.traffic()[0] for case in cases]
    label = f"sent between groups {at} [{{}}/step]"
    return bars_chart(cases, naming, TRAFFIC_KINDS, bytes_between, label, byte_unit)


def time_chart(cases, naming, at):
    timed = [case for case in cases if exists(case["compute_s"])]
    if not timed:
        return None
    seconds = [[case[name] for name in STEP_PARTS] for case in timed]
    label = f"step {at}, mean over ranks [{{}}]"
    return bars_chart(timed, naming, STEP_PARTS.values(), seconds, label, time_unit)


def charts_of(cases, styles, naming):
    """Bytes between groups, throughput, memory and where the time of a step went, all of valid
    cases; None for what they have no figures of. Bytes and time are those of the longest
    sequence."""
    longest = max(case["seq"] for case in cases)
    last = [case for case in cases if case["seq"] == longest]
    at = f"at {count_text(longest)} tokens"
    rate = "throughput [token/s], whiskers: quartiles"
    memory = "memory of the worst rank [{}]"
    return [
        traffic_chart(last, naming, at),
        against_length(cases, styles, naming, "tokens_per_s", rate, no_unit, rate_whiskers),
        against_length(cases, styles, naming, "memory_measured", memory, byte_unit),
        time_chart(last, naming, at),
    ]


def chart_figure(columns, width):
    """A figure of columns of charts, [(title, charts)], each with a legend if it needs one."""
    rows = list(zip(*(charts for _, charts in columns)))
    heights = [max(chart.height if chart else 0.1 for chart in row) for row in rows]
    drawn = new_figure(width * len(columns), sum(heights))
    shares = {"height_ratios": heights}
    panels = drawn.subplots(len(rows), len(columns), squeeze=False, gridspec_kw=shares)
    for axes, chart in zip(panels.flat, (chart for row in rows for chart in row)):
        if chart:
            chart.draw(axes)
        else:
            axes.axis("off")
    for axes, (title, _) in zip(panels[0], columns):
        axes.set_title(title)
    for i, row in enumerate(panels):
        heights[i] += max(legend_of_panel(drawn, axes, width) for axes in row)
    panels[0, 0].get_gridspec().set_height_ratios(heights)
    drawn.set_figheight(sum(heights))
    return drawn


def not_drawn(rest):
    """A paragraph on panels that are too many for a page."""
    if rest <= 0:
        return []
    return [f"{plural(rest, 'panel')} more not drawn; the tables have their numbers."]
