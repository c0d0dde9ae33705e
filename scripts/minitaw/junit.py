# SPDX-License-Identifier: BSD-3-Clause
"""A comparison as JUnit's XML, as Jenkins and GitLab read it: a suite for each case, a test for
each thing compared (docs/compare.md)."""

import math
import xml.etree.ElementTree as xml

from .aspects import Aspect
from .record import clean

MISSING = Aspect("case", word="MISSING", reason="the base has this case, the new one has not")
COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}


def add(parent, tag, text="", **attributes):
    shown = {name: clean(value) for name, value in attributes.items()}
    element = xml.SubElement(parent, tag, shown)
    element.text = clean(text)
    return element


def seconds_of(aspect):
    """The time of a test is the step time of the new side, so that a viewer's history shows it."""
    return f"{aspect.new if aspect.name == 'time' and aspect.new > 0 else 0:.9f}"


def add_test(suite, aspect, strict):
    """What is AMBIGUOUS counts as skipped, with `strict` as failed."""
    where = f"minitaw.{suite.get('name')}"
    test = add(suite, "testcase", classname=where, name=aspect.name, time=seconds_of(aspect))
    figures = ""
    if math.isfinite(aspect.base) or math.isfinite(aspect.new):
        figures = f"base {aspect.base:.9g} {aspect.units}, new {aspect.new:.9g} {aspect.units}"
    why = f"{aspect.word}: {aspect.reason}" if aspect.word else "nothing to compare"
    if aspect.outcome == "worse" or (aspect.outcome == "ambiguous" and strict):
        add(test, "failure", figures, message=why, type=aspect.word)
    elif aspect.outcome in ("ambiguous", "none"):
        add(test, "skipped", message=why)
    else:
        add(test, "system-out", f"{aspect.word} {figures}")


def as_junit(comparison, strict):
    suites = {
        f"case {match.case.case}: {match.label}": match.aspects.values()
        for match in comparison.cases
    }
    if comparison.slower_together:
        suites["all cases together"] = [comparison.together]
    suites |= {f"missing: {label}": [MISSING] for label in comparison.missing}
    root = xml.Element("testsuites", name="minitaw compare")
    for name, aspects in suites.items():
        suite = add(root, "testsuite", name=name, time=max(map(seconds_of, aspects)))
        for aspect in aspects:
            add_test(suite, aspect, strict)
    for element in (root, *root):
        for name, tag in COUNTED.items():
            if name != "skipped" or element is not root:
                element.set(name, str(len(list(element.iter(tag)))))
    xml.indent(root)
    text = xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'
