"""scripts/compare as a user and a CI job meet it: exit codes, JSON alone, a JUnit report that the usual readers take, Markdown that shows
names as they are. Called with the program too, which measures."""

import functools
import json
import re
import subprocess
import sys
import xml.etree.ElementTree
from support import FOLDER, accepted
from support import refused as refused_by


PROGRAM = sys.argv[4]
BROKEN = "a<b>&\"c'|d`_*.h5"  # names of files stand in reports
PLAIN = "ü ☃ [x](y).h5"
DECK = """
schedule = "serial"
layers = 1
hidden = 16
head_dim = 8
vocab = 256
seq = [8, 12]
steps = 8
"""


def measure(name, *overrides, code=0):
    (FOLDER / name).unlink(missing_ok=True)
    command = [PROGRAM, "run", "deck.toml", "-o", name, *(f"--set={override}" for override in overrides)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return name


compared, refused = functools.partial(accepted, "compare"), functools.partial(refused_by, "compare")


def check_refusals(a):
    refused(says="two files")
    refused(a, says="two files")
    refused(a, a, a, says="two files")
    refused("--base", a, says="two files")
    refused(a, a, "--base", a, "--new", a, says="two files")
    refused(a, "missing.h5", says="missing.h5")
    refused(a, "deck.toml", says="deck.toml")
    refused(a, a, "--bogus", says="--bogus")
    refused(a, a, "--allow", "dtyp", says="did you mean dtype")
    for option, bad in (("--threshold", "0"), ("--threshold", "nan"), ("--threshold", "0.5"), ("--threshold", "5"), ("--confidence", "1"), ("--confidence", "0.2"),
                        ("--quantile", "0.7"), ("--memory-threshold", "-1"), ("--threshold", "much")):
        refused(a, a, option, bad, says=option)
    refused(a, a, "--junit", "no/such/folder.xml", says="cannot be written")
    refused(a, measure("longer.h5", "seq=16"), says="no case in common")
    other = measure("rate.h5", "learning_rate=0.1")  # changes the last loss, but not the first
    refused(a, other, says="--allow learning_rate")
    assert "learning_rate = 0.001 -> 0.1, as allowed" in compared(a, other, "--allow", "learning_rate", "--threshold", "off", code=0)


def check_text(a):
    text = compared(a, a, "--threshold", "off", code=0)
    assert text.splitlines()[-1] == "COMPARISON: SAME", text
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(rows) == 3, text  # two cases and the closing line
    assert "one repetition" in text
    both = compared("--base", a, a, "--new", a, a, code=0)
    assert "COMPARISON: AMBIGUOUS" in both and "at least 6" in both
    compared("--base", a, a, "--new", a, a, "--strict", code=1)


def check_json(a):
    found = json.loads(compared(a, a, "--json", "--threshold", "off", code=0))
    assert found["outcome"] == "same" and len(found["cases"]) == 2
    assert [case["settings"]["seq"] for case in found["cases"]] == [8, 12] and found["base"] == a
    ratio = found["cases"][0]["aspects"]["time"]["ratio"]
    assert ratio["low"] <= ratio["estimate"] <= ratio["high"]


ATTRIBUTES = {"testsuites": {"name", "tests", "failures", "errors"},
              "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
              "testcase": {"classname", "name", "time"}, "failure": {"message", "type"}, "skipped": {"message"},
              "system-out": set()}
CHILDREN = {"testsuites": {"testsuite"}, "testsuite": {"testcase"}, "testcase": {"failure", "skipped", "system-out"}}


def check_element(element):
    """Elements and attributes that the schemas of Jenkins and GitLab both know, all of them there; numbers that are numbers."""
    assert set(element.attrib) == ATTRIBUTES[element.tag], f"{element.tag}: {element.attrib}"
    for name in ("tests", "failures", "errors", "skipped"):
        assert name not in element.attrib or element.tag == "skipped" or element.attrib[name].isdigit()
    assert "time" not in element.attrib or re.fullmatch(r"\d+\.\d+", element.attrib["time"])
    for child in element:
        assert child.tag in CHILDREN.get(element.tag, set()), f"<{child.tag}> in <{element.tag}>"
        check_element(child)


def check_counts(suite):
    tests = suite.findall("testcase")
    assert len(tests) == int(suite.get("tests"))
    assert sum(test.find("failure") is not None for test in tests) == int(suite.get("failures"))
    assert sum(test.find("skipped") is not None for test in tests) == int(suite.get("skipped"))
    assert len({test.get("name") for test in tests}) == len(tests), "names within a suite are unique"


def check_junit(a):
    compared(a, a, "--threshold", "off", "--junit", "same.xml", code=0)
    root = xml.etree.ElementTree.parse(FOLDER / "same.xml").getroot()
    check_element(root)
    assert root.get("failures") == "0"
    for suite, seq in zip(root, (8, 12), strict=True):
        check_counts(suite)
        assert f"{seq} tokens" in suite.get("name"), suite.get("name")
    compared(a, BROKEN, "--junit", "broken.xml", code=1)
    broken = xml.etree.ElementTree.parse(FOLDER / "broken.xml").getroot()
    check_element(broken)
    failures = list(broken.iter("failure"))
    assert broken.get("failures") == "2" and [failure.get("type") for failure in failures] == ["BROKEN"] * 2
    assert all(BROKEN in failure.get("message") for failure in failures), "names come back as they are"
    compared("--base", a, a, "--new", a, a, "--strict", "--junit", "strict.xml", code=1)
    strict = xml.etree.ElementTree.parse(FOLDER / "strict.xml").getroot()
    check_element(strict)
    assert strict.get("failures") == "2" and [failure.get("type") for failure in strict.iter("failure")] == ["AMBIGUOUS"] * 2


def check_markdown(a):
    """The text, where no name can be read as more than text."""
    said = compared(a, BROKEN, "--markdown", "table.md", code=1)
    head, rest = (FOLDER / "table.md").read_text(encoding="utf-8").split("\n\n", 1)
    assert head == "### miniTaw: REGRESSION" and [line[4:] for line in rest.splitlines()] == said.splitlines()
    assert all(line.startswith("    ") for line in rest.splitlines())


(FOLDER / "deck.toml").write_text(DECK)
FIRST = measure(PLAIN)
measure(BROKEN, "steps=2", code=1)
check_text(FIRST)
check_json(FIRST)
check_junit(FIRST)
check_markdown(FIRST)
check_refusals(FIRST)
