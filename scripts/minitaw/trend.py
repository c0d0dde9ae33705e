# SPDX-License-Identifier: BSD-3-Clause
"""The rate of each case over dates and commits; lasting changes that are more than the noise
between runs are marked (docs/compare.md)."""

import datetime
import math
import pathlib
from dataclasses import dataclass

import numpy
from scipy.stats import mannwhitneyu

from .command import BadInput, Parser, plural, write_stdout
from .compare import value_of
from .figures import (
    PICTURES,
    SETTINGS,
    figure,
    grouped,
    legend_below,
    new_figure,
    percent,
    save,
    setting_text,
    styles_of,
    telling,
)
from .intervals import blocks_of, quantiles_of
from .record import describe, load_all

MACHINE = (
    "processor",
    "device",
    "threads",
    "nodes",
    "links",
    "build_type",
)  # rates of others are no history
RISK = 0.05  # that a history without a change has a mark
LEAST_CHANGE = 0.03  # that is marked
SCATTERS = 2  # a change is at least so many times the scatter between runs: loads last
RECENT = 10  # runs in which a change must show, and for which --fail tells it


@dataclass
class Run:
    """A record's measurement of a case."""

    case: object
    fastest: float  # s, step: the median over repetitions of the fastest of each
    change: object = None  # Change that begins here

    @property
    def counts(self):
        """A noisy one tells more about what else ran than about the program."""
        return "noisy" not in self.case.doubt


@dataclass
class Change:
    ratio: float  # new / base of the fastest steps
    before: int  # runs of the level before

    @property
    def word(self):
        return "slower" if self.ratio > 1 else "faster"

    def text(self):
        before = f"the {plural(self.before, 'run')} before"
        return f"{self.word}: step {self.ratio - 1:+.1%} against {before}"


def runs_of(cases):
    """In the order of their dates. Each stands for itself by as many samples as the others have."""
    ordered = sorted(cases, key=lambda case: case["started"])
    blocks = [blocks_of([case]) for case in ordered]
    count = min(len(block) for some in blocks for block in some)
    return [
        Run(case, math.exp(numpy.median(quantiles_of(some, count, 0))))
        for case, some in zip(ordered, blocks)
    ]


def history(results):
    """{what tells a case from the others: its valid measurements on one machine, with their
    changes}."""
    known = [
        case for result in results for case in result.cases if case.valid and case.samples.size
    ]
    if not known:
        raise BadInput("no file has a valid case")
    told = telling(
        known, [name for name in SETTINGS if name not in ("ranks", "groups")]
    )  # describe() names these
    parts = grouped(
        known, lambda case: (case["identity"], *(value_of(name, case) for name in MACHINE))
    )
    differ = [i for i in range(len(MACHINE)) if len({key[1 + i] for key in parts}) > 1]
    found = {}
    for number, (key, cases) in enumerate(parts.items()):
        words = [
            *(setting_text(name, cases[0][name]) for name in told),
            *(f"{MACHINE[i]} {key[1 + i]}" for i in differ),
        ]
        found[", ".join([f"{number}: {describe(cases[0])}", *words])] = runs_of(cases)
    for runs in found.values():
        mark(runs, RISK / len(found))
    return found


# Where a history changes.


def change_at(before, after, risk):
    """The probability that chance alone orders these logarithms of steps so; None if they show no
    change."""
    shift = numpy.median(after) - numpy.median(before)
    scatter = scatter_of(before, after)
    if abs(shift) < max(math.log1p(LEAST_CHANGE), SCATTERS * scatter):
        return None
    chance = mannwhitneyu(before, after).pvalue
    return chance if chance <= risk else None


def scatter_of(*levels):
    """Of runs around the median of their level: the standard deviation, if they were normal (1.4826
    median deviations)."""
    return 1.4826 * float(
        numpy.median(numpy.concatenate([abs(level - numpy.median(level)) for level in levels]))
    )


def tests_of(count):
    """How many comparisons so many runs lead to."""
    return sum(min(end - 1, RECENT) for end in range(2, count + 1))


def found_at(steps, risk):
    """Where levels begin, run after run as the history grew.

    Each time the newest 1 to 10 runs are compared with all before, back to the last change, by the
    test of
    Mann and Whitney. All these comparisons share the risk.
    """
    each, begins = risk / max(tests_of(len(steps)), 1), [0]
    for end in range(2, len(steps) + 1):
        begin, found = begins[-1], []
        for at in range(max(begin + 1, end - RECENT), end):
            chance = change_at(steps[begin:at], steps[at:end], each)
            found += [] if chance is None else [(chance, at)]
        if found:
            begins.append(min(found)[1])
    return begins[1:]


def deviation(level):
    return float(abs(level - numpy.median(level)).sum())


def placed(steps, begins):
    """Each begin once more, with the runs that came later: where the runs deviate least from the
    levels on both sides."""
    for i in range(len(begins)):
        low, high = [0, *begins][i], [*begins, len(steps)][i + 1]
        begins[i] = min(
            range(low + 1, high),
            key=lambda at: deviation(steps[low:at]) + deviation(steps[at:high]),
        )
    return begins


def mark(runs, risk):
    """Marks the changes of a history at the first run of the new level."""
    counted = [run for run in runs if run.counts]
    steps = numpy.log([run.fastest for run in counted])
    bounds = [0, *placed(steps, found_at(steps, risk)), len(counted)]
    for low, at, high in zip(bounds, bounds[1:], bounds[2:]):
        shift = numpy.median(steps[at:high]) - numpy.median(steps[low:at])
        counted[at].change = Change(math.exp(shift), at - low)


