# SPDX-License-Identifier: BSD-3-Clause
"""Has a result become slower, larger or wrong against another one? For people, programs and CI jobs
(docs/compare.md). The command; comparison.py has the answer."""

import argparse
import math

from .aspects import Rules
from .command import BadInput, Parser, write_file, write_stdout
from .comparison import compare
from .comparison_text import as_json, as_text
from .junit import as_junit
from .matching import WHAT_MATTERS
from .record import load_all

# A half and more can only be a slip: 5 for 5 %.
LEAST_THRESHOLD, LARGEST_THRESHOLD = 1e-9, 0.499
MOST_LOOKS = 1000


def number(low, high):
    """The type of an option: a number, or a percentage, within bounds."""

    def number(text):  # argparse says its name of what is none
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is no number from {low:g} to {high:g}")
        return value

    return number


def threshold(text):
    return math.inf if text == "off" else number(LEAST_THRESHOLD, LARGEST_THRESHOLD)(text)


def looks(text):
    if not text.isdecimal() or not 1 <= int(text) <= MOST_LOOKS:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 to {MOST_LOOKS}")
    return int(text)


def add_files(add):
    add("files", metavar="FILE.h5", nargs="*", help="the base and the new result file")
    add(
        "--base",
        metavar="FILE.h5",
        nargs="+",
        default=[],
        help="several files of the base: the i-th is paired with the i-th --new",
    )
    add(
        "--new",
        metavar="FILE.h5",
        nargs="+",
        default=[],
        help="as many of the new one, measured in turn with them",
    )


def add_rules(add):
    add(
        "--threshold",
        type=threshold,
        help="least relative difference of step times that matters: 0.05, 5%%, or off "
        "(%(default)s)",
    )
    add("--memory-threshold", type=threshold, help="the same of memory (%(default)s)")
    add(
        "--confidence",
        type=number(0.5, 0.99999),
        help="of the interval of the ratio of step times (%(default)s)",
    )
    add(
        "--quantile",
        type=number(0, 0.5),
        help="which sample stands for a run: 0 the fastest, 0.5 the median",
    )
    add(
        "--allow",
        metavar="NAME",
        choices=WHAT_MATTERS,
        action="append",
        help=f"what may differ although it matters: {', '.join(WHAT_MATTERS)}; may be repeated",
    )
    add("--strict", action="store_true", help="AMBIGUOUS fails too")
    add(
        "--looks",
        type=looks,
        metavar="N",
        help="how often you compare at most, as more is measured: the risk is shared by all "
        "(%(default)s)",
    )
    add(
        "--missing",
        choices=["list", "fail"],
        help="what becomes of cases of the base that the new side lacks (%(default)s)",
    )


def add_outputs(add):
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add("--junit", metavar="FILE.xml", help="write a test report for CI")


def parse(words):
    parser = Parser(
        prog="compare",
        description="Has the second result become slower, larger or wrong against the first? "
        "Exit code 0: no, or not certainly; 1: yes; 2: nothing can be compared (docs/compare.md).",
    )
    add_files(parser.add_argument)
    add_rules(parser.add_argument)
    add_outputs(parser.add_argument)
    parser.set_defaults(**vars(Rules()))
    options = parser.parse_args(words)
    two_files = len(options.files) == 2 and not options.base and not options.new
    two_sides = not options.files and options.base and options.new
    if not two_files and not two_sides:
        raise BadInput(
            "compare takes two files, the base and the new one, or several of each: "
            "compare --base a1.h5 a2.h5 --new b1.h5 b2.h5"
        )
    if two_files:
        options.base, options.new = options.files[:1], options.files[1:]
    return options


def named(paths):
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def load_side(paths):
    return [load_all([path]) for path in paths]


def main(words=None):
    options = parse(words)
    rules = Rules(**{name: getattr(options, name) for name in vars(Rules())})
    found = compare(load_side(options.base), load_side(options.new), rules)
    heading = named(options.base), named(options.new)
    text = as_text(found, *heading)
    if options.junit:
        write_file(options.junit, as_junit(found, options.strict))
    write_stdout(as_json(found, *heading) if options.json else text)
    fails = {"worse", "ambiguous"} if options.strict else {"worse"}
    return int(found.outcome in fails)
