# SPDX-License-Identifier: BSD-3-Clause
"""Links of pages lead to files and headings, and the guides to the code name what the code has."""

import re

import pytest
from programs import REPOSITORY, call, output_of

BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PAGES = [
    page
    for page in REPOSITORY.rglob("*.md")
    if page.relative_to(REPOSITORY).parts[0] not in ("build", "out")
]


def anchors_of(text):
    """As GitHub makes them of headings: small letters, no signs, lines for spaces."""
    for heading in re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        yield re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")


def broken_links(page):
    text = BLOCK.sub("", page.read_text())
    for name, anchor in re.findall(r"\]\((?!\w+:)([^)\s#]*)#?([^)\s]*)\)", text):
        target = page.parent / name if name else page
        if not target.exists():
            yield name
        elif anchor and target.suffix == ".md":
            if anchor not in anchors_of(target.read_text()):
                yield f"{name}#{anchor}"


def test_links_lead_somewhere():
    assert len(PAGES) > 30
    assert {page: [*broken_links(page)] for page in PAGES if any(broken_links(page))} == {}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/extending.md"])
def test_guides_name_what_the_code_has(page):
    sources = [p for f in ("src", "miniapp", "tests") for p in (REPOSITORY / f).rglob("*.[ch]pp")]
    code = " ".join(source.read_text() for source in sources)
    text = (REPOSITORY / page).read_text()
    known = set(re.findall(r"\w+", code + " ".join(BLOCK.findall(text))))
    said = BLOCK.sub("", text)
    functions = set(re.findall(r"`(?:\w+(?:::|\.))*(\w+)\(", said))
    files = re.findall(r"`((?:src|miniapp|tests)/[\w/.{},]*)`", said)
    assert functions and functions <= known and files
    output_of(call("bash", "-c", f"ls -d {' '.join(files)}", cwd=REPOSITORY))  # braces expand
