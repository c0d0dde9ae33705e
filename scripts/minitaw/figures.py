# SPDX-License-Identifier: BSD-3-Clause
"""What report and timeline share: numbers as a reader wants them, which cases belong together, and
drawings by matplotlib that are the same bytes for the same file."""

import base64
import functools
import io
import math
import pathlib
import textwrap

import matplotlib
import numpy
from matplotlib.figure import Figure

from .command import plural, write_file
from .record import FORBIDDEN, exists

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

PICTURES = (".png", ".svg", ".pdf")  # files that are drawn
MOST_PANELS = 12  # of a picture or page, which says how many there are
# Okabe and Ito: told apart with every common colour blindness. Markers, dashes and hatches do the
# same in grey print.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", "--", ":", "-."]
TRAFFIC_KINDS = [
    ("weights", "#d55e00", ""),
    ("gradients", "#e69f00", "////"),
    ("activations", "#cc79a7", "\\\\\\\\"),
    ("embedding and head", "#56b4e9", "xxxx"),
]
# Of a step: column of the summary; name, colour and hatch.
STEP_PARTS = {
    "compute_s": ("computing", "#4d4d4d", ""),
    "exposed_weights_s": ("waiting for weights", "#d55e00", ""),
    "exposed_gradients_s": ("for gradients", "#e69f00", "////"),
    "exposed_activations_s": ("for activations", "#cc79a7", "\\\\\\\\"),
    "exposed_embeddings_s": ("for embedding and head", "#56b4e9", "xxxx"),
    "idle_s": ("idle", "#c8c8c8", ""),
}

# Numbers.


def figure(value, digits=4):
    """So many significant digits, no exponent, thousands set apart: 12 407, 0.1652."""
    if not exists(value) or math.isinf(value):
        return "–"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    places = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    if not -12 < places < 12:
        return f"{value:.{digits - 1}e}"
    return f"{round(value, places):,.{max(places, 0)}f}".replace(",", "\u202f")


def percent(value, places=1):
    return f"{100 * value:.{places}f} %"


def unit_among(units, largest):
    """Divisor and name so that the largest of some values is a handy number."""
    return next((unit for unit in units if largest >= unit[0]), units[-1])


def with_unit(unit_of, value):
    divisor, unit = unit_of(value)
    return f"{figure(value if divisor == 1 else value / divisor)} {unit}"


byte_unit = functools.partial(
    unit_among, ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, "B"))
)
time_unit = functools.partial(unit_among, ((1, "s"), (1e-3, "ms"), (1e-6, "µs")))
bytes_text, seconds_text = (
    functools.partial(with_unit, unit_of) for unit_of in (byte_unit, time_unit)
)


def count_text(tokens):
    """As decks write it: 8K is 8192."""
    return next(
        (
            f"{tokens // size}{letter}"
            for size, letter in ((1024**2, "M"), (1024, "K"))
            if tokens >= size and tokens % size == 0
        ),
        f"{tokens}",
    )


def listed(items, most=8):
    items = [str(item) for item in items]
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


# Which cases belong together. The settings stand in the order in which they tell panels apart.

SETTINGS = {
    "ranks": "rank",
    "groups": "groups",
    "replicas": "replica",
    "hidden": "hidden",
    "layers": "layer",
    "dtype": "",
    "recompute": "recompute",
    "micro_batches": "M =",
    "micro_batch": "B =",
    "micro_batch_per_rank": "B of each rank",
    "vocab": "vocabulary",
    "heads": "head",
    "kv_heads": "key/value head",
    "ffn": "feed-forward width",
    "data": "tokens",
    "attention": "attention",
    "transport": "transport",
    "seed": "seed",
    "learning_rate": "learning rate",
}


def setting_text(name, value):
    """ "4 ranks", "groups 2+2", "M = 16"."""
    counted = name in ("ranks", "layers", "heads", "kv_heads", "replicas")
    return plural(value, SETTINGS[name]) if counted else f"{SETTINGS[name]} {value}".strip()


def telling(cases, settings=tuple(SETTINGS)):
    """The settings that tell these cases apart, without those that follow from others."""
    chosen, parts = [], 1
    for name in settings:
        count = len({tuple(case[s] for s in [*chosen, name]) for case in cases})
        if count > parts:
            chosen, parts = [*chosen, name], count
    return chosen


