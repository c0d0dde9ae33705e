# SPDX-License-Identifier: BSD-3-Clause
"""Every test that the table of figures in tests/README.md names exists: in ctest's list, in the C++
sources, or as a Python function."""

import pathlib
import re
import sys

import programs

TESTS, BUILD = map(pathlib.Path, sys.argv[1:])


def named():
    """Words of the last column: Suite.Test (or Suite.*), and names of ctests and of Python
    functions."""
    rows = [
        line for line in (TESTS / "README.md").read_text().splitlines() if line.startswith("| ")
    ][
        1:
    ]  # not the heading
    text = " ".join(row.strip().strip("|").split("|")[-1] for row in rows)
    return set(re.findall(r"\b([A-Z]\w+)\.(\w+|\*)", text)), set(
        re.findall(r"(?<![./\w])[a-z]+(?:_[a-z_]+)", text)
    )


def existing():
    cpp_text, python_text = (
        "".join(path.read_text() for path in TESTS.rglob(names)) for names in ("*.[ch]pp", "*.py")
    )
    cpp = set(re.findall(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", cpp_text))
    listed = programs.call("ctest", "--test-dir", BUILD, "-N", check=True).stdout
    ctests = {name.split(".")[0] for name in re.findall(r"Test +#\d+: (\S+)", listed)}
    return cpp | {(suite, "*") for suite, _ in cpp}, ctests | set(
        re.findall(r"def (\w+)\(", python_text)
    )


def every_named_test_exists():
    (tests, words), (known_tests, known_words) = named(), existing()
    assert len(tests) > 20 and len(words) > 20, "the table was not read"
    missing = sorted(f"{suite}.{test}" for suite, test in tests - known_tests) + sorted(
        words - known_words
    )
    assert not missing, f"tests/README.md names tests that do not exist: {', '.join(missing)}"


every_named_test_exists()
