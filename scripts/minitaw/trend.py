# SPDX-License-Identifier: BSD-3-Clause
"""The rate of each case over dates and commits; lasting changes that are more than the noise
between runs are marked (docs/compare.md)."""

import math

import pandas

from .command import PICTURES, BadInput, Parser, ending, write_stdout
from .drawing import add_legend, new_figure, save, styles_of
from .history import (
    LEAST_CHANGE,
    RECENT,
    RISK,
    SCATTERS,
    change_text,
    history_of,
    least_count,
    levels,
    marked,
    newest,
    scatter_of,
)
from .matching import MACHINE, value_of
from .numbers import figure, percent, plural
from .record import cases, describe, load_all, rows_of, session_of
from .settings import TOLD, setting_text, telling

COLUMNS = (
    "started, commit, rate, spread of the steps, fastest step, against the median of its level"
)
HASH_LETTERS = 18  # of a commit in a row
TITLE = "speed of the fastest steps relative to the first run; ▲▼: a lasting change; hollow: noisy"


def histories(runs):
    """{what tells a case from the others: its valid measurements on one machine, with their
    changes}."""
    known = cases(runs)
    known = known[known.valid].reset_index(drop=True)
    if known.empty:
        raise BadInput("no file has a valid case")
    # describe() names the others.
    told = telling(known, [name for name in TOLD if name not in ("ranks", "groups", "context")])
    for name in MACHINE:
        known[name] = [value_of(name, case) for case in rows_of(known)]
    differ = [name for name in MACHINE if known[name].nunique() > 1]
    parts = known.groupby(["identity", *MACHINE], sort=False)
    found = {}
    for number, (_, some) in enumerate(parts):
        case = some.iloc[0]
        words = [f"{number}: {describe(case)}"]
        words += [setting_text(name, case[name]) for name in told]
        words += [f"{name} {case[name]}" for name in differ]
        found[", ".join(words)] = marked(history_of(some), RISK / len(parts))
    return found


def verdict(history, risk):
    """What the history says, in a sentence."""
    count = int(history.counts.sum())
    noisy = len(history) - count
    left_out = f"; {plural(noisy, 'noisy run')} did not count" if noisy else ""
    if count < least_count(risk):
        there = plural(count, "run")
        return f"unknown: {there}, {least_count(risk)} or more can show a change{left_out}"
    parts = levels(history)
    scatter = scatter_of(*parts)
    least = max(LEAST_CHANGE, math.expm1(SCATTERS * scatter))
    seen = f"changes below {least:.1%} would not be seen (runs scatter by {scatter:.1%})"
    run = newest(history)
    if run is None:
        said = f"no change in {count} runs"
    else:
        said = f"{change_text(run)}, since {run.started} ({plural(len(parts[-1]), 'run')})"
    return f"{said}; {seen}{left_out}"


# For people.


def table(name, history, risk):
    """Its rows, and what they say."""
    against = history.fastest / history.groupby("level").fastest.transform("median") - 1
    hashes = [session_of(run).get("git_hash", "") for run in rows_of(history)]
    told = [
        "noisy, does not count" if not run.counts else change_text(run) if run.ratio > 0 else ""
        for run in rows_of(history)
    ]
    columns = [
        history.started,
        pandas.Series(hashes).str[:HASH_LETTERS],
        history.tokens_per_s.map(figure) + " token/s",
        "spread " + history.spread.map(percent),
        history.fastest.map("{:.4g} s".format),
        against.map("{:+.1%}".format).where(history.counts, ""),
        pandas.Series(told),
    ]
    rows = zip(*(column.str.ljust(column.str.len().max()) for column in columns))
    text = "".join(f"  {'  '.join(row)}".rstrip() + "\n" for row in rows)
    return f"# {name}\n# {COLUMNS}\n{text}# {verdict(history, risk)}\n"


def draw_history(axes, label, style, history):
    dates = pandas.to_datetime(history.started, format="ISO8601", utc=True, errors="coerce")
    speeds = history.fastest[0] / history.fastest
    axes.plot(dates, speeds, label=label, **style)
    hollow = {"marker": "o", "markerfacecolor": "white", "color": style["color"]}
    axes.plot(dates[~history.counts], speeds[~history.counts], linestyle="", **hollow)
    for at, ratio in history.ratio.dropna().items():
        axes.annotate("▼" if ratio > 1 else "▲", (dates[at], speeds[at]))


def draw(found):
    """The figure: a line for each history; noisy runs are hollow."""
    drawn, styles = new_figure(6.5, 3.5), styles_of(found)
    axes = drawn.subplots()
    for number, (name, history) in enumerate(found.items()):
        draw_history(axes, f"{history.schedule[0]} ({number})", styles[name], history)
    axes.set_title(TITLE, loc="left", fontsize=9)
    axes.tick_params(axis="x", rotation=30)
    add_legend(drawn, axes)
    return drawn


def closing(found):
    """(whether the newest change of a case is slower, and not more than ten runs old; the line)."""
    count = len(found)
    changes = {
        name: newest(history)
        for name, history in found.items()
        if (history.level == history.level.max()).sum() <= RECENT
    }
    changes = {name: run for name, run in changes.items() if run is not None}
    for is_slower, word in ((True, "SLOWER"), (False, "FASTER")):
        some = [(name, run) for name, run in changes.items() if (run.ratio > 1) == is_slower]
        if some:
            name, run = some[0]
            return is_slower, (
                f"TREND: {word}: {len(some)} of {plural(count, 'case')}, first {name}: "
                f"{change_text(run)}, since {run.started}"
            )
    least = least_count(RISK / count)
    unknown = sum(int(history.counts.sum()) < least for history in found.values())
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
    kind, what = ending(*PICTURES), "draw it too (.png, .svg, .pdf)"
    parser.add_argument("-o", "--output", metavar="OUT", type=kind, help=what)
    parser.add_argument(
        "--fail",
        action="store_true",
        help="exit code 1 if the newest change of a case is slower, and began in its "
        f"newest {RECENT} runs that count",
    )
    options = parser.parse_args(words)
    found = histories(load_all(options.files))
    for name, history in found.items():
        write_stdout(table(name, history, RISK / len(found)))
    if options.output:
        save(draw(found), options.output)
        write_stdout(f"{options.output}\n")
    slower, said = closing(found)
    write_stdout(f"{said}\n")
    return int(slower and options.fail)