def levels(runs):
    """Counted runs between changes."""
    parts = [[]]
    for run in runs:
        if run.change:
            parts.append([])
        parts[-1] += [run] * run.counts
    return parts


def least_count(risk):
    """The fewest runs of which a change can be marked: all of the newer half beyond all of the
    older one."""
    return next(
        n for n in range(2, 1000) if 2 / math.comb(n, min(n // 2, RECENT)) <= risk / tests_of(n)
    )


def newest(runs):
    """The newest change, and how many counted runs it has lasted; None if there is none."""
    parts, changes = levels(runs), [run for run in runs if run.change]
    return (changes[-1], len(parts[-1])) if changes else None


def verdict(runs, risk):
    """What the history says, in a sentence."""
    counted = [run for run in runs if run.counts]
    noisy = f"; {plural(len(runs) - len(counted), 'noisy run')} did not count" * (
        len(counted) < len(runs)
    )
    if len(counted) < least_count(risk):
        runs_there = plural(len(counted), "run")
        return f"unknown: {runs_there}, {least_count(risk)} or more can show a change{noisy}"
    scatter = scatter_of(
        *(numpy.log([run.fastest for run in part]) for part in levels(runs) if part)
    )
    least = max(LEAST_CHANGE, math.expm1(SCATTERS * scatter))
    seen = f"changes below {least:.1%} would not be seen (runs scatter by {scatter:.1%})"
    if last := newest(runs):
        run, lasted = last
        since = f"since {run.case['started']} ({plural(lasted, 'run')})"
        return f"{run.change.text()}, {since}; {seen}{noisy}"
    return f"no change in {len(counted)} runs; {seen}{noisy}"


# For people.


def lines(runs):
    level = {
        id(run): numpy.median([other.fastest for other in part])
        for part in levels(runs)
        for run in part
    }
    for run in runs:
        case = run.case
        against = f"{run.fastest / level[id(run)] - 1:+.1%}" if run.counts else ""
        told = run.change.text() if run.change else "" if run.counts else "noisy, does not count"
        yield (
            case["started"],
            case.session.get("git_hash", "")[:18],
            f"{figure(case['tokens_per_s'])} token/s",
            f"spread {percent(case['spread'])}",
            f"{run.fastest:.4g} s",
            against,
            told,
        )


def draw(cases):
    """The figure of a history: a line for each case; noisy runs are hollow."""
    drawn, styles = new_figure(6.5, 3.5), styles_of(cases)
    axes = drawn.subplots()
    for number, (name, runs) in enumerate(cases.items()):
        at = [
            (datetime.datetime.fromisoformat(run.case["started"]), runs[0].fastest / run.fastest)
            for run in runs
        ]
        axes.plot(*zip(*at), label=f"{runs[0].case['schedule']} ({number})", **styles[name])
        if noisy := [place for run, place in zip(runs, at) if not run.counts]:
            axes.plot(
                *zip(*noisy),
                linestyle="",
                marker="o",
                markerfacecolor="white",
                color=styles[name].get("color"),
            )
        for run, place in zip(runs, at):
            if run.change:
                axes.annotate("▼" if run.change.word == "slower" else "▲", place)
    axes.set_title(
        "speed of the fastest steps relative to the first run; ▲▼: a lasting change; hollow: noisy",
        loc="left",
        fontsize=9,
    )
    axes.tick_params(axis="x", rotation=30)
    legend_below(drawn, axes)
    return drawn


def table(name, runs, risk):
    rows = list(lines(runs))
    widths = [max(map(len, column)) for column in zip(*rows)]
    text = "".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() + "\n"
        for row in rows
    )
    columns = (
        "started, commit, rate, spread of the steps, fastest step, against the median of its level"
    )
    return f"# {name}\n# {columns}\n{text}# {verdict(runs, risk)}\n"


def closing(cases):
    """(exit code of --fail, the line): slower if the newest change of a case is, and not more than
    ten runs old."""
    found = {
        name: last for name, runs in cases.items() if (last := newest(runs)) and last[1] <= RECENT
    }
    for word in ("slower", "faster"):
        some = [(name, run) for name, (run, _) in found.items() if run.change.word == word]
        if some:
            name, run = some[0]
            return int(word == "slower"), (
                f"TREND: {word.upper()}: {len(some)} of {plural(len(cases), 'case')}, first "
                f"{name}: "
                f"{run.change.text()}, since {run.case['started']}"
            )
    unknown = sum(
        sum(run.counts for run in runs) < least_count(RISK / len(cases)) for runs in cases.values()
    )
    known = f"no change in the newest {RECENT} runs of {plural(len(cases) - unknown, 'case')}"
    return (
        0,
        f"TREND: {'UNKNOWN' if unknown == len(cases) else 'SAME'}: "
        f"{known}{f', {unknown} with too few runs' * (unknown > 0)}",
    )


def main(words=None):
    parser = Parser(
        prog="trend",
        description="Lists the rate of each case over dates and commits, with its noise, and marks lasting "
        "changes (docs/compare.md).",
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
    if options.output and pathlib.Path(options.output).suffix not in PICTURES:
        raise BadInput(f'-o: "{options.output}" must end in .png, .svg or .pdf')
    cases = history(load_all(options.files))
    for name, runs in cases.items():
        write_stdout(table(name, runs, RISK / len(cases)))
    if options.output:
        save(draw(cases), options.output)
        write_stdout(f"{options.output}\n")
    slower, said = closing(cases)
    write_stdout(f"{said}\n")
    return slower if options.fail else 0
