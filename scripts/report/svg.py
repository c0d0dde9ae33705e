"""Drawings: a frame with axes, and marks. Sizes are those of the viewBox, about a pixel on a phone; colours are classes of page.css."""

import math

from .html import Markup, join, tag
from .text import THIN, shorten

WIDTH = 380  # of a panel: a phone's width, so that letters stay readable there


def drawing(width, height, label, *content):
    """`label` is what a reader hears who cannot see it: say the numbers that matter."""
    return tag("svg", *content, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label)


def at(value):
    """A coordinate: a tenth of a pixel is enough."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def text(x, y, content, class_=None, **attributes):
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
    return together(text(frame.left, top + 11, shorten(name, room), "name"), text(frame.right, top + 11, note, note_class + " end"))


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
        parts += [text(self.left - 5, self.y(v) + 4, mark_text(v), "tick end") for v in marks]
        middle = (self.top + self.bottom) / 2
        parts.append(text(13, middle, label, "label mid", transform=f"rotate(-90 13 {at(middle)})"))
        return Markup("".join(parts))

    def x_axis(self, marks, label, name=mark_text, grid=True):
        parts = [line(self.left, self.bottom, self.right, self.bottom, "axis")]
        for v in marks:
            if grid:
                parts.append(line(self.x(v), self.top, self.x(v), self.bottom, "grid"))
            parts.append(line(self.x(v), self.bottom, self.x(v), self.bottom + 4, "axis"))
            parts.append(text(self.x(v), self.bottom + 17, name(v), "tick mid"))
        parts.append(text((self.left + self.right) / 2, self.bottom + 34, label, "label mid"))
        return Markup("".join(parts))


def swatch(content, width=30):
    """A legend's sample of a line or bar."""
    return tag("svg", content, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} 14", width=str(width), height="14",
               aria_hidden="true", class_="swatch")


def legend(entries):
    """[(sample, name)]: a list that wraps like text."""
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
