"""Drawings: a frame with axes and marks, bar charts and line charts. Sizes are those of the viewBox, about a pixel on a phone; colours are
classes of page.css."""

import math
from dataclasses import dataclass, field

from .markup import Markup, THIN, figure, join, shorten, tag

# Drawings: a frame with axes, and marks. Sizes are those of the viewBox, about a pixel on a phone; colours are classes of page.css.

WIDTH = 380  # of a panel: a phone's width, so that letters stay readable there


def drawing(width, height, label, *content):
    """`label` is what a reader hears who cannot see it: say the numbers that matter."""
    return tag("svg", *content, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label)


def at(value):
    """A coordinate: a tenth of a pixel is enough."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def text_at(x, y, content, class_=None, **attributes):
    return tag("text", content, x=at(x), y=at(y), class_=class_, **attributes)


def line(x1, y1, x2, y2, class_, **attributes):
    return tag("line", x1=at(x1), y1=at(y1), x2=at(x2), y2=at(y2), class_=class_, **attributes)


def rect(x, y, width, height, class_, tip=None):
    return tag("rect", tag("title", tip) if tip else "", x=at(x), y=at(y), width=at(max(width, 0)), height=at(height), class_=class_)


def polyline(points, class_, dashes=""):
    path = "M" + "L".join(f"{at(x)} {at(y)}" for x, y in points)
    return tag("path", d=path, class_=class_, stroke_dasharray=dashes or None)


def row_head(frame, top, name, note, note_class):
    """The line above a row: its name, cut so that the note at the other end has room."""
    room = int((frame.right - frame.left - 7 * len(note) - 10) / 7)
    return together(text_at(frame.left, top + 11, shorten(name, room), "name"), text_at(frame.right, top + 11, note, note_class + " end"))


SHAPES = {
    "square": "M-3.5-3.5h7v7h-7z",
    "up": "M0-4.6L4.3 3.2H-4.3z",
    "down": "M0 4.6L4.3-3.2H-4.3z",
    "diamond": "M0-4.8L4.8 0L0 4.8L-4.8 0z",
    "plus": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "cross": "M-2.2-4.3L0-2.1L2.2-4.3L4.3-2.2L2.1 0L4.3 2.2L2.2 4.3L0 2.1L-2.2 4.3L-4.3 2.2L-2.1 0L-4.3-2.2z",
}


def marker(shape, x, y, class_, tip=None):
    title = tag("title", tip) if tip else ""
    if shape in SHAPES:
        return tag("path", title, d=SHAPES[shape], transform=f"translate({at(x)} {at(y)})", class_=class_ + " dot")
    return tag("circle", title, cx=at(x), cy=at(y), r="3.8", class_=class_ + (" ring" if shape == "ring" else " dot"))


def round_steps(largest, count):
    """Marks 0, d, 2 d, ... up to at least the largest value, with a round distance: about `count` of them."""
    if not largest > 0 or math.isinf(largest):
        return [0.0, 1.0]
    raw = largest / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    return [i * step for i in range(math.ceil(largest / step - 1e-9) + 1)]


def mark_text(value):
    return f"{value:,.6g}".replace(",", THIN)


class Frame:
    """The rectangle that values are drawn in, and the map from values to places."""

    def __init__(self, width=WIDTH, height=250, left=52, right=12, top=10, bottom=40):
        self.width, self.height = width, height
        self.left, self.top = left, top
        self.right, self.bottom = width - right, height - bottom
        self.x = self.y = None

    def scale_x(self, low, high, logarithmic=False, inset=0):
        f = math.log if logarithmic else float
        a, b = f(low), f(high)
        span = (b - a) or 1
        begin, length = self.left + inset, self.right - self.left - 2 * inset
        self.x = (lambda v: begin + length * (f(v) - a) / span) if b > a else lambda v: begin + length / 2

    def scale_y(self, low, high):
        span = (high - low) or 1
        self.y = lambda v: self.bottom - (self.bottom - self.top) * (v - low) / span

    def y_axis(self, marks, label):
        parts = [line(self.left, self.y(v), self.right, self.y(v), "grid") for v in marks]
        parts += [text_at(self.left - 5, self.y(v) + 4, mark_text(v), "tick end") for v in marks]
        middle = (self.top + self.bottom) / 2
        parts.append(text_at(13, middle, label, "label mid", transform=f"rotate(-90 13 {at(middle)})"))
        return Markup("".join(parts))

    def x_axis(self, marks, label, name=mark_text, grid=True):
        parts = [line(self.left, self.bottom, self.right, self.bottom, "axis")]
        for v in marks:
            if grid:
                parts.append(line(self.x(v), self.top, self.x(v), self.bottom, "grid"))
            parts.append(line(self.x(v), self.bottom, self.x(v), self.bottom + 4, "axis"))
            parts.append(text_at(self.x(v), self.bottom + 17, name(v), "tick mid"))
        parts.append(text_at((self.left + self.right) / 2, self.bottom + 34, label, "label mid"))
        return Markup("".join(parts))


def swatch(content, width=30):
    """A legend's sample of a line or bar."""
    return tag("svg", content, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} 14", width=str(width), height="14",
               aria_hidden="true", class_="swatch")


