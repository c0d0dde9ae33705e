"""What a report must be, whatever is in it: read by programs of the standard library."""

import re
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"
FOREIGN = re.compile(r'https?:|//[a-z]|@import|url\((?!#)|href="(?!#)|<script|<link|<iframe|\bsrc=|\bon[a-z]+=', re.IGNORECASE)
# Texts of a file may name whatever they like; only markup and style are searched.
NAMESPACE = re.compile(r'xmlns(:xlink)?="http://www[.]w3[.]org/[^"]*"')


def text_of(element):
    return "".join(element.itertext())


def tree_of(text):
    """The page as a tree, after the checks that hold for every page."""
    assert text.startswith("<!DOCTYPE html>\n"), text[:40]
    tree = ElementTree.fromstring(text.split("\n", 1)[1])
    check_markup(text)
    check_structure(tree)
    for figure in tree.iter("figure"):
        check_figure(figure)
    return tree


def check_markup(text):
    markup = "".join(re.findall(r"<[^>]*>", text)) + "".join(re.findall(r"<style>.*?</style>", text, re.DOTALL))
    markup = re.sub(r'((aria-label|data-v|d)="[^"]*")|(href="data:image/png;base64,[^"]*")', "", NAMESPACE.sub("", markup))
    found = FOREIGN.search(markup)
    assert not found, f"the page reaches out: {markup[max(0, found.start() - 40):found.end() + 40]}"


def check_structure(tree):
    assert tree.get("lang") == "en" and text_of(tree.find("head/title"))
    assert any(meta.get("name") == "viewport" for meta in tree.iter("meta"))
    levels = [int(e.tag[1]) for e in tree.iter() if re.fullmatch("h[1-6]", str(e.tag))]
    assert levels[0] == 1 and levels.count(1) == 1, levels
    assert all(b <= a + 1 for a, b in zip(levels, levels[1:])), f"headings out of order: {levels}"
    ids = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(ids) == len(set(ids)), "an id is used twice"
    for link in tree.iter("a"):
        assert link.get("href").startswith("#") and link.get("href")[1:] in ids, link.get("href")
    for table in tree.iter("table"):
        assert table.find("caption") is not None and all(th.get("scope") for th in table.iter("th")), "a table without caption or scopes"


def check_figure(figure):
    """A title, which is the label of the drawing too, and an axis with a unit; no coordinate that is none."""
    title = text_of(figure.find("figcaption"))
    drawings = [svg for svg in figure.iter(SVG + "svg") if svg.get("role") == "img"]
    assert title and len(drawings) == 1 and drawings[0].get("aria-label"), title
    texts = [text_of(text) for text in drawings[0].iter(SVG + "text")]
    assert any(re.search(r"\[[^\]]+\]|since the step began|ranks", text) for text in texts), f"{title}: no unit on an axis, {texts}"
    for element in drawings[0].iter():
        for key in ("x", "y", "width", "height", "d", "transform"):
            assert not re.search(r"\b(nan|inf)\b", element.get(key) or ""), f"{title}: {key}={element.get(key)}"


def sections_of(tree):
    return {text_of(e) for e in tree.iter("h2")}


def rows_of(tree, caption):
    """Rows of a table as lists of cells."""
    for table in tree.iter("table"):
        if text_of(table.find("caption")) == caption:
            return [list(row) for row in table.find("tbody")]
    return None
