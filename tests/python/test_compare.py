# SPDX-License-Identifier: BSD-3-Clause
"""scripts/compare as a user and a CI job meet it: exit codes, table, JSON alone, a JUnit report that
the usual readers take. What is said of what: test_comparison.py."""

import functools
import json
import math
import re
import xml.etree.ElementTree as xml

import numpy
import programs
import pytest
import samples
from programs import JSON_HEAD, SAMPLE, output_of, says, script

BROKEN = "a<b>&\"c'|d`_ü ☃ [x].h5"  # names of files stand in reports
OFF = ("--threshold", "off")
TWO = [(0, {}, {}), (1, {}, {})]  # runs of the sample


def made(name, *runs, **session):
    return samples.make(SAMPLE, name, runs, session)


def compared(*arguments, code=0):
    return output_of(script("compare", *arguments), code)


refused = functools.partial(programs.refused, name="compare")


def test_bad_options_are_refused():
    a = made("a.h5", *TWO)
    for arguments in ((), (a,), (a, a, a), ("--base", a), (a, a, "--base", a, "--new", a)):
        refused(script("compare", *arguments), "two files")
    for words in (
        "--threshold 0",
        "--threshold nan",
        "--threshold 5",
        "--memory-threshold -1",
        "--confidence 1",
        "--quantile 0.7",
        "--looks 2.5",
        "--junit no/folder.xml",
    ):
        refused(script("compare", a, a, *words.split()), words.split()[0].removeprefix("--junit"))


FASTEST = ([1, 1.01, 1.02, 1.03], [2, 2.04, 2.05, 2.1])
COLUMNS = {
    "memory": ("memory_measured", 1000, "B"),
    "process peak": ("process_peak", 2 << 30, "B"),
    "device memory": ("device_used", 3 << 30, "B"),
    "bytes inside": ("bytes_inside", 70, "B/step"),
    "bytes between": ("bytes_between", 3 << 20, "B/step"),
}


def test_table_json_and_junit_have_the_figures():
    """Four repetitions, whose fastest steps are FASTEST: the interval reaches from the least to the
    largest ratio. Bytes differ by one."""
    for side, name in enumerate(("base.h5", "new.h5")):
        more = {column: value + side for column, value, _ in COLUMNS.values()}
        more |= {"case": 0, "repeats": 4, "verdict": "VALID"}
        steps = [fastest * numpy.outer([3, 1, 2], [1, 0.9, 0.8]) for fastest in FASTEST[side]]
        runs = [(0, more | {"repetition": i}, {"seconds": of}) for i, of in enumerate(steps)]
        made(name, *runs, compiler=name)
    said = json.loads(compared("base.h5", "new.h5", "--json", "--junit", "report.xml", code=1))
    assert [*said][:3] == JSON_HEAD and said["command"] == "compare"
    assert said["outcome"] == "worse" and said["verdict"].startswith("REGRESSION: 1 of 1 case")
    says(said["notes"][0], "compiler = ", "base.h5 -> ", "new.h5")
    (case,), aspects = said["cases"], said["cases"][0]["aspects"]
    assert case["measured_by"] == "repetitions" and case["settings"]["seq"] == 128
    assert case["measurements_base"] == case["measurements_new"] == 4
    for name, (_, value, units) in COLUMNS.items():
        expected = {"units": units, "base": value, "new": value + 1}
        assert aspects[name] | expected == aspects[name], name
    for name, expected in (("first loss", 3), ("last loss", 2.5)):
        assert aspects[name]["base"] == aspects[name]["new"] == expected

    ratios = sorted(new / base for base in FASTEST[0] for new in FASTEST[1])
    ratio = {"low": ratios[0], "estimate": math.sqrt(ratios[7] * ratios[8]), "high": ratios[-1]}
    medians = [math.sqrt(1.01 * 1.02), math.sqrt(2.04 * 2.05)]
    time = aspects["time"]
    assert time["ratio"] == pytest.approx(ratio, rel=1e-9)
    assert [time["base"], time["new"]] == pytest.approx(medians, rel=1e-9)
    text = compared("base.h5", "new.h5", code=1)
    row, closing = (line for line in text.splitlines() if not line.startswith("#"))
    figures = "{estimate:.3f} {low:.3f} {high:.3f}".format(**ratio)
    words = "SLOWER SAME MORE SAME VALID"
    assert row.split() == f"0 tawpipe 3x1 1+2 128 2 6 1.015 2.045 {figures} {words}".split()
    assert closing == f"COMPARISON: {said['verdict']}"
    (suite,) = xml.parse("report.xml").getroot()
    assert float(suite.get("time")) == pytest.approx(medians[1], abs=1e-8)


def test_strict_fails_what_is_ambiguous():
    a = made("a.h5", *TWO)
    closing = compared(a, a).splitlines()[-1]
    assert closing.startswith("COMPARISON: AMBIGUOUS: ")
    assert compared(a, a, "--strict", code=1).endswith(f"{closing}\n")
    assert json.loads(compared(a, a, *OFF, "--json"))["threshold"] is None


def junit(*arguments, code, failures):
    """The report, whose elements and attributes the schemas of Jenkins and GitLab both know, with
    counts of what there is, and failures of these types alone."""
    known = {
        "testsuites": ("name tests failures errors", "testsuite"),
        "testsuite": ("name tests failures errors skipped time", "testcase"),
        "testcase": ("classname name time", "failure skipped system-out"),
        "failure": ("message type", ""),
        "skipped": ("message", ""),
        "system-out": ("", ""),
    }
    compared(*arguments, "--junit", "report.xml", code=code)
    root = xml.parse("report.xml").getroot()
    for element in root.iter():
        attributes, children = map(str.split, known[element.tag])
        assert set(element.attrib) == set(attributes)
        assert {child.tag for child in element} <= set(children)
        assert re.fullmatch(r"\d+\.\d+", element.get("time", "0.0"))
    for suite in (root, *root):
        for name, tag in {"tests": "testcase", "failures": "failure", "skipped": "skipped"}.items():
            assert int(suite.get(name, -1)) in (len([*suite.iter(tag)]), -1), name
    assert [failure.get("type") for failure in root.iter("failure")] == failures
    return root


def test_junit_has_a_suite_for_each_case():
    a = made("a.h5", *TWO)
    same = junit(a, a, *OFF, code=0, failures=[])
    assert [suite.get("name").split(" ")[:3] for suite in same] == [
        ["case", "0:", "tawpipe,"],
        ["case", "1:", "ddp,"],
    ]
    junit(a, a, "--strict", code=1, failures=["AMBIGUOUS"] * 2)
    broken = made(BROKEN, *((base, {"verdict": "INVALID: wrong"}, {}) for base in (0, 1)))
    for failure in junit(a, broken, code=1, failures=["BROKEN"] * 2).iter("failure"):
        assert BROKEN in failure.get("message")
    fail = (*OFF, "--missing", "fail")
    *_, suite = junit(a, made("less.h5", TWO[1]), *fail, code=1, failures=["MISSING"])
    assert suite.get("name").startswith("missing: tawpipe, 3 ranks in groups 1+2, 128 tokens")
