# SPDX-License-Identifier: BSD-3-Clause
"""The rate of each case over dates and commits, with its noise; changes that are more than noise are marked (docs/compare.md)."""

import datetime
import pathlib

from .command import BadInput, Parser, write_stdout
from .figures import PICTURES, SETTINGS, figure, grouped, legend_below, new_figure, percent, save, setting_text, styles_of, telling
from .intervals import blocks_of, shift_interval, thinned
from .record import describe, load_all


def history(results):
    """{what tells a case from the others: its valid measurements in the order of their dates}."""
    known = [case for result in results for case in result.cases if case.valid and case.samples.size]
    if not known:
        raise BadInput("no file has a valid case")
    told = telling(known, [name for name in SETTINGS if name not in ("ranks", "groups")])  # describe() names these
    parts = [sorted(some, key=lambda case: case["started"]) for some in grouped(known, lambda case: case["identity"]).values()]
    return {", ".join([f"{number}: {describe(some[0])}", *(setting_text(name, some[0][name]) for name in told)]): some for number, some in enumerate(parts)}


LEAST_CHANGE = 0.03  # that is marked: samples of one run are more alike than runs are


def change_of(before, after):
    """The rate relative to that before it (1.05: 5 % more), and a mark where all of its 95 % interval is on one side."""
    interval = shift_interval(thinned(blocks_of([before])), thinned(blocks_of([after])), 0.95)
    change = before["median_s"] / after["median_s"]
    if not interval or abs(change - 1) < LEAST_CHANGE:
        return change, ""
    return change, "slower" if interval.low > 0 else "faster" if interval.high < 0 else ""


def lines(some):
    for before, case in zip([None, *some], some):
        change, mark = change_of(before, case) if before else (1, "")
        yield (case["started"], case.session.get("git_hash", "")[:18], f"{figure(case['tokens_per_s'])} token/s", f"spread {percent(case['spread'])}",
               f"{change - 1:+.1%}" if before else "", mark)


def draw(cases):
    """The figure of a history: a line for each case."""
    drawn, styles = new_figure(6.5, 3.5), styles_of(cases)
    axes = drawn.subplots()
    for number, (name, some) in enumerate(cases.items()):
        at = [(datetime.datetime.fromisoformat(case["started"]), case["tokens_per_s"] / some[0]["tokens_per_s"]) for case in some]
        axes.plot(*zip(*at), label=f"{some[0]['schedule']} ({number})", **styles[name])
        for before, case, place in zip(some, some[1:], at[1:]):
            if mark := change_of(before, case)[1]:
                axes.annotate("▼" if mark == "slower" else "▲", place)
    axes.set_title("rate relative to the first measurement; ▲▼: a change beyond noise", loc="left", fontsize=9)
    axes.tick_params(axis="x", rotation=30)
    legend_below(drawn, axes)
    return drawn


def main(words=None):
    parser = Parser(prog="trend", description="Lists the rate of each case over dates and commits, with its noise, and marks changes (docs/compare.md).")
    parser.add_argument("files", metavar="FILE.h5", nargs="+", help="result files of minitaw run, in any order")
    parser.add_argument("-o", "--output", metavar="OUT", help="draw it too (.png, .svg, .pdf)")
    options = parser.parse_args(words)
    if options.output and pathlib.Path(options.output).suffix not in PICTURES:
        raise BadInput(f"-o: \"{options.output}\" must end in .png, .svg or .pdf")
    cases = history(load_all(options.files))
    for name, some in cases.items():
        rows = list(lines(some))
        widths = [max(map(len, column)) for column in zip(*rows)]
        write_stdout(f"# {name}\n" + "".join("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() + "\n" for row in rows))
    if options.output:
        save(draw(cases), options.output)
        write_stdout(f"{options.output}\n")
