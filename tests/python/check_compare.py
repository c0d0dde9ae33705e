# SPDX-License-Identifier: BSD-3-Clause
"""scripts/compare as a user and a CI job meet it: exit codes, JSON alone, a JUnit report that the
usual readers take. Called with the program too, which measures."""

import functools
import json
import re
import subprocess
import sys
import xml.etree.ElementTree

from support import FOLDER, REPOSITORY, accepted, process, run_checks
from support import refused as refused_by
import programs

PROGRAM = sys.argv[4]
BROKEN, PLAIN = "a<b>&\"c'|d`_*.h5", "ü ☃ [x](y).h5"  # names of files stand in reports
DECK = """schedule = "serial"
layers = 1
hidden = 16
head_dim = 8
vocab = 256
seq = [8, 12]
steps = 8
"""
OFF = ("--threshold", "off")


def measure(name, code=0, **settings):
    (FOLDER / name).unlink(missing_ok=True)
    command = [PROGRAM, "run", "deck.toml", "-o", name, *programs.settings(**settings)]
    done = programs.call(*command, cwd=FOLDER)
    assert done.returncode == code, programs.told(done)
    return name


compared, refused = functools.partial(accepted, "compare"), functools.partial(refused_by, "compare")
(FOLDER / "deck.toml").write_text(DECK)
A = measure(PLAIN)


def check_refusals():
    for arguments in ((), (A,), (A, A, A), ("--base", A), (A, A, "--base", A, "--new", A)):
        refused(*arguments, says="two files")
    for words in (
        "--threshold 0",
        "--threshold nan",
        "--threshold 5",
        "--memory-threshold -1",
        "--confidence 1",
        "--quantile 0.7",
        "--looks 2.5",
    ):
        refused(A, A, *words.split(), says=words.split()[0])
    refused(A, A, "--junit", "no/such/folder.xml", says="cannot be written")


def check_text():
    text = compared(A, A, *OFF)
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(rows) == 3 and rows[-1].startswith("COMPARISON: SAME: "), text
    both = compared("--base", A, A, "--new", A, A, "--looks", 3)
    assert "too few pairs of files (2)" in both and "shared by 3 looks" in both
    other = measure("rate.h5", learning_rate=0.1)  # changes the last loss, but not the first
    allowed = compared(A, other, "--allow", "learning_rate", *OFF)
    assert "learning_rate = 0.001 -> 0.1, as allowed" in allowed


def check_missing():
    """A case that the new file lacks fails where it is told to."""
    less, fail = measure("less.h5", seq=8), (*OFF, "--missing", "fail")
    label = "serial, 1 rank in groups 1, 12 tokens, B 1, M 1"
    assert f"# only in the base: {label}" in compared(A, less, *OFF).splitlines()
    found = json.loads(compared(A, less, *fail, "--json", code=1))
    names = ("command", "base", "outcome", "only_base", "only_new")
    assert [found[name] for name in names] == ["compare", A, "worse", [label], []], found
    assert [case["settings"]["seq"] for case in found["cases"]] == [8], found
    suite = junit(A, less, *fail, code=1, failures=["MISSING"])[-1]
    assert suite.get("name") == f"missing: {label}"


# Elements that the schemas of Jenkins and GitLab both know: attributes, and elements within.
KNOWN = {
    "testsuites": ("name tests failures errors", "testsuite"),
    "testsuite": ("name tests failures errors skipped time", "testcase"),
    "testcase": ("classname name time", "failure skipped system-out"),
    "failure": ("message type", ""),
    "skipped": ("message", ""),
    "system-out": ("", ""),
}


def junit(*arguments, code, failures):
    """The report: all attributes there, numbers that are numbers and count what they say, failures
    of this type alone."""
    compared(*arguments, "--junit", "report.xml", code=code)
    root = xml.etree.ElementTree.parse(FOLDER / "report.xml").getroot()
    for element in root.iter():
        attributes, children = map(str.split, KNOWN[element.tag])
        assert set(element.attrib) == set(attributes), element.attrib
        assert {child.tag for child in element} <= set(children), element.attrib
        assert re.fullmatch(r"\d+\.\d+", element.get("time", "0.0"))
    for suite in (root, *root):
        for name, tag in {"tests": "testcase", "failures": "failure", "skipped": "skipped"}.items():
            assert int(suite.get(name, -1)) in (len([*suite.iter(tag)]), -1), (suite.attrib, name)
    for suite in root:
        assert len({test.get("name") for test in suite}) == len(suite), "names are unique"
    assert [failure.get("type") for failure in root.iter("failure")] == failures
    return root


def check_junit():
    same = junit(A, A, *OFF, code=0, failures=[])
    assert ["8 tokens" in suite.get("name") for suite in same] == [True, False]
    measure(BROKEN, steps=2, code=1)
    for failure in junit(A, BROKEN, code=1, failures=["BROKEN"] * 2).iter("failure"):
        assert BROKEN in failure.get("message"), "names come back as they are"
    junit("--base", A, A, "--new", A, A, "--strict", code=1, failures=["AMBIGUOUS"] * 2)


def check_full_disk():
    with open("/dev/full", "w") as full:
        done = process("compare", A, A, "--json", stdout=full)
    programs.refused(done, "standard output", "No space left", name="compare", begun=True)


def check_pipe():
    """A reader that has seen enough: the end is quiet."""
    called = subprocess.Popen(
        [sys.executable, REPOSITORY / "scripts/compare", A, A, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    called.stdout.close()
    complaint = called.stderr.read()
    assert called.wait() in (0, -13) and complaint == b"", (called.returncode, complaint)


run_checks(globals())
