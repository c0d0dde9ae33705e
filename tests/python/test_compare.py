# SPDX-License-Identifier: BSD-3-Clause
"""scripts/compare as a user and a CI job meet it: exit codes, table, JSON alone, a JUnit report that
usual readers take. What is said of what: test_comparison.py."""

import json
import math
import pathlib
import xml.etree.ElementTree as xml

import numpy
import pytest
from programs import JSON_HEAD, output_of, refuses, says, script
from samples import made

BROKEN = "a<b>&\"c'|d`_ü ☃ [x].h5"  # names of files stand in reports
TWO = [dict(base=0), dict(base=1)]  # runs of the sample
REFUSED = """
a.h5: two files
a.h5 a.h5 a.h5: two files
--base a.h5: two files
a.h5 a.h5 --base a.h5 --new a.h5: two files
a.h5 a.h5 --threshold=nan: threshold
a.h5 a.h5 --threshold=5: threshold
a.h5 a.h5 --quantile=0.7: quantile
a.h5 a.h5 --looks=2.5: looks
a.h5 a.h5 --junit=a.h5/x.xml: a.h5/x.xml cannot be written
"""


def compared(*arguments, code=0):
    return output_of(script("compare", *arguments), code)


def refused_with(*arguments):
    done = script("compare", *arguments)
    assert done.returncode == 2
    return done.stderr


def test_bad_options_are_refused():
    made("a.h5", *TWO)
    refuses("compare", REFUSED)


FASTEST = ([1, 1.01, 1.02, 1.03], [2, 2.04, 2.05, 2.1])
BYTES = "memory_measured process_peak device_used bytes_inside bytes_between".split()


def test_a_refusal_is_in_the_files_too():
    """As XML and Markdown have it, whatever stands in it."""
    sentence = refused_with("x<&>.h5", "x<&>.h5", "--junit=new/a.xml", "--markdown=new/a.md")
    (error,) = xml.parse("new/a.xml").getroot().iter("error")
    assert f"compare: {error.get('message')}\n" == sentence
    assert "x&lt;&amp;&gt;.h5 cannot be read" in pathlib.Path("new/a.md").read_text()


def test_table_json_and_junit_have_the_figures():
    """The interval of four repetitions reaches from the least to the largest ratio. Bytes differ by
    one."""
    for side, name in enumerate(("base.h5", "new.h5")):
        more = {column: 1000 * i + side for i, column in enumerate(BYTES, 1)}
        more |= dict(case=0, repeats=4, verdict="VALID")
        steps = [fastest * numpy.outer([3, 1, 2], [1, 0.9, 0.8]) for fastest in FASTEST[side]]
        runs = [more | dict(repetition=i, seconds=of) for i, of in enumerate(steps)]
        made(name, *runs, compiler=name)
    files = "base.h5", "new.h5"
    said = json.loads(compared(*files, "--json", "--junit=report.xml", code=1))
    assert [*said][:3] == JSON_HEAD
    assert said["outcome"] == "worse"
    says(said["notes"][0], "compiler = ", "base.h5 -> ", "new.h5")
    (case,), aspects = said["cases"], said["cases"][0]["aspects"]
    assert case["measurements_base"] == case["measurements_new"] == 4
    assert case["measured_by"] == "repetitions"
    assert case["settings"]["seq"] == 128
    medians = [math.sqrt(1.01 * 1.02), math.sqrt(2.04 * 2.05)]
    sizes = [[1000 * i, 1000 * i + 1] for i in range(1, 6)]
    sides = [[one["base"], one["new"]] for one in aspects.values() if "base" in one]
    assert sides == [pytest.approx(medians, rel=1e-9), *sizes, [3, 3], [2.5, 2.5]]
    ratios = sorted(new / base for base in FASTEST[0] for new in FASTEST[1])
    ratio = dict(low=ratios[0], estimate=math.sqrt(ratios[7] * ratios[8]), high=ratios[-1])
    assert aspects["time"]["ratio"] == pytest.approx(ratio, rel=1e-9)
    *_, row, closing = (line for line in compared(*files, code=1).splitlines() if line[0] != "#")
    words = "1.015 2.045 {estimate:.3f} {low:.3f} {high:.3f} SLOWER SAME MORE SAME VALID"
    assert row.split() == f"0 tawpipe 3x1 1+2 128 2 6 {words.format(**ratio)}".split()
    assert closing == f"COMPARISON: {said['verdict']}"
    (suite,) = xml.parse("report.xml").getroot()
    assert float(suite.get("time")) == pytest.approx(medians[1], abs=1e-8)
    compared(*files, "--markdown=report.md", code=1)
    word, names, lines, *cells = (
        pathlib.Path("report.md").read_text().replace("\n\n", "\n").split("\n")
    )
    assert word == f"**REGRESSION**{said['verdict'].removeprefix('REGRESSION')}"
    assert [one.strip() for one in cells[0].split("|")[1:-1]] == row.split()
    assert names.count("|") == lines.count("|") == cells[0].count("|")


# Attributes that the schemas of Jenkins and GitLab both know, and what counts elements.
KNOWN = {
    "testsuites": "name tests failures errors",
    "testsuite": "name tests failures errors skipped time",
    "testcase": "classname name time",
    "failure": "message type",
    "skipped": "message",
    "system-out": "",
}
COUNTS = {"tests": "testcase", "failures": "failure", "skipped": "skipped"}


def junit(*arguments, code, failures):
    """The report, with failures of these types alone; and the closing line."""
    text = compared(*arguments, "--junit", "report.xml", code=code)
    root = xml.parse("report.xml").getroot()
    for element in root.iter():
        assert set(element.attrib) == set(KNOWN[element.tag].split())
        assert float(element.get("time", 0)) >= 0
        for name, tag in COUNTS.items():
            assert int(element.get(name, -1)) in (len([*element.iter(tag)]), -1), name
    assert [failure.get("type") for failure in root.iter("failure")] == failures
    return root, text.splitlines()[-1]


def test_junit_has_a_suite_for_each_case():
    files = "a.h5", made("a.h5", *TWO)
    suites, closing = junit(*files, code=3, failures=[])
    names = [suite.get("name").partition(", ")[0] for suite in suites]
    assert names == ["case 0: tawpipe", "case 1: ddp"]
    assert closing.startswith("COMPARISON: AMBIGUOUS: ")
    made(BROKEN, *(run | {"verdict": "INVALID: wrong"} for run in TWO))
    broken, _ = junit("a.h5", BROKEN, code=1, failures=["BROKEN"] * 2)
    assert all(BROKEN in failure.get("message") for failure in broken.iter("failure"))


def test_a_case_that_is_missing_can_fail():
    files = made("a.h5", *TWO), made("less.h5", TWO[1])
    rules = "--threshold=off", "--missing=fail"
    (*_, suite), _ = junit(*files, *rules, code=1, failures=["MISSING"])
    assert suite.get("name").startswith("missing: tawpipe, 3 ranks in groups 1+2, 128 tokens")
    assert json.loads(compared(*files, *rules, "--json", code=1))["threshold"] is None