def legend(entries):
    """[(sample, name)]: a list that wraps like text_at."""
    return tag("ul", *[tag("li", sample, tag("span", name)) for sample, name in entries], class_="legend")


def hatch(kind, x, y, width, height):
    """Strokes over a bar, so that its parts differ in grey print too. Lines, not patterns: those take printers minutes."""
    strokes, width = [], min(width, WIDTH)  # figures that contradict each other must not make it endless
    if kind in ("upright", "grid"):
        strokes += [f"M{at(x + d)} {at(y)}v{at(height)}" for d in range(3, int(width), 5)]
    if kind in ("level", "grid"):
        strokes += [f"M{at(x)} {at(y + height * part)}h{at(width)}" for part in ((0.5,) if kind == "grid" else (1 / 3, 2 / 3))]
    if kind == "slanted":
        strokes += [f"M{at(x + d)} {at(y + height)}l{at(height)} {at(-height)}" for d in range(0, int(width - height) + 1, 5)]
    return tag("path", d="".join(strokes), class_="hatch") if strokes else ""


def thin_out(marks, room):
    """Of too many marks along an axis every second, third, ... one, the last included."""
    step = max(1, math.ceil(len(marks) / max(1, room)))
    return marks[::-1][::step][::-1]


def together(*parts):
    return join(parts)


# Bar charts: rows of stacked parts with their name above, so that names may be long and letters stay large on a phone.

ROW, BAR = 38, 13  # heights

# Strokes of the parts that share bars: kinds of traffic, kinds of memory.
HATCHES = {"gradients": "slanted", "activations": "upright", "ends": "grid", "m1": "slanted", "m2": "upright", "m3": "level", "m4": "grid"}


@dataclass
class Bar:
    name: str
    parts: list = field(default_factory=list)  # [(class, name, value)]
    mark: float = None      # a line across the bar, for instance what was planned
    spread: tuple = None    # (low, high)
    note: str = ""          # behind the bar; where there is no bar, in its place

    @property
    def total(self):
        return sum(value for _, _, value in self.parts)


def draw_bar(frame, bar, top, unit):
    y = top + 17
    note = bar.note or (figure(bar.total) if bar.parts else "")
    parts = [row_head(frame, top, bar.name, shorten(note, 30), "tick" if bar.parts else "failed")]
    begin = 0
    for class_, name, value in bar.parts:
        x = frame.x(begin)
        width = frame.x(begin + value) - x
        parts.append(rect(x, y, width, BAR, f"part {class_}", f"{bar.name}: {name} {figure(value)} {unit}"))
        parts.append(hatch(HATCHES.get(class_), x, y, width, BAR))
        begin += value
    if bar.spread:
        low, high = (frame.x(v) for v in bar.spread)
        parts += [line(low, y + BAR / 2, high, y + BAR / 2, class_) for class_ in ("mark-edge", "whisker")]
    if bar.mark is not None:
        x = frame.x(bar.mark)
        parts.append(together(line(x, y - 2, x, y + BAR + 2, "mark-edge"), line(x, y - 2, x, y + BAR + 2, "mark")))
    return parts


