# SPDX-License-Identifier: BSD-3-Clause
"""scripts/compare as a user and a CI job meet it: exit codes, JSON alone, a JUnit report that the
usual readers take. Called with the program too, which measures."""

import functools
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

from support import FOLDER, REPOSITORY, accepted, process
from support import refused as refused_by
import programs

PROGRAM = sys.argv[4]
BROKEN, PLAIN = "a<b>&\"c'|d`_*.h5", "ü ☃ [x](y).h5"  # names of files stand in reports
DECK = (
    'schedule = "serial"\nlayers = 1\nhidden = 16\nhead_dim = 8\nvocab = 256\nseq = [8, 12]\n'
    "steps = 8\n"
)


def measure(name, *overrides, code=0):
    (FOLDER / name).unlink(missing_ok=True)
    command = [
        PROGRAM,
        "run",
        "deck.toml",
        "-o",
        name,
        *(f"--set={override}" for override in overrides),
    ]
    done = programs.call(*command, cwd=FOLDER)
    assert done.returncode == code, done.stdout + done.stderr
    return name


compared, refused = functools.partial(accepted, "compare"), functools.partial(refused_by, "compare")


def check_refusals(a):
    for arguments in ((), (a,), (a, a, a), ("--base", a), (a, a, "--base", a, "--new", a)):
        refused(*arguments, says="two files")
    for option, bad in (
        ("--threshold", "0"),
        ("--threshold", "nan"),
        ("--threshold", "0.5"),
        ("--threshold", "5"),
        ("--confidence", "1"),
        ("--confidence", "0.2"),
        ("--quantile", "0.7"),
        ("--memory-threshold", "-1"),
        ("--threshold", "much"),
        ("--looks", "0"),
        ("--looks", "2.5"),
        ("--bogus", ""),
    ):
        refused(a, a, option, bad, says=option)
    for arguments, says in (
        ((a, "missing.h5"), "missing.h5"),
        ((a, "deck.toml"), "deck.toml"),
        ((a, a, "--allow", "dtyp"), "choose from"),
        ((a, a, "--junit", "no/such/folder.xml"), "cannot be written"),
        ((a, measure("longer.h5", "seq=16")), "no case in common"),
    ):
        refused(*arguments, says=says)
    other = measure("rate.h5", "learning_rate=0.1")  # changes the last loss, but not the first
    refused(a, other, says="--allow learning_rate")
    assert "learning_rate = 0.001 -> 0.1, as allowed" in compared(
        a, other, "--allow", "learning_rate", "--threshold", "off", code=0
    )


def check_text(a):
    text = compared(a, a, "--threshold", "off", code=0)
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(rows) == 3, text
    assert rows[-1] == "COMPARISON: SAME: in what was compared; no step times were", text
    assert "one repetition" in text, text  # two cases and the closing line
    both = compared("--base", a, a, "--new", a, a, code=0)
    assert "COMPARISON: AMBIGUOUS" in both and "2 pairs of files are too few" in both
    compared("--base", a, a, "--new", a, a, "--strict", code=1)
    assert "shared by 3 looks" in compared(a, a, "--looks", "3", code=0)


def check_json(a):
    found = json.loads(compared(a, a, "--json", "--threshold", "off", code=0))
    assert found["outcome"] == "same" and len(found["cases"]) == 2
    assert [case["settings"]["seq"] for case in found["cases"]] == [8, 12] and found["base"] == a


def check_missing(a):
    """A case that the new file lacks is noted, and fails where it is told to."""
    less = measure("less.h5", "seq=8")
    note = "# only in the base: serial, 1 rank in groups 1, 12 tokens, B 1, M 1"
    for options, code, closing in (
        ((), 0, "SAME"),
        (
            ("--missing", "fail"),
            1,
            "REGRESSION: 1 of the base's cases missing in the new one, first serial,",
        ),
    ):
        lines = compared(a, less, "--threshold", "off", *options, code=code).splitlines()
        assert note in lines and lines[-1].startswith(f"COMPARISON: {closing}"), lines
    assert (
        note.replace("base", "new one")
        in compared(less, a, "--threshold", "off", "--missing", "fail").splitlines()
    )
    found = json.loads(
        compared(a, less, "--threshold", "off", "--missing", "fail", "--json", code=1)
    )
    assert found["outcome"] == "worse"
    assert found["only_base"] == [note[20:]]
    assert found["only_new"] == []
    missing = junit(
        a, less, "--threshold", "off", "--missing", "fail", code=1, failures=["MISSING"]
    )
    assert missing[-1].get("name") == f"missing: {note[20:]}"


# Elements and attributes that the schemas of Jenkins and GitLab both know.
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
    "skipped": {"message"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "skipped", "system-out"},
}


def junit(*arguments, code, failures):
    """The report: all attributes there, numbers that are numbers and count what they say, failures
    of this type alone."""
    compared(*arguments, "--junit", "report.xml", code=code)
    root = xml.etree.ElementTree.parse(FOLDER / "report.xml").getroot()
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag], element.attrib
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set()), element.attrib
        assert re.fullmatch(r"\d+\.\d+", element.get("time", "0.0"))
    for suite in (root, *root):
        for name, tag in {"tests": "testcase", "failures": "failure", "skipped": "skipped"}.items():
            assert int(suite.get(name, -1)) in (len([*suite.iter(tag)]), -1), (suite.attrib, name)
    for suite in root:
        assert len({test.get("name") for test in suite}) == len(
            suite
        ), "names within a suite are unique"
    assert [failure.get("type") for failure in root.iter("failure")] == failures
    return root


def check_junit(a):
    same = junit(a, a, "--threshold", "off", code=0, failures=[])
    for suite, seq in zip(same, (8, 12), strict=True):
        assert f"{seq} tokens" in suite.get("name"), suite.get("name")
    broken = junit(a, BROKEN, code=1, failures=["BROKEN"] * 2)
    assert all(
        BROKEN in failure.get("message") for failure in broken.iter("failure")
    ), "names come back as they are"
    junit("--base", a, a, "--new", a, a, "--strict", code=1, failures=["AMBIGUOUS"] * 2)


def check_full_disk(a):
    with open("/dev/full", "w") as full:
        done = process("compare", a, a, "--json", stdout=full)
    programs.refused(done, "standard output", "No space left", name="compare", begun=True)


def check_pipe(a):
    """A reader that has seen enough: the end is quiet."""
    called = subprocess.Popen(
        [sys.executable, REPOSITORY / "scripts/compare", a, a, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    called.stdout.close()
    complaint = called.stderr.read()
    assert called.wait() in (0, -13) and complaint == b"", (called.returncode, complaint)


def check_help(_):
    """Every script explains itself."""
    for path in sorted((REPOSITORY / "scripts").iterdir()):
        if path.is_file() and os.access(path, os.X_OK):
            done = process(path.name, "--help", stdin=subprocess.DEVNULL)
            assert done.returncode == 0, (path, done)
            assert path.name in done.stdout, (path, done)
            assert len(done.stdout.splitlines()) > 1, (path, done)


(FOLDER / "deck.toml").write_text(DECK)
FIRST = measure(PLAIN)
measure(BROKEN, "steps=2", code=1)
for check in (
    check_text,
    check_json,
    check_missing,
    check_junit,
    check_refusals,
    check_full_disk,
    check_pipe,
    check_help,
):
    check(FIRST)
