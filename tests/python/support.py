# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of scripts/minitaw share: the command line of a test, calls of the commands, and
the package itself."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys

REPOSITORY, SAMPLE, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
sys.dont_write_bytecode = True
sys.path[:0] = [str(REPOSITORY / "scripts"), str(REPOSITORY / "tests")]
FOLDER.mkdir(parents=True, exist_ok=True)
os.chdir(FOLDER)

import programs  # noqa: E402
from minitaw import command  # noqa: E402
from programs import run_all, run_checks  # noqa: E402, F401


def call(name, *arguments):
    """scripts/NAME, without a new process: to import its libraries takes longer than most calls."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.call(name, list(map(str, arguments)))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def process(name, *arguments, **options):
    """scripts/NAME as users call it."""
    return programs.call(REPOSITORY / "scripts" / name, *arguments, **options)


def accepted(name, *arguments, code=0):
    """What it prints."""
    return programs.output_of(call(name, *arguments), code)


def refused(name, *arguments, says):
    """In a sentence with a word, or several."""
    words = [says] if isinstance(says, str) else says
    programs.refused(call(name, *arguments), *words, name=name)


def refusal_of(work, *arguments, **options):
    """What the BadInput of a call in Python says; a call that throws none fails the test."""
    try:
        raise AssertionError(f"not refused: {work(*arguments, **options)}")
    except command.BadInput as error:
        return str(error)
