# SPDX-License-Identifier: BSD-3-Clause
"""What all drawings share: figures of matplotlib that are the same bytes for the same file, colours
and legends, lines over a setting."""

import base64
import io
import math
import pathlib
import textwrap

import matplotlib
import numpy
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from .command import write_file
from .numbers import NO_FIGURE, count_text
from .record import FORBIDDEN

matplotlib.rcParams.update(
    {
        "svg.hashsalt": "minitaw",
        "svg.fonttype": "none",
        "date.converter": "concise",
        "text.parse_math": False,
        "font.size": 9,
        "hatch.linewidth": 0.5,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)

WIDTH = 4.8  # inches; a page shows them on the width of a phone
POINTS = 72  # of an inch
LEGEND_LINE, LABEL_INCHES = 0.2, 0.42  # a line of a legend; ticks and label of an axis above it
GRID = {"color": "#808080", "alpha": 0.25}
# Okabe and Ito: told apart with every common colour blindness. Markers, dashes and hatches do the
# same in grey print.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", "--", ":", "-."]
LONGEST_NAME, LONGEST_LABEL = 26, 34  # letters of a line
MOST_TICKS = 8
LEAST_STEP = 1.1  # between ticks: marks over each other say nothing
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def styles_of(names):
    """One look for each name, in the order of their first appearance."""
    styles = {}
    for i, name in enumerate(dict.fromkeys(names)):
        turn = i // len(COLOURS)
        styles[name] = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[(i + 3 * turn) % len(MARKERS)],
            "linestyle": DASHES[(i + turn) % len(DASHES)],
            "markersize": 5,
            "linewidth": 1.4,
        }
    return styles


def new_figure(width=WIDTH, height=2.6, margin=0.1):
    """Inches. The margin is for letters of a browser that are wider than ours."""
    drawn = Figure(figsize=(width, height), layout="constrained")
    drawn.get_layout_engine().set(w_pad=margin)
    return drawn


def short(name, width=LONGEST_NAME):
    """On two lines at most, which end after a colon."""
    name = FORBIDDEN.sub("\ufffd", name)
    if len(name) > 2 * width:
        name = f"{name[:width]}…{name[1 - width:]}"
    lines = textwrap.wrap(name.replace(":", ":\u200b "), width)
    return "\n".join(lines).replace("\u200b ", "").replace("\u200b", "") or NO_FIGURE


def legend_columns(width, labels, most):
    """As many as fit into a width in inches: a handle and letters of 5.5 points."""
    longest = max(len(line) for label in labels for line in label.split("\n"))
    fitting = int(width * POINTS / (45 + 5.5 * longest))
    return max(1, min(most, fitting))


def legend_of_panel(drawn, axes, width):
    """Below the axis of one panel of a figure; returns the inches that it takes."""
    handles, names = axes.get_legend_handles_labels()
    if not handles:
        return 0.0
    labels = [short(name, LONGEST_LABEL) for name in names]
    columns = legend_columns(width, labels, len(labels))
    below_label = ScaledTranslation(0, -LABEL_INCHES, drawn.dpi_scale_trans)
    axes.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=axes.transAxes + below_label,
        borderaxespad=0,
        ncols=columns,
        fontsize=9,
    )
    return LEGEND_LINE * (1 + math.ceil(len(labels) / columns))


def legend_below(drawn, *axes, columns=2, order=()):
    """The figure grows by the height of the legend."""
    handles = {}
    for one in axes:
        handles |= {label: handle for handle, label in zip(*one.get_legend_handles_labels())}
    if not handles:
        return
    names = [label for label in dict.fromkeys([*order, *handles]) if label in handles]
    labels = [short(label, LONGEST_LABEL) for label in names]
    columns = legend_columns(drawn.get_figwidth(), labels, columns)
    drawn.legend(
        [handles[label] for label in names],
        labels,
        loc="outside lower left",
        ncols=columns,
        fontsize=9,
    )
    lines = 1 + math.ceil(len(labels) / columns)
    drawn.set_figheight(drawn.get_figheight() + LEGEND_LINE * lines)


def draw_lines(axes, lines, styles, x, value, label, whiskers=None):
    """lines: {name: cases}; x(case): tokens or ranks, whose axis is logarithmic; value(case);
    whiskers(case): low and high end."""
    for name, cases in lines.items():
        cases = sorted(cases, key=x)
        values = numpy.array([value(case) for case in cases])
        errors = None
        if whiskers:
            ends = numpy.array([whiskers(case) for case in cases]).T
            errors = numpy.abs(ends - values)
        axes.errorbar(
            [x(case) for case in cases],
            values,
            yerr=errors,
            capsize=3,
            elinewidth=0.9,
            label=name,
            **styles[name],
        )
    axes.set_ylim(0, 1.06 * max(axes.get_ylim()[1], 1e-12))
    axes.set_title(label, loc="left", fontsize=9)
    axes.grid(True, linewidth=0.6, **GRID)
    mark_counts(axes, sorted({x(case) for cases in lines.values() for case in cases}))


def mark_counts(axes, counts):
    """Ticks of the lower axis at these tokens or ranks, of which some may be left out."""
    if counts[-1] / counts[0] > 2:
        axes.set_xscale("log", base=2)
        before = [0, *counts]
        counts = [count for low, count in zip(before, counts) if count > LEAST_STEP * low]
    marks = counts[:: math.ceil(len(counts) / MOST_TICKS)]
    axes.set_xticks(marks, map(count_text, marks))
    axes.minorticks_off()
    axes.margins(x=0.08)


def rendered(drawn, kind, dpi):
    """The bytes of a drawing: the same from the same numbers."""
    picture = io.BytesIO()
    drawn.savefig(picture, format=kind, dpi=dpi, metadata=UNDATED.get(kind))
    return picture.getvalue()


def as_image(drawn):
    """A drawing as the address of an <img>."""
    return "data:image/svg+xml;base64," + base64.b64encode(rendered(drawn, "svg", 150)).decode()


def save(drawn, path):
    """A picture that the user has named."""
    write_file(path, rendered(drawn, pathlib.Path(path).suffix[1:], 130))
