"""Line charts: one line for each schedule over sequence lengths or ranks, with quartiles and what failed."""

from dataclasses import dataclass, field

from . import svg
from .html import Markup
from .text import figure


@dataclass
class Point:
    x: float
    y: float
    low: float = None   # the bar from here ...
    high: float = None  # ... to here
    tip: str = ""


@dataclass
class Line:
    name: str
    points: list = field(default_factory=list)
    failed: list = field(default_factory=list)  # Points of cases without a valid result: marked on the axis
    faint: bool = False                         # for comparison only


def draw_line(frame, styles, one):
    colour = f"c{styles.colour(one.name)}" if not one.faint else "faint"
    places = [(frame.x(p.x), frame.y(p.y)) for p in one.points]
    parts = [svg.polyline(places, colour + " curve", styles.dashes(one.name))] if len(places) > 1 else []
    if one.faint:
        return parts
    for point, (x, y) in zip(one.points, places):
        if point.low is not None and point.low < point.high:
            parts.append(svg.line(x, frame.y(point.low), x, frame.y(point.high), colour + " spread"))
        parts.append(svg.marker(styles.marker(one.name), x, y, colour, point.tip))
    return parts


def draw_failures(frame, lines):
    """A cross above the axis for each case that has no valid result, side by side where there are several."""
    counts, parts = {}, []
    for one in lines:
        for point in [] if one.faint else one.failed:
            n = counts[point.x] = counts.get(point.x, -1) + 1
            parts.append(svg.text(frame.x(point.x) - 9 * n, frame.bottom - 4, "✕", "failed mid"))
            parts[-1] = Markup(parts[-1].replace("</text>", svg.tag("title", point.tip) + "</text>"))
    return parts


def values_text(lines, unit, x_text):
    """The numbers of a chart in words: the ends of every line."""
    said = []
    for one in lines:
        if one.points and not one.faint:
            ends = [one.points[0], one.points[-1]] if len(one.points) > 1 else one.points
            said.append(f"{one.name}: " + " to ".join(f"{figure(p.y)} {unit} at {x_text(p.x)}" for p in ends))
    return "; ".join(said)


def line_chart(lines, styles, title, x, y, largest=None, ideal=None, height=250):
    """x: (label, marks, text of a mark, logarithmic); y: (label with unit, unit). ideal: [(x, y)] of a line to compare with."""
    x_label, marks, x_text, logarithmic = x
    y_label, unit = y
    tops = [v for one in lines for p in one.points for v in (p.y, p.high) if v is not None] + [v for _, v in ideal or []]
    steps = svg.round_steps(largest or max(tops, default=0), 5)
    frame = svg.Frame(height=height, left=30 + 6.6 * max(len(svg.mark_text(v)) for v in steps))
    frame.scale_x(marks[0], marks[-1], logarithmic, inset=14)
    frame.scale_y(0, steps[-1])
    parts = [frame.y_axis(steps, y_label), frame.x_axis(svg.thin_out(marks, 7), x_label, x_text)]
    if ideal:
        parts.append(svg.polyline([(frame.x(a), frame.y(b)) for a, b in ideal], "ideal curve"))
    for one in sorted(lines, key=lambda one: not one.faint):
        parts += draw_line(frame, styles, one)
    parts += draw_failures(frame, lines)
    label = f"{title}. {y_label} over {x_label}. {values_text(lines, unit, x_text)}"
    return svg.drawing(frame.width, frame.height, label, *parts)


def line_legend(names, styles):
    def sample(name):
        colour = f"c{styles.colour(name)}"
        return svg.swatch(svg.together(svg.polyline([(0, 7), (30, 7)], colour + " curve", styles.dashes(name)),
                                       svg.marker(styles.marker(name), 15, 7, colour)))

    return svg.legend([(sample(name), name) for name in names])
