"""Bar charts: rows of stacked parts with their name above, so that names may be long and letters stay large on a phone."""

from dataclasses import dataclass, field

from . import svg
from .text import figure, shorten

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
    parts = [svg.row_head(frame, top, bar.name, shorten(note, 30), "tick" if bar.parts else "failed")]
    begin = 0
    for class_, name, value in bar.parts:
        x = frame.x(begin)
        width = frame.x(begin + value) - x
        parts.append(svg.rect(x, y, width, BAR, f"part {class_}", f"{bar.name}: {name} {figure(value)} {unit}"))
        parts.append(svg.hatch(HATCHES.get(class_), x, y, width, BAR))
        begin += value
    if bar.spread:
        low, high = (frame.x(v) for v in bar.spread)
        parts += [svg.line(low, y + BAR / 2, high, y + BAR / 2, class_) for class_ in ("mark-edge", "whisker")]
    if bar.mark is not None:
        x = frame.x(bar.mark)
        parts.append(svg.together(svg.line(x, y - 2, x, y + BAR + 2, "mark-edge"), svg.line(x, y - 2, x, y + BAR + 2, "mark")))
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
    frame = svg.Frame(height=height, left=8, right=20, top=4)
    tops = [v for b in bars for v in (b.total, b.mark or 0, b.spread[1] if b.spread else 0)]
    steps = svg.round_steps(largest or max(tops, default=0), 5)
    frame.scale_x(0, steps[-1])
    parts = [frame.x_axis(steps, label)]
    for number, bar in enumerate(bars):
        parts += draw_bar(frame, bar, frame.top + ROW * number, unit)
    return svg.drawing(frame.width, frame.height, f"{title}. {label}. {bars_text(bars, unit, mark_name)}", *parts)


def bar_legend(entries):
    """[(class, name)]"""
    def sample(class_):
        return svg.swatch(svg.together(svg.rect(1, 1, 22, 12, f"part {class_}"), svg.hatch(HATCHES.get(class_), 1, 1, 22, 12)), 24)

    return svg.legend([(sample(class_), name) for class_, name in entries])
