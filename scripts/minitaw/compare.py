# SPDX-License-Identifier: BSD-3-Clause
"""Has a result become slower, larger or wrong against another one? For people, programs and CI jobs
(docs/compare.md). The command; comparison.py has the answer."""

import math

from . import ratings
from .aspects import Rules
from .command import BadInput, Parser, number, write_stdout
from .comparison import compare
from .comparison_text import as_json, as_markdown, as_text
from .junit import as_junit
from .matching import WHAT_MATTERS
from .outputs import output_options, with_refusals, write_output
from .record import load_all

# A half and more can only be a slip: 5 for 5 %.
LEAST_THRESHOLD, LARGEST_THRESHOLD = 1e-9, 0.499
MOST_LOOKS = 1000
EXIT_CODES = {"worse": 1, "ambiguous": 3}  # all others: 0


def threshold(text):
    return math.inf if text == "off" else number(LEAST_THRESHOLD, LARGEST_THRESHOLD)(text)


def add_rules(add):
    def rule(name, kind, what, **more):
        add(f"--{name}", type=kind, help=f"{what} (%(default)s)", **more)

    rule("threshold", threshold, "least relative difference of step times that matters: 0.05, "
         "5%%, or off")  # fmt: skip
    rule("quantile", number(0, 0.5), "which sample stands for a run: 0 the fastest, 0.5 the median")
    rule("looks", number(1, MOST_LOOKS, int), "how often you compare at most, as more is "
         "measured: the risk is shared by all")  # fmt: skip
    rule("missing", str, "what becomes of cases of the base that the new side lacks",
         choices=["list", "fail"])  # fmt: skip
    what = f"what may differ although it matters: {', '.join(WHAT_MATTERS)}; may be repeated"
    add("--allow", metavar="NAME", choices=WHAT_MATTERS, action="append", help=what)
    add(
        "--not-measured",
        metavar="NAME",
        action="append",
        help="what is missing although it was to be measured: nothing is SAME or FASTER then",
    )


def parse(words):
    parser = Parser(
        prog="compare",
        description="Has the second result become slower, larger or wrong against the first? "
        "Exit code 0: no; 1: yes; 2: nothing can be compared; 3: not decided (docs/compare.md).",
        parents=[output_options()],
    )
    add = parser.add_argument
    add("files", metavar="FILE.h5", nargs="*", help="the base and the new result file")
    several = {"metavar": "FILE.h5", "nargs": "+", "default": []}
    add(
        "--base",
        help="several files of the base: the i-th is paired with the i-th --new",
        **several,
    )
    add("--new", help="as many of the new one, measured in turn with them", **several)
    add("--ratings", help="rank these official results by rating; exit code 0: all are", **several)
    add_rules(add)
    add("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(**vars(Rules()))
    options = parser.parse_args(words)
    two_files = len(options.files) == 2 and not options.base and not options.new
    two_sides = not options.files and options.base and options.new
    only_ratings = options.ratings and not (options.files or options.base or options.new)
    if not two_files and not two_sides and not only_ratings:
        raise BadInput(
            "compare takes two files, the base and the new one, or several of each: "
            "compare --base a1.h5 a2.h5 --new b1.h5 b2.h5; or --ratings and some"
        )
    if two_files:
        options.base, options.new = options.files[:1], options.files[1:]
    return options


def named(paths):
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def load_side(paths):
    return [load_all([path]) for path in paths]


def compared(words):
    options = parse(words)
    if options.ratings:
        return ratings.compared(options.ratings, options.json)
    rules = Rules(**{name: getattr(options, name) for name in vars(Rules())})
    found = compare(load_side(options.base), load_side(options.new), rules)
    heading = named(options.base), named(options.new)
    write_output(options.junit, as_junit(found))
    write_output(options.markdown, as_markdown(found))
    write_stdout((as_json if options.json else as_text)(found, *heading))
    return EXIT_CODES.get(found.outcome, 0)


def main(words=None):
    return with_refusals(words, lambda: compared(words))
