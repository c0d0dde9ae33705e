# SPDX-License-Identifier: BSD-3-Clause
"""A comparison as JUnit's XML, as Jenkins and GitLab read it: a suite for each case, a test for
each thing compared (docs/compare.md)."""

import math
import xml.etree.ElementTree as xml

from .aspects import Aspect
from .outputs import xml_text
from .record import clean

MISSING = Aspect("case", word="MISSING", reason="the base has this case, the new one has not")
NOT_MEASURED = Aspect("stage", reason="it was to be measured, and was not")
COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}


def add(parent, tag, text="", **attributes):
    shown = {name: clean(value) for name, value in attributes.items()}
    element = xml.SubElement(parent, tag, shown)
    element.text = clean(text)
    return element


def seconds_of(aspect):
    """The time of a test is the step time of the new side, so that a viewer's history shows it."""
    return f"{aspect.new if aspect.name == 'time' and aspect.new > 0 else 0:.9f}"


def add_test(suite, aspect):
    """What is AMBIGUOUS counts as skipped."""
    where = f"minitaw.{suite.get('name')}"
    test = add(suite, "testcase", classname=where, name=aspect.name, time=seconds_of(aspect))
    figures = ""
    if math.isfinite(aspect.base) or math.isfinite(aspect.new):
        figures = f"base {aspect.base:.9g} {aspect.units}, new {aspect.new:.9g} {aspect.units}"
    why = (
        f"{aspect.word}: {aspect.reason}" if aspect.word else aspect.reason or "nothing to compare"
    )
    if aspect.outcome == "worse":
        add(test, "failure", figures, message=why, type=aspect.word)
    elif aspect.outcome in ("ambiguous", "none"):
        add(test, "skipped", message=why)
    else:
        add(test, "system-out", f"{aspect.word} {figures}")


def as_junit(comparison):
    suites = {
        f"case {match.case.case}: {match.label}": match.aspects.values()
        for match in comparison.cases
    }
    if comparison.together:
        suites["all cases together"] = [comparison.together]
    suites |= {f"missing: {label}": [MISSING] for label in comparison.missing}
    suites |= {f"not measured: {name}": [NOT_MEASURED] for name in comparison.rules.not_measured}
    root = xml.Element("testsuites", name="minitaw compare")
    for name, aspects in suites.items():
        suite = add(root, "testsuite", name=name, time=max(map(seconds_of, aspects)))
        for aspect in aspects:
            add_test(suite, aspect)
    for element in (root, *root):
        for name, tag in COUNTED.items():
            if name != "skipped" or element is not root:
                element.set(name, str(len(list(element.iter(tag)))))
    return xml_text(root)
