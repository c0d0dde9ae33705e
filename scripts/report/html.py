"""Elements of the page. Everything is well-formed XML as well, and every text is escaped here and nowhere else."""

import html
import re

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
    """A cell of a figure, with the exact value for those who read the page by machine."""
    return tag("td", text, class_="n", data_v=None if value is None else repr(value))


def fold(summary, *content, **attributes):
    """Shown when asked for, and in print."""
    return tag("details", tag("summary", summary), *content, **attributes)


def figure(title, drawing, note=None, wide=False):
    """A drawing with its title; wide ones take the whole line."""
    caption = tag("figcaption", tag("strong", title), join([" ", note]) if note else "")
    return tag("figure", caption, drawing, class_="wide" if wide else None)


def figures(drawings, pairs=False):
    """Side by side as far as there is room; pairs: two in a line at most."""
    return tag("div", *drawings, class_="figures pairs" if pairs else "figures")
