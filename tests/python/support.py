# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of scripts/minitaw share: the command line of a test, calls of the commands, and
the package itself."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import traceback

REPOSITORY, SAMPLE, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "scripts"))
FOLDER.mkdir(parents=True, exist_ok=True)
os.chdir(FOLDER)

from minitaw import command  # noqa: E402


def call(name, *arguments):
    """scripts/NAME, without a new process: to import its libraries takes longer than most calls."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.call(name, list(map(str, arguments)))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def process(name, *arguments, **options):
    """scripts/NAME as users call it."""
    return subprocess.run(
        [REPOSITORY / "scripts" / name, *map(str, arguments)],
        **({"stdout": subprocess.PIPE} | options),
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
    )


def accepted(name, *arguments, code=0):
    """What it prints."""
    done = call(name, *arguments)
    assert (
        done.returncode == code and done.stderr == ""
    ), f"{name} {arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def refused(name, *arguments, says):
    """Exit code 2, one sentence, nothing else."""
    done = call(name, *arguments)
    assert (
        done.returncode == 2 and done.stdout == ""
    ), f"{name} {arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
    assert done.stderr.startswith(f"{name}: ") and done.stderr.count("\n") == 1, done.stderr
    assert says in done.stderr, f"{name} {arguments}: {done.stderr!r} does not say {says!r}"


def refusal_of(work, *arguments, **options):
    """What the BadInput of a call in Python says; a call that throws none fails the test."""
    try:
        raise AssertionError(f"not refused: {work(*arguments, **options)}")
    except command.BadInput as error:
        return str(error)


def run_all(*tests):
    """Calls every test, and ends with the names of those that failed."""
    failed = []
    for test in tests:
        try:
            test()
        except Exception:
            traceback.print_exc()
            failed.append(test.__name__)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")