def shared_settings(cases):
    """Texts of the settings that all cases have in common."""
    shared = {name: cases[0][name] for name in SETTINGS if len({case[name] for case in cases}) == 1}
    return [
        setting_text(name, value)
        for name, value in shared.items()
        if value not in ("", "auto") and (name, value) != ("replicas", 1)
    ]


def grouped(cases, key):
    found = {}
    for case in cases:
        found.setdefault(key(case), []).append(case)
    return found


def panels(cases):
    """[(title, cases)]: cases that are alike but for schedule and sequence length. The title says
    what tells a panel from the others."""
    names = telling(cases)
    parts = grouped(cases, lambda case: tuple(case[name] for name in names))
    return [(", ".join(map(setting_text, names, key)), some) for key, some in parts.items()]


def styles_of(names):
    """One look for each name, in the order of their first appearance."""
    return {
        name: {
            "color": COLOURS[i % 8],
            "marker": MARKERS[(i + 3 * (i // 8)) % 8],
            "linestyle": DASHES[(i + i // 8) % 4],
            "markersize": 5,
            "linewidth": 1.4,
        }
        for i, name in enumerate(dict.fromkeys(names))
    }


# Drawings.


def new_figure(width=4.8, height=2.6, margin=0.1):
    """Inches. A page shows 4.8 inches on the width of a phone. The margin is for letters of a
    browser that are wider than ours."""
    drawn = Figure(figsize=(width, height), layout="constrained")
    drawn.get_layout_engine().set(w_pad=margin)
    return drawn


def short(name, width=26):
    """On two lines at most."""
    name = FORBIDDEN.sub("\ufffd", name)
    name = name if len(name) <= 2 * width else f"{name[:width]}…{name[1 - width:]}"
    return (
        "\n".join(textwrap.wrap(name.replace(":", ":\u200b "), width))
        .replace("\u200b ", "")
        .replace("\u200b", "")
        or "–"
    )  # lines end behind a colon


def legend_below(drawn, *axes, columns=2, order=()):
    """The figure grows by the height of the legend."""
    handles = {
        label: handle for one in axes for handle, label in zip(*one.get_legend_handles_labels())
    }
    handles = {label: handles[label] for label in [*order, *handles] if label in handles}
    if handles:
        labels = [short(label, 34) for label in handles]
        columns = min(
            columns,
            int(
                drawn.get_figwidth()
                * 72
                / (45 + 5.5 * max(len(line) for label in labels for line in label.split("\n")))
            ),
        )
        drawn.legend(
            handles.values(), labels, loc="outside lower left", ncols=max(1, columns), fontsize=9
        )
        drawn.set_figheight(
            drawn.get_figheight() + 0.2 * (1 + math.ceil(len(labels) / max(1, columns)))
        )


def draw_lines(axes, lines, styles, x, value, label, whiskers=None):
    """lines: {name: cases}; x(case): tokens or ranks, whose axis is logarithmic; value(case);
    whiskers(case): low and high end."""
    for name, cases in lines.items():
        cases = sorted(cases, key=x)
        values = numpy.array([value(case) for case in cases])
        ends = (
            numpy.abs(numpy.array([whiskers(case) for case in cases]).T - values)
            if whiskers
            else None
        )
        axes.errorbar(
            [x(case) for case in cases],
            values,
            yerr=ends,
            capsize=3,
            elinewidth=0.9,
            label=name,
            **styles[name],
        )
    axes.set_ylim(0, 1.06 * max(axes.get_ylim()[1], 1e-12))
    axes.set_title(label, loc="left", fontsize=9)
    axes.grid(True, color="#808080", alpha=0.25, linewidth=0.6)
    counts = sorted({x(case) for cases in lines.values() for case in cases})
    if counts[-1] / counts[0] > 2:
        axes.set_xscale("log", base=2)
        counts = [
            count for before, count in zip([0, *counts], counts) if count > 1.1 * before
        ]  # marks over each other say nothing
    marks = counts[:: math.ceil(len(counts) / 8)]
    axes.set_xticks(marks, map(count_text, marks))
    axes.minorticks_off()
    axes.margins(x=0.08)


# Charts of cases that are alike but for schedule and sequence length: (height in inches,
# draw(axes)). A label has the unit at {}.


def bars_chart(cases, naming, parts, values, label, unit_of, whiskers=None):
    """A stacked bar for each case: values[bar][part], in the order of parts: [(name, colour,
    hatch)]; whiskers: [low, high] errors of the bars."""
    names, values = [short(naming(case)) for case in cases], numpy.nan_to_num(
        numpy.array(values, float)
    )
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
                    xerr=whiskers,
                    capsize=3,
                )
                left = left + widths
        axes.set_yticks(range(len(names)), names, fontsize=9)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.set_xlabel(label.format(unit))
        axes.grid(True, axis="x", color="#808080", alpha=0.25, linewidth=0.6)

    return 0.9 + 0.3 * sum(1 + 0.4 * name.count("\n") for name in names), draw


def against_length(cases, styles, naming, column, label, unit_of, whiskers=None):
    """Lines over the sequence length, or bars where there is one length only."""
    if len({case["seq"] for case in cases}) == 1:
        errors = (
            whiskers
            and numpy.abs(
                numpy.array([whiskers(case) for case in cases]) - [[case[column]] for case in cases]
            ).T
        )
        return bars_chart(
            cases,
            naming,
            [("", COLOURS[0], "")],
            [[case[column]] for case in cases],
            label,
            unit_of,
            errors,
        )
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

    return 2.5, draw


def charts_of(cases, styles, naming):
    """Bytes between groups, throughput, memory and where the time of a step went, all of valid
    cases; None for what they have no figures of. Bytes and time are those of the longest
    sequence."""

    def rate_whiskers(case):  # of the third and of the first quartile of the step times
        return [
            case.tokens / case[name] if case[name] > 0 else case["tokens_per_s"]
            for name in ("q3_s", "q1_s")
        ]

    longest = max(case["seq"] for case in cases)
    last, at = [
        case for case in cases if case["seq"] == longest
    ], f"at {count_text(longest)} tokens"
    timed = [case for case in last if exists(case["compute_s"])]
    return [
        (
            bars_chart(
                last,
                naming,
                TRAFFIC_KINDS,
                [case.traffic()[0] for case in last],
                f"sent between groups {at} [{{}}/step]",
                byte_unit,
            )
            if any(case["bytes_between"] > 0 for case in last)
            else None
        ),
        against_length(
            cases,
            styles,
            naming,
            "tokens_per_s",
            "throughput [token/s], whiskers: quartiles",
            lambda _: (1, ""),
            rate_whiskers,
        ),
        against_length(
            cases, styles, naming, "memory_measured", "memory of the worst rank [{}]", byte_unit
        ),
        (
            bars_chart(
                timed,
                naming,
                STEP_PARTS.values(),
                [[case[name] for name in STEP_PARTS] for case in timed],
                f"step {at}, mean over ranks [{{}}]",
                time_unit,
            )
            if timed
            else None
        ),
    ]


def chart_figure(columns, width, legend_columns=2):
    """A figure of columns of charts, [(title, charts)], with one legend. A page shows 4.8 inches on
    the width of a phone."""
    rows = list(zip(*(charts for _, charts in columns)))
    heights = [max(chart[0] if chart else 0.1 for chart in row) for row in rows]
    drawn = new_figure(width * len(columns), sum(heights))
    panels = drawn.subplots(
        len(rows), len(columns), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axes, chart in zip(panels.flat, (chart for row in rows for chart in row)):
        chart[1](axes) if chart else axes.axis("off")
    for axes, (title, _) in zip(panels[0], columns):
        axes.set_title(title)
    legend_below(drawn, *panels.flat, columns=legend_columns)
    return drawn


def rendered(drawn, kind, dpi):
    """The bytes of a drawing: the same from the same numbers."""
    picture, undated = io.BytesIO(), {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    drawn.savefig(picture, format=kind, dpi=dpi, metadata=undated.get(kind))
    return picture.getvalue()


def as_image(drawn):
    """A drawing as the address of an <img>."""
    return "data:image/svg+xml;base64," + base64.b64encode(rendered(drawn, "svg", 150)).decode()


def save(drawn, path):
    """A picture that the user has named."""
    write_file(path, rendered(drawn, pathlib.Path(path).suffix[1:], 130))