def bars_text(bars, unit, mark_name):
    said = []
    for bar in bars:
        values = ", ".join(f"{name} {figure(value)}" for _, name, value in bar.parts if value)
        planned = f", {mark_name} {figure(bar.mark)}" if bar.mark is not None else ""
        said.append(f"{bar.name}: {values or bar.note or 'none'}{planned}")
    return "; ".join(said) + f" ({unit})"


def bar_chart(bars, title, label, unit, largest=None, mark_name="planned"):
    """label: of the axis, with its unit."""
    height = ROW * len(bars) + 52
    frame = Frame(height=height, left=8, right=20, top=4)
    tops = [v for b in bars for v in (b.total, b.mark or 0, b.spread[1] if b.spread else 0)]
    steps = round_steps(largest or max(tops, default=0), 5)
    frame.scale_x(0, steps[-1])
    parts = [frame.x_axis(steps, label)]
    for number, bar in enumerate(bars):
        parts += draw_bar(frame, bar, frame.top + ROW * number, unit)
    return drawing(frame.width, frame.height, f"{title}. {label}. {bars_text(bars, unit, mark_name)}", *parts)


def bar_legend(entries):
    """[(class, name)]"""
    def sample(class_):
        return swatch(together(rect(1, 1, 22, 12, f"part {class_}"), hatch(HATCHES.get(class_), 1, 1, 22, 12)), 24)

    return legend([(sample(class_), name) for class_, name in entries])


# Line charts: one line for each schedule over sequence lengths or ranks, with quartiles and what failed.

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
    parts = [polyline(places, colour + " curve", styles.dashes(one.name))] if len(places) > 1 else []
    if one.faint:
        return parts
    for point, (x, y) in zip(one.points, places):
        if point.low is not None and point.low < point.high:
            parts.append(line(x, frame.y(point.low), x, frame.y(point.high), colour + " spread"))
        parts.append(marker(styles.marker(one.name), x, y, colour, point.tip))
    return parts


def draw_failures(frame, lines):
    """A cross above the axis for each case that has no valid result, side by side where there are several."""
    counts, parts = {}, []
    for one in lines:
        for point in [] if one.faint else one.failed:
            n = counts[point.x] = counts.get(point.x, -1) + 1
            parts.append(text_at(frame.x(point.x) - 9 * n, frame.bottom - 4, "✕", "failed mid"))
            parts[-1] = Markup(parts[-1].replace("</text>", tag("title", point.tip) + "</text>"))
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
    steps = round_steps(largest or max(tops, default=0), 5)
    frame = Frame(height=height, left=30 + 6.6 * max(len(mark_text(v)) for v in steps))
    frame.scale_x(marks[0], marks[-1], logarithmic, inset=14)
    frame.scale_y(0, steps[-1])
    parts = [frame.y_axis(steps, y_label), frame.x_axis(thin_out(marks, 7), x_label, x_text)]
    if ideal:
        parts.append(polyline([(frame.x(a), frame.y(b)) for a, b in ideal], "ideal curve"))
    for one in sorted(lines, key=lambda one: not one.faint):
        parts += draw_line(frame, styles, one)
    parts += draw_failures(frame, lines)
    label = f"{title}. {y_label} over {x_label}. {values_text(lines, unit, x_text)}"
    return drawing(frame.width, frame.height, label, *parts)


def line_legend(names, styles):
    def sample(name):
        colour = f"c{styles.colour(name)}"
        return swatch(together(polyline([(0, 7), (30, 7)], colour + " curve", styles.dashes(name)),
                                       marker(styles.marker(name), 15, 7, colour)))

    return legend([(sample(name), name) for name in names])
