# SPDX-License-Identifier: BSD-3-Clause
"""What the commands in scripts/ share: one sentence on standard error and exit code 2 for whatever
cannot be used."""

import argparse
import importlib
import os
import pathlib
import subprocess
import sys
import traceback

BAD_INPUT = 2


class BadInput(Exception):
    """The user's files or options cannot be used; the message is one sentence that says why."""


class Parser(argparse.ArgumentParser):
    """Refuses in one sentence, as minitaw does."""

    def __init__(self, **options):
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options
        )

    def error(self, message):
        raise BadInput(f"{message} ({self.prog} --help lists all options)")


def plural(count, thing):
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def write_stdout(text):
    """Writes to standard output and makes sure that all of it arrives: data that are silently cut
    are worse than none."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(
            error, BrokenPipeError
        ):  # a reader that has seen enough (head) is no error
            raise BadInput(f"standard output: {error.strerror}") from error


def write_file(path, content):
    """Text or bytes to a file that the user has named."""
    try:
        pathlib.Path(path).write_bytes(
            content if isinstance(content, bytes) else content.encode("utf-8", "replace")
        )
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error


def output_of(*words, **more):
    """What a program prints."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise BadInput(
            ": ".join(filter(None, [f"{' '.join(map(str, words))} failed", done.stderr.strip()]))
        )
    return done.stdout


def call(name, words=None):
    """main() of the module NAME with these words, or those of the command line: its exit code, or 2
    and a sentence."""
    return guarded(
        name, lambda: importlib.import_module("." + name.replace("-", "_"), __package__).main(words)
    )


def guarded(name, main):
    try:
        return main() or 0
    except ImportError as error:
        sentence = f"needs Python with h5py, numpy, scipy, matplotlib and jinja2 ({error}); scripts/env brings them"
    except (BadInput, OSError) as error:
        sentence = str(error)
    print(f"{name}: {' '.join(sentence.split())}", file=sys.stderr)
    return BAD_INPUT


def run():
    """scripts/NAME, or minitaw-NAME, which is a link to it."""
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    name = pathlib.Path(sys.argv[0]).resolve().name
    try:
        code = call(name)
    except Exception:  # exit code 1 would be a verdict
        traceback.print_exc()
        print(
            f"{name}: this is a defect of {name}, not a verdict; report it with the lines above",
            file=sys.stderr,
        )
        code = BAD_INPUT
    raise SystemExit(code)
