# SPDX-License-Identifier: BSD-3-Clause
"""What the tests in Python share: where things are, calls of programs and scripts, and how these
must end. ctest sets MINITAW_BUILD and MINITAW_MPIEXEC."""

import contextlib
import io
import json
import os
import pathlib
import subprocess

import pytest
from minitaw import command

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("MINITAW_BUILD", REPOSITORY / "build/host"))
MPIEXEC = os.environ.get("MINITAW_MPIEXEC", "mpiexec")
MINITAW = BUILD / "bin/minitaw"
# written by tests/record/write_sample.cpp
SAMPLE = BUILD / "tests/record/sample.h5"

# a model whose steps take milliseconds, for decks
SMALL = "layers = 4\nhidden = 16\nheads = 2\nffn = 24\nsteps = 3\nwarmup = 1\n"
# in the order of the program's table
MEMORY_KINDS = [
    "weights",
    "gradients",
    "optimiser",
    "activations",
    "buffers",
    "tokens",
    "context",
]
# how every --json begins
JSON_HEAD = ["program", "schema", "command"]


def call(*command_line, timeout=240, **options):
    """A program that has ended, with what it said as text."""
    words = [*map(str, command_line)]
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, **options)


def minitaw(*arguments, **options):
    """The program on one rank, without mpiexec."""
    return call(MINITAW, *arguments, **options)


def on_ranks(ranks, *arguments, variables=(), program=MINITAW, **options):
    """The program under mpiexec, with these variables in the environment: "NAME=VALUE"."""
    return call(MPIEXEC, "-n", ranks, "env", *variables, program, *arguments, **options)


def script(name, *arguments):
    """scripts/NAME, without a new process: to import its libraries takes longer than most calls."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.call(name, list(map(str, arguments)))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def process(name, *arguments, **options):
    """scripts/NAME as users call it."""
    return call(REPOSITORY / "scripts" / name, *arguments, **options)


def settings(**values):
    """Options that set these keys of a deck."""
    return [f"--set={key}={value}" for key, value in values.items()]


def told(done):
    """What is said of a program that has ended otherwise than it should."""
    return f"{done.args}: exit {done.returncode}:\n{done.stdout}{done.stderr}"


def output_of(done, code=0):
    """What a program printed that ends with this code and says nothing on standard error."""
    assert done.returncode == code and done.stderr == "", told(done)
    return done.stdout


def says(text, *words):
    """Fails unless a sentence says all of these words, in any order: the key, the value, the
    nearest name. How the rest is put does not matter."""
    missing = [word for word in map(str, words) if word not in text]
    assert not missing, f"{text!r} does not say {missing}"


def refused(done, *words, name="minitaw", begun=False):
    """Exit code 2, one sentence of the program that says these words, and nothing else; where it
    has begun, it may have printed something before."""
    assert done.returncode == 2 and (begun or done.stdout == ""), told(done)
    assert done.stderr.startswith(f"{name}: ") and done.stderr.count("\n") == 1, told(done)
    says(done.stderr, *words)


def refuses(name, table):
    """scripts/NAME refuses what each line of the table has before ": ", and says what stands
    behind it."""
    for line in table.strip().split("\n"):
        words, sentence = line.split(": ", 1)
        refused(script(name, *words.split()), sentence, name=name)


def refusal_of(work, *arguments, **options):
    """What the BadInput of a call in Python says."""
    with pytest.raises(command.BadInput) as refusal:
        work(*arguments, **options)
    return str(refusal.value)


def rows(file):
    """Runs in the file, as a user reads them."""
    done = minitaw("show", file, "--json")
    said = json.loads(done.stdout)
    output_of(done, code=0 if said["verdict"].startswith("VALID") else 1)
    return said["runs"]
