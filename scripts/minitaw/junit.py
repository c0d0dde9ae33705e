# SPDX-License-Identifier: BSD-3-Clause
"""A comparison as JUnit's XML, as Jenkins and GitLab read it: a suite for each case, a test for
each thing compared (docs/compare.md)."""

import math
import xml.etree.ElementTree as xml

from .record import clean

NO_TIME = "0.000000000"
COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}


def add(parent, tag, text="", **attributes):
    shown = {name: clean(value) for name, value in attributes.items()}
    element = xml.SubElement(parent, tag, shown)
    element.text = clean(text)
    return element


def seconds_of(aspect):
    """The time of a test is the step time of the new side, so that a viewer's history shows it."""
    is_time = aspect.name == "time" and math.isfinite(aspect.new)
    return f"{aspect.new:.9f}" if is_time else NO_TIME


def add_test(suite, name, aspect, strict):
    """What is AMBIGUOUS counts as skipped, with `strict` as failed."""
    test = add(
        suite,
        "testcase",
        classname=f"minitaw.{name}",
        name=aspect.name,
        time=seconds_of(aspect),
    )
    figures = ""
    if math.isfinite(aspect.base) or math.isfinite(aspect.new):
        sides = f"base {aspect.base:.9g} {aspect.units}", f"new {aspect.new:.9g} {aspect.units}"
        figures = ", ".join(sides)
    why = f"{aspect.word}: {aspect.reason}" if aspect.word else "nothing to compare"
    if aspect.outcome == "worse" or (aspect.outcome == "ambiguous" and strict):
        add(test, "failure", figures, message=why, type=aspect.word)
    elif aspect.outcome in ("ambiguous", "none"):
        add(test, "skipped", message=why)
    else:
        add(test, "system-out", f"{aspect.word} {figures}")


def add_missing(root, label):
    name = f"missing: {label}"
    suite = add(root, "testsuite", name=name, time="0.0")
    test = add(suite, "testcase", classname=f"minitaw.{name}", name="case", time="0.0")
    message = "MISSING: the base has this case, the new one has not"
    add(test, "failure", message=message, type="MISSING")


def as_junit(comparison, strict):
    root = xml.Element("testsuites", name="minitaw compare")
    for match in comparison.cases:
        name = f"case {match.case.case}: {match.label}"
        suite = add(root, "testsuite", name=name, time=seconds_of(match.aspects["time"]))
        for aspect in match.aspects.values():
            add_test(suite, name, aspect, strict)
    if comparison.slower_together:
        name = "all cases together"
        suite = add(root, "testsuite", name=name, time="0.0")
        add_test(suite, name, comparison.together, strict)
    for label in comparison.missing:
        add_missing(root, label)

    for element in (root, *root):
        for name, tag in COUNTED.items():
            if name != "skipped" or element is not root:
                element.set(name, str(len(list(element.iter(tag)))))
    xml.indent(root)
    text = xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'
