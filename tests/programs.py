# SPDX-License-Identifier: BSD-3-Clause
"""What all tests in Python share: calls of programs, how these must end, and the tests of a
file. CMake puts this folder into PYTHONPATH."""

import inspect
import subprocess
import traceback


# Of memory, in the order of the program's table.
MEMORY_KINDS = [
    "weights",
    "gradients",
    "optimiser",
    "activations",
    "buffers",
    "tokens",
    "context",
]


# How every --json begins.
JSON_HEAD = ["program", "schema", "command"]


def call(*command, **options):
    """A program that has ended, with what it said as text."""
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 240}
    return subprocess.run([*map(str, command)], **(usual | options), text=True)


def settings(**values):
    """Options that set these keys of a deck."""
    return [f"--set={key}={value}" for key, value in values.items()]


def told(done):
    """Of a program that has ended otherwise than it should."""
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


def has_instruments(program):
    """Whether a minitaw was built with instruments: the mini-app alone has no verb `screen`."""
    return "\n  screen " in output_of(call(program, "--help"))


def run_checks(names, without=()):
    """Calls every function of globals() that is named check_... and takes nothing, in order.
    without: names of functions that a build cannot pass; they are named on standard output."""
    tests = [
        value
        for name, value in names.items()
        if name.startswith("check_")
        and inspect.isfunction(value)
        and not inspect.signature(value).parameters
    ]
    if without:
        print(f"left out, as the program was built without instruments: {', '.join(without)}")
    run_all(*(test for test in tests if test.__name__ not in without))
