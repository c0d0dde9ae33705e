# SPDX-License-Identifier: BSD-3-Clause
"""The options of scripts/test and what it prints at its end, with stand-ins for cmake and ctest.
Called with the repository and a folder to write to."""

import os
import pathlib
import re
import shutil
import sys

import programs

REPOSITORY, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
CALLS = FOLDER / "calls.txt"
STAND_INS = {
    "cmake": f'echo "cmake $*" >>{CALLS}',
    # two slow tests; a stage named in $FAILS fails
    "ctest": rf"""echo "ctest $*" >>{CALLS}
case "$*" in
  *-N*) printf '  Test  #1: one\n  Test #12: two\n\nTotal Tests: 2\n'; exit ;;
  *"--preset $FAILS "*) echo '50% tests passed, 1 tests failed out of 2'; exit 8 ;;
  *--preset*) echo "100% tests passed, 0 tests failed out of $(echo "$2" | wc -c)" ;;
esac""",
}


def make_tree():
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(REPOSITORY / "scripts", FOLDER / "scripts")
    (FOLDER / "bin").mkdir()
    for name, text in STAND_INS.items():
        (FOLDER / "bin" / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (FOLDER / "bin" / name).chmod(0o755)


def call(*arguments, code=0, fails="none"):
    """What it prints on standard output and how it calls ctest to test."""
    CALLS.unlink(missing_ok=True)
    done = programs.call(
        FOLDER / "scripts/test",
        *arguments,
        env={
            **os.environ,
            "PATH": f"{FOLDER / 'bin'}:{os.environ['PATH']}",
            "minitaw_inside": "yes",
            "MINITAW_JOBS": "3",
            "FAILS": fails,
        },
    )
    assert done.returncode == code, f"{arguments}: exit {done.returncode}: {done.stderr}"
    calls = CALLS.read_text(encoding="utf-8") if CALLS.exists() else ""
    tests = [line for line in calls.splitlines() if line.startswith("ctest") and " -N" not in line]
    return done.stdout.splitlines(), tests, done.stderr


def stages_are_selected():
    _, tests, _ = call()
    assert tests == ["ctest --preset host -j 3"], tests
    _, tests, _ = call("asan", "tsan", "--", "-R", "comm")
    assert tests == [
        "ctest --preset asan -L asan -E [.][345678]$ -R comm -j 3",
        "ctest --preset tsan -L tsan -E [.][1345678]$ -R comm -j 3",
    ], tests


def quick_names_what_it_leaves_out():
    out, tests, _ = call("--quick")
    assert tests == ["ctest --preset host -LE ^slow$ -j 3"], tests
    assert "--quick left out 2 tests of host: one two" in out, out
    out, _, _ = call()
    assert not [line for line in out if "left out" in line], out


def its_end_tells_times_and_the_summary():
    out, _, _ = call("host", "asan")
    for stage in ("host", "asan"):
        times = rf"{stage} took: set-up \d+ s, build \d+ s, tests \d+ s"
        assert any(re.fullmatch(times, line) for line in out[-3:]), out
    assert out[-1] == "100% tests passed, 0 tests failed out of 5", out
    out, _, err = call("host", "asan", "tsan", code=1, fails="asan")
    assert out[-1] == "50% tests passed, 1 tests failed out of 2", out
    assert "stage asan failed; its log is build/asan/ctest.log" in err, err


def what_it_does_not_know_is_refused():
    for word in ("--slow", "cuda"):
        _, tests, err = call(word, code=1)
        assert f"'{word}'" in err and "--quick, host, asan or tsan" in err and not tests, err


make_tree()
stages_are_selected()
quick_names_what_it_leaves_out()
its_end_tells_times_and_the_summary()
what_it_does_not_know_is_refused()
