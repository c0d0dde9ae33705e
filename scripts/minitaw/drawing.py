# SPDX-License-Identifier: BSD-3-Clause
"""What all drawings share: figures of matplotlib that are the same bytes for the same file, colours
and legends."""

import base64
import io
import math
import pathlib
import re
import textwrap
import zlib

import matplotlib
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from .command import write_file
from .numbers import NO_FIGURE

matplotlib.rcParams.update(
    {
        "svg.hashsalt": "minitaw",
        "svg.fonttype": "none",
        "date.converter": "concise",
        "text.parse_math": False,
        "font.size": 9,
        "hatch.linewidth": 0.5,
        "axes.axisbelow": True,
        "axes.formatter.limits": (-5, 7),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)

WIDTH = 4.8  # inches; a page shows them on the width of a phone
POINTS = 72  # of an inch
DOTS = 130  # for an inch, where a picture has any
LINE = 0.2  # inches of a line of a legend, title or note
GRID = {"color": "#808080", "alpha": 0.25}
# Okabe and Ito: told apart with every common colour blindness. Markers, dashes and hatches do the
# same in grey print.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"]
SCHEDULES = {
    **dict(zip("tawpipe weipipe fsdp zbv 1f1b zb1 zb2 ddp".split(), COLOURS)),
    "csv": "#7a5195",
    "serial": "#8c6d31",
}
SHADES = [(1.0, 0.4), (0.0, 0.35), (1.0, 0.6)]  # of options: white or black, and how much of it
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", "--", ":", "-."]
LONGEST_NAME, LONGEST_LABEL = 26, 34  # letters of a line
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def colour_of(name):
    """That of a schedule in every picture; with options a shade of it."""
    known = re.search(rf"\b({'|'.join(SCHEDULES)})\b", name)
    schedule = known[0] if known else name
    colour = SCHEDULES.get(schedule, COLOURS[zlib.crc32(schedule.encode()) % len(COLOURS)])
    if name == schedule:
        return colour
    end, share = SHADES[zlib.crc32(name.encode()) % len(SHADES)]
    return to_hex([(1 - share) * part + share * end for part in to_rgb(colour)])


def styles_of(names):
    """{name: look}: a colour that follows from the name, markers and dashes that tell names of one
    picture apart."""
    styles = {}
    for i, name in enumerate(dict.fromkeys(names)):
        styles[name] = {
            "color": colour_of(name),
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": DASHES[(i + i // len(MARKERS)) % len(DASHES)],
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
    if len(name) > 2 * width:
        name = f"{name[:width]}…{name[1 - width:]}"
    lines = textwrap.wrap(name.replace(":", ":\u200b "), width)
    return "\n".join(lines).replace("\u200b ", "").replace("\u200b", "") or NO_FIGURE


def add_legend(drawn, axes):
    """Below a figure, which grows by its height: each name once, in columns that fit into the
    width, each a handle and letters of 5.5 points."""
    handles = {}
    for handle, name in zip(*axes.get_legend_handles_labels()):
        handles.setdefault(short(name, LONGEST_LABEL), handle)
    if handles:
        longest = max(len(line) for name in handles for line in name.split("\n"))
        columns = max(1, int(drawn.get_figwidth() * POINTS / (45 + 5.5 * longest)))
        look = {"loc": "outside lower left", "ncols": columns, "fontsize": 9}
        drawn.legend(list(handles.values()), list(handles), **look)
        height = LINE * (1 + math.ceil(len(handles) / columns))
        drawn.set_figheight(drawn.get_figheight() + height)


def rendered(drawn, kind):
    """The bytes of a drawing: the same from the same numbers."""
    picture = io.BytesIO()
    drawn.savefig(picture, format=kind, dpi=DOTS, metadata=UNDATED.get(kind))
    return picture.getvalue()


def as_image(drawn):
    """A drawing as the address of an <img>."""
    return "data:image/svg+xml;base64," + base64.b64encode(rendered(drawn, "svg")).decode()


def save(drawn, path):
    """A picture that the user has named."""
    write_file(path, rendered(drawn, pathlib.Path(path).suffix[1:]))
