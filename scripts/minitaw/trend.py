# SPDX-License-Identifier: BSD-3-Clause
"""The rate of each case over dates and commits; lasting changes that are more than the noise
between runs are marked (docs/compare.md)."""

import datetime
import math

import numpy

from .command import PICTURES, BadInput, Parser, suffix_of, write_stdout
from .drawing import legend_below, new_figure, save, styles_of
from .history import (
    LEAST_CHANGE,
    RECENT,
    RISK,
    SCATTERS,
    least_count,
    levels,
    mark,
    newest,
    runs_of,
    scatter_of,
)
from .matching import MACHINE, value_of
from .numbers import figure, percent, plural
from .record import describe, load_all
from .settings import TOLD, grouped, setting_text, telling

COLUMNS = (
    "started, commit, rate, spread of the steps, fastest step, against the median of its level"
)
HASH_LETTERS = 18  # of a commit in a row
TITLE = "speed of the fastest steps relative to the first run; ▲▼: a lasting change; hollow: noisy"


def histories(results):
    """{what tells a case from the others: its valid measurements on one machine, with their
    changes}."""
    every = [case for result in results for case in result.cases]
    known = [case for case in every if case.valid and case.samples.size]
    if not known:
        raise BadInput("no file has a valid case")
    # describe() names the others.
    told = telling(known, [name for name in TOLD if name not in ("ranks", "groups", "context")])

    def alike(case):
        return case["identity"], *(value_of(name, case) for name in MACHINE)

    parts = grouped(known, alike)
    machines = [dict(zip(MACHINE, key[1:])) for key in parts]
    differ = [name for name in MACHINE if len({machine[name] for machine in machines}) > 1]
    found = {}
    for number, (cases, machine) in enumerate(zip(parts.values(), machines)):
        words = [f"{number}: {describe(cases[0])}"]
        words += [setting_text(name, cases[0][name]) for name in told]
        words += [f"{name} {machine[name]}" for name in differ]
        found[", ".join(words)] = runs_of(cases)
    for runs in found.values():
        mark(runs, RISK / len(found))
    return found


def verdict(runs, risk):
    """What the history says, in a sentence."""
    counted = [run for run in runs if run.counts]
    noisy = len(runs) - len(counted)
    left_out = f"; {plural(noisy, 'noisy run')} did not count" if noisy else ""
    if len(counted) < least_count(risk):
        there = plural(len(counted), "run")
        return f"unknown: {there}, {least_count(risk)} or more can show a change{left_out}"
    parts = [numpy.log([run.fastest for run in part]) for part in levels(runs) if part]
    scatter = scatter_of(*parts)
    least = max(LEAST_CHANGE, math.expm1(SCATTERS * scatter))
    seen = f"changes below {least:.1%} would not be seen (runs scatter by {scatter:.1%})"
    said = f"no change in {len(counted)} runs"
    if last := newest(runs):
        run, lasted = last
        since = f"since {run.case['started']} ({plural(lasted, 'run')})"
        said = f"{run.change.text()}, {since}"
    return f"{said}; {seen}{left_out}"


# For people.


def row_of(run, level):
    case = run.case
    if not run.counts:
        against, told = "", "noisy, does not count"
    else:
        against = f"{run.fastest / level - 1:+.1%}"
        told = run.change.text() if run.change else ""
    return (
        case["started"],
        case.session.get("git_hash", "")[:HASH_LETTERS],
        f"{figure(case['tokens_per_s'])} token/s",
        f"spread {percent(case['spread'])}",
        f"{run.fastest:.4g} s",
        against,
        told,
    )


def rows_of(runs):
    level = {}
    for part in levels(runs):
        middle = numpy.median([run.fastest for run in part]) if part else math.nan
        level |= {id(run): middle for run in part}
    return [row_of(run, level.get(id(run))) for run in runs]


def table(name, runs, risk):
    rows = rows_of(runs)
    widths = [max(map(len, column)) for column in zip(*rows)]
    text = ""
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        text += f"  {'  '.join(cells)}".rstrip() + "\n"
    return f"# {name}\n# {COLUMNS}\n{text}# {verdict(runs, risk)}\n"


def draw_history(axes, label, style, runs):
    places = []
    for run in runs:
        date = datetime.datetime.fromisoformat(run.case["started"])
        places.append((date, runs[0].fastest / run.fastest))
    axes.plot(*zip(*places), label=label, **style)
    noisy = [place for run, place in zip(runs, places) if not run.counts]
    if noisy:
        hollow = {"marker": "o", "markerfacecolor": "white", "color": style["color"]}
        axes.plot(*zip(*noisy), linestyle="", **hollow)
    for run, place in zip(runs, places):
        if run.change:
            axes.annotate("▼" if run.change.word == "slower" else "▲", place)


def draw(cases):
    """The figure of a history: a line for each case; noisy runs are hollow."""
    drawn, styles = new_figure(6.5, 3.5), styles_of(cases)
    axes = drawn.subplots()
    for number, (name, runs) in enumerate(cases.items()):
        label = f"{runs[0].case['schedule']} ({number})"
        draw_history(axes, label, styles[name], runs)
    axes.set_title(TITLE, loc="left", fontsize=9)
    axes.tick_params(axis="x", rotation=30)
    legend_below(drawn, axes)
    return drawn


def closing(cases):
    """(whether the newest change of a case is slower, and not more than ten runs old; the line)."""
    count = len(cases)
    recent = {}
    for name, runs in cases.items():
        last = newest(runs)
        if last and last[1] <= RECENT:
            recent[name] = last[0]
    for word in ("slower", "faster"):
        some = [(name, run) for name, run in recent.items() if run.change.word == word]
        if some:
            name, run = some[0]
            return word == "slower", (
                f"TREND: {word.upper()}: {len(some)} of {plural(count, 'case')}, first {name}: "
                f"{run.change.text()}, since {run.case['started']}"
            )
    least = least_count(RISK / count)
    unknown = sum(sum(run.counts for run in runs) < least for runs in cases.values())
    known = f"no change in the newest {RECENT} runs of {plural(count - unknown, 'case')}"
    few = f", {unknown} with too few runs" if unknown else ""
    return False, f"TREND: {'UNKNOWN' if unknown == count else 'SAME'}: {known}{few}"


def main(words=None):
    parser = Parser(
        prog="trend",
        description="Lists the rate of each case over dates and commits, with its noise, and marks "
        "lasting changes (docs/compare.md).",
    )
    parser.add_argument(
        "files", metavar="FILE.h5", nargs="+", help="result files of minitaw run, in any order"
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="draw it too (.png, .svg, .pdf)")
    parser.add_argument(
        "--fail",
        action="store_true",
        help="exit code 1 if the newest change of a case is slower, and began in its "
        f"newest {RECENT} runs that count",
    )
    options = parser.parse_args(words)
    if options.output:
        suffix_of(options.output, *PICTURES)
    cases = histories(load_all(options.files))
    for name, runs in cases.items():
        write_stdout(table(name, runs, RISK / len(cases)))
    if options.output:
        save(draw(cases), options.output)
        write_stdout(f"{options.output}\n")
    slower, said = closing(cases)
    write_stdout(f"{said}\n")
    return int(slower and options.fail)
