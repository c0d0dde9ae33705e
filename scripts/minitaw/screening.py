# SPDX-License-Identifier: BSD-3-Clause
"""A screening, as minitaw screen --json writes it, as a section of a page (docs/screen.md)."""

import math
import pathlib
from dataclasses import dataclass

import numpy
from matplotlib.patches import Rectangle

from .book import Box, Picture
from .charts import label_of
from .command import from_json
from .drawing import GRID, WIDTH, as_image, new_figure
from .numbers import exists, figure, percent, plural, time_unit, unit_among
from .record import clean

LOOKS = {"CLEAN": "good", "INCONCLUSIVE": "doubt", "FOUND": "bad"}
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
LARGEST = 1e18  # of values
BAR, MARK = "#0072b2", "#d55e00"
MOST_NAMES = 16  # of parts along an axis
MOST_WRITTEN = 8  # parts of a matrix whose numbers are written into it


@dataclass
class Quantity:
    name: str
    unit: str
    is_latency: bool
    part: str  # "rank" or "node"
    parts: list  # numbers of those with values
    values: numpy.ndarray  # [part] or [from part][to part], in the unit; NaN: not measured
    marked: numpy.ndarray  # whether a value is of a culprit
    expected: float  # NaN: not known


@dataclass
class Screening:
    path: pathlib.Path
    box: Box
    blocks: list  # of its section


# What a file says.


def unit_of(said, largest):
    """Divisor and name of the unit that is customary (docs/screen.md)."""
    if said["units"] == "s":
        return time_unit(largest)
    bits = 8 if said["of"] == "pairs of nodes" else 1
    divisor, prefix = unit_among(PREFIXES, bits * largest)
    return divisor / bits, prefix + ("bit/s" if bits == 8 else clean(said["units"]))


def marks_of(said, content, values):
    """Of culprits with evidence of this quantity: a link's two values, or all of a part."""
    by_node = numpy.repeat(range(len(content["nodes"])), content["nodes"])
    marked = numpy.zeros(values.shape, bool)
    for culprit in content["culprits"]:
        names = [evidence["quantity"] for evidence in culprit["evidence"]]
        if any(name.startswith(said["name"]) for name in names):
            parts = numpy.array(culprit["ranks"], int)
            parts = by_node[parts] if content["part"] == "node" else parts
            if values.ndim == 2 and culprit["kind"] == "link":
                marked[parts, parts[::-1]] = True
            else:
                marked[parts] = marked.T[parts] = True
    return marked & ~numpy.isnan(values)


def quantity_of(said, content):
    values = numpy.array(said["values"], float)
    expected = numpy.array(said["expected"], float)
    known = numpy.append(values, expected)
    if values.ndim not in (1, 2) or len(values) != values.shape[-1]:
        raise ValueError("values have another shape")
    if not (numpy.isnan(known) | ((0 <= known) & (known < LARGEST))).all():
        raise ValueError("a value is no rate and no time")
    divisor, unit = unit_of(said, max(numpy.nan_to_num(values).ravel(), default=0))
    measured = ~numpy.isnan(values)
    parts = numpy.flatnonzero((measured | measured.T).reshape(len(values), -1).any(axis=1))
    chosen = numpy.ix_(*[parts] * values.ndim)
    return Quantity(
        name=clean(said["name"]),
        unit=unit,
        is_latency=said["units"] == "s",
        part=clean(content["part"]),
        parts=parts.tolist(),
        values=values[chosen] / divisor,
        marked=marks_of(said, content, values)[chosen],
        expected=expected.item() / divisor,
    )


# What is drawn.


def limits_of(quantity):
    """Of the colours: none, and the rate that is expected, or the highest; of latencies what is
    expected, or the lowest, and at least twice that. The median may be of slow parts."""
    highest = numpy.nanmax(quantity.values)
    usual = quantity.expected
    if quantity.is_latency:
        usual = usual if exists(usual) else numpy.nanmin(quantity.values)
        return usual, max(highest, 2 * usual) or 1
    return 0, (usual if exists(usual) else highest) or 1


def mark_parts(axis, parts):
    step = math.ceil(len(parts) / MOST_NAMES)
    axis.set_ticks(range(0, len(parts), step), parts[::step])


def draw_pairs(quantity, label):
    """A matrix of colours: the darker, the slower."""
    parts, (low, high) = quantity.parts, limits_of(quantity)
    drawn = new_figure(WIDTH, 0.85 * WIDTH)
    axes = drawn.subplots()
    colours = "viridis_r" if quantity.is_latency else "viridis"
    image = axes.imshow(quantity.values, colours, vmin=low, vmax=high)
    drawn.colorbar(image, label=label)
    for row, column in numpy.argwhere(quantity.marked):
        place = column - 0.5, row - 0.5
        axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor=MARK, linewidth=2))
    if len(parts) <= MOST_WRITTEN:
        for row, column in numpy.argwhere(~numpy.isnan(quantity.values)):
            value = quantity.values[row, column]
            ink = "black" if sum(image.to_rgba(value)[:3]) > 1.5 else "white"
            axes.text(column, row, figure(value, 3), color=ink, ha="center", va="center")
    for axis, way in ((axes.yaxis, "from"), (axes.xaxis, "to")):
        mark_parts(axis, parts)
        axis.set_label_text(f"{way} {quantity.part}")
    return drawn


def draw_each(quantity, label):
    """A bar for each part."""
    drawn = new_figure()
    axes, places = drawn.subplots(), numpy.arange(len(quantity.parts))
    for some, look in (
        (~quantity.marked, {"color": BAR}),
        (quantity.marked, {"color": MARK, "hatch": "////", "edgecolor": "white"}),
    ):
        axes.bar(places[some], quantity.values[some], **look)
    if exists(quantity.expected):
        axes.axhline(quantity.expected, color="black", linestyle="--", linewidth=1)
    mark_parts(axes.xaxis, quantity.parts)
    axes.set_xlabel(quantity.part)
    axes.set_title(label, loc="left", fontsize=9)
    axes.grid(True, axis="y", linewidth=0.6, **GRID)
    return drawn


def draw(quantity):
    label = label_of(quantity.name, quantity.unit)
    return (draw_pairs if quantity.values.ndim == 2 else draw_each)(quantity, label)


# What the page says.


def box_of(content, path):
    """The verdict, and the culprits with their evidence."""
    verdict = clean(content["verdict"])
    word, _, rest = verdict.partition(":")
    lines = [path.name]
    for culprit in content["culprits"]:
        evidence = "; ".join(each["text"] for each in culprit["evidence"])
        lines.append(clean(f"{culprit['text']}: {evidence}"))
    return Box(LOOKS[word], strong=f"SCREENING: {word}", after=f":{rest}", lines=lines)


def blocks_of(content):
    nodes = " + ".join(map(str, content["nodes"]))
    said = f"{plural(content['rounds'], 'round')} on nodes of {nodes} ranks"
    load = content["load"]
    if load is not None:
        said += f"; {content['load_by']} took up to {percent(load, 0)} of a rank's cores"
    pictures, without = [], []
    for one in content["quantities"]:
        quantity = quantity_of(one, content)
        if quantity.parts:
            pictures.append(Picture(quantity.name, as_image(draw(quantity))))
        else:
            without.append(quantity.name)
    more = [f"Not measured: {', '.join(without)}."] * bool(without)
    return [f"{said}.", *more, pictures]


def load(name):
    path = pathlib.Path(name)

    def made(content):
        return Screening(path, box_of(content, path), blocks_of(content))

    return from_json(name, made, "output of minitaw screen --json")
