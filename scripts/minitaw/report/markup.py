"""Numbers and settings as a reader wants them, elements of the page, and looks that pictures of results share."""

import html
import math
import re

# Numbers and settings as a reader wants them.

THIN = "\u202f"  # between thousands; does not break


def exists(value):
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def figure(value, digits=4):
    """So many significant digits, no exponent, thousands set apart: 12 407, 0.1652."""
    if not exists(value) or math.isinf(value):
        return "–"
    if isinstance(value, int):
        return f"{value:,}".replace(",", THIN)
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if not -12 < places < 12:
        return f"{value:.{digits - 1}e}"
    return f"{round(value, places):,.{max(places, 0)}f}".replace(",", THIN)


def percent(value, places=1):
    return f"{100 * value:.{places}f} %" if exists(value) else "–"


def error(value):
    return f"{value:.0e}" if exists(value) else "–"


def byte_unit(largest):
    """Divisor and name so that the largest of some values is a handy number."""
    for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if largest >= 1024**power:
            return 1024**power, name
    return 1, "B"


def bytes_text(value):
    if not exists(value):
        return "–"
    divisor, unit = byte_unit(value)
    return f"{figure(value / divisor)} {unit}"


def time_unit(largest):
    for divisor, name in ((1, "s"), (1e-3, "ms")):
        if largest >= divisor:
            return divisor, name
    return 1e-6, "µs"


def seconds_text(value):
    if not exists(value):
        return "–"
    divisor, unit = time_unit(abs(value))
    return f"{figure(value / divisor)} {unit}"


def count_text(tokens):
    """As decks write it: 8K is 8192."""
    for divisor, letter in ((1024**2, "M"), (1024, "K")):
        if tokens >= divisor and tokens % divisor == 0:
            return f"{tokens // divisor}{letter}"
    return f"{tokens}"


def plural(count, thing):
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def shorten(text, width):
    """Cut in the middle: both ends of a schedule's name tell it from others."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return text[:head] + "…" + text[len(text) - (width - 1 - head):]


def listed(items, most=8):
    """Comma-separated, the rest counted."""
    items = [str(item) for item in items]
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def tokens_text_of(case):
    return f"{count_text(case['seq'])} tokens"


# Elements of the page. Everything is well-formed XML as well, and every text is escaped here and nowhere else.

# Control characters may be in texts of a file, and nowhere in a page.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")


class Markup(str):
    """Text that is markup already."""


def escape(text):
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(FORBIDDEN.sub("\ufffd", str(text)), quote=True))


def join(parts, between=""):
    return Markup(between.join(escape(part) for part in parts if part is not None and part != ""))


def tag(name, *content, **attributes):
    """<name attributes>content</name>; class_ is class, data_v is data-v; attributes that are None are left out."""
    texts = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items() if value is not None)
    inner = join(content)
    return Markup(f"<{name}{texts}>{inner}</{name}>") if inner or name not in VOID else Markup(f"<{name}{texts}/>")


VOID = {"br", "hr", "img", "meta", "link", "path", "rect", "line", "circle", "use"}


def table(head, rows, caption=None, **attributes):
    """A table in a box that scrolls by itself. Cells are texts or finished <td>."""
    cells = [tag("tr", *[cell if is_cell(cell) else tag("th", cell, scope="col") for cell in head])]
    body = [row if isinstance(row, Markup) else table_row(row) for row in rows]
    inner = tag("table", tag("caption", caption) if caption else "", tag("thead", *cells), tag("tbody", *body), **attributes)
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption or "table")


def table_row(cells, **attributes):
    return tag("tr", *[cell if is_cell(cell) else tag("td", cell) for cell in cells], **attributes)


def is_cell(cell):
    return isinstance(cell, Markup) and cell.startswith(("<td", "<th"))


def name_cell(name):
    """A schedule: on one line, unless it is very long."""
    return tag("td", name, class_="name long-name" if len(name) > 28 else "name")


def number(text, value=None):
    """A cell of a captioned, with the exact value for those who read the page by machine."""
    return tag("td", text, class_="n", data_v=None if value is None else repr(value))


def fold(summary, *content, **attributes):
    """Shown when asked for, and in print."""
    return tag("details", tag("summary", summary), *content, **attributes)


def captioned(title, drawing, note=None, wide=False):
    """A drawing with its title; wide ones take the whole line."""
    caption = tag("figcaption", tag("strong", title), join([" ", note]) if note else "")
    return tag("figure", caption, drawing, class_="wide" if wide else None)


def figures(drawings, pairs=False):
    """Side by side as far as there is room; pairs: two in a line at most."""
    return tag("div", *drawings, class_="figures pairs" if pairs else "figures")


# Looks that pictures of results share: who has which colour (plots too), marker and dashes.

# Okabe and Ito: told apart with every common colour blindness. Markers and dashes do the same in grey print.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999"]

# Kinds of memory and of traffic, in the order of the file.
MEMORY_KINDS = ["weights", "gradients", "optimiser", "activations", "buffers"]
TRAFFIC_KINDS = ["weights", "gradients", "activations", "ends"]

# Parts of a step in the order of the stack: column of the summary, name, class of the page's style sheet.
PARTS = [
    ("compute_s", "computing", "compute"),
    ("exposed_weights_s", "waiting for weights", "weights"),
    ("exposed_gradients_s", "waiting for gradients", "gradients"),
    ("exposed_activations_s", "waiting for activations", "activations"),
    ("exposed_ends_s", "waiting for embedding and head", "ends"),
    ("idle_s", "idle", "idle"),
]

DASHES = ["", "6 3", "2 2", "8 3 2 3"]
MARKERS = ["circle", "square", "up", "diamond", "down", "plus", "cross", "ring"]


class Styles:
    """One look for each name, in the order of their first appearance, the same on the whole page."""

    def __init__(self, names):
        self.numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}

    def colour(self, name):
        return self.numbers[name] % len(COLOURS)

    def marker(self, name):
        again, number = divmod(self.numbers[name], len(COLOURS))
        return MARKERS[(number + 3 * again) % len(MARKERS)]

    def dashes(self, name):
        number = self.numbers[name]
        return DASHES[(number + number // len(COLOURS)) % len(DASHES)]
