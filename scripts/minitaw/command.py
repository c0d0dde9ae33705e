# SPDX-License-Identifier: BSD-3-Clause
"""What the commands in scripts/ share: one sentence on standard error and exit code 2 for whatever
cannot be used."""

import argparse
import importlib
import json
import os
import pathlib
import stat
import subprocess
import sys
import traceback

BAD_INPUT = 2
PICTURES = (".png", ".svg", ".pdf")  # files that are drawn
# About JSON that no program of ours has written.
MISSHAPEN = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


class BadInput(Exception):
    """The user's files or options cannot be used; the message is one sentence that says why."""


class Parser(argparse.ArgumentParser):
    """Refuses in one sentence, as minitaw does."""

    def __init__(self, **options):
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, formatter_class=formatter, **options)

    def error(self, message):
        raise BadInput(f"{message} ({self.prog} --help lists all options)")


def number(low, high, kind=float):
    """The type of an option: a number, or a percentage, within bounds."""

    def number(text):  # argparse says its name of what is none
        value = kind(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is no number from {low:g} to {high:g}")
        return kind(value)

    return number


def ending(*suffixes):
    """The type of an option: a file with one of these suffixes."""

    def path(text):
        if not text.endswith(suffixes):
            raise argparse.ArgumentTypeError(f'"{text}" must end in {" or ".join(suffixes)}')
        return text

    return path


# Files that the user has named.


def read_with(read, name):
    """What read() returns of an open file or pipe; a device never ends."""
    try:
        file = open(name, "rb")
        if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
            raise BadInput(f"{name} is a device, not a file")
        return read(file)
    except (OSError, MemoryError) as error:
        why = getattr(error, "strerror", None) or "it does not fit into memory"
        raise BadInput(f"{name} cannot be read: {why}") from error


def read_bytes(name):
    return read_with(lambda file: file.read(), name)


def write_file(path, content):
    """Text or bytes to a file."""
    if isinstance(content, str):
        content = content.encode("utf-8", "replace")
    try:
        pathlib.Path(path).write_bytes(content)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error


def from_json(path, made, what):
    """What made() returns of the content of a JSON file, which must be `what`."""
    content = read_bytes(path)
    try:
        return made(json.loads(content))
    except MISSHAPEN as error:
        why = f"{type(error).__name__}: {str(error)[:100]}"
        raise BadInput(f"{path} is no {what}, or it is damaged ({why})") from error


def write_stdout(text):
    """Writes to standard output and makes sure that all of it arrives: data that are silently cut
    are worse than none."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # A reader that has seen enough (head) is no error.
        if not isinstance(error, BrokenPipeError):
            raise BadInput(f"standard output: {error.strerror}") from error


# Programs and commands.


def output_of(*words, **more):
    """What a program prints."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    if done.returncode:
        failed = f"{' '.join(map(str, words))} failed"
        raise BadInput(": ".join(filter(None, [failed, done.stderr.strip()])))
    return done.stdout


def call(name, words=None):
    """main() of the module NAME with these words, or those of the command line: its exit code, or 2
    and a sentence."""

    def main():
        module = importlib.import_module("." + name.replace("-", "_"), __package__)
        return module.main(words)

    return guarded(name, main)


def guarded(name, main):
    try:
        return main() or 0
    except ImportError as error:
        needs = "needs Python with h5py, pandas, scipy, matplotlib and jinja2"
        sentence = f"{needs} ({error}); scripts/env brings them"
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
        sentence = f"this is a defect of {name}, not a verdict; report it with the lines above"
        print(f"{name}: {sentence}", file=sys.stderr)
        code = BAD_INPUT
    raise SystemExit(code)
