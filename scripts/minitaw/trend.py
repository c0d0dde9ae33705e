# SPDX-License-Identifier: BSD-3-Clause
"""The rate of each case over dates and commits; lasting changes that are more than the noise
between runs are marked (docs/ci.md)."""

import math

import pandas

from .command import PICTURES, BadInput, Parser, ending, write_stdout
from .drawing import add_legend, new_figure, save, styles_of
from .history import (
    MOST_UNSEEN,
    RECENT,
    RISK,
    change_text,
    history_of,
    least_change,
    least_count,
    marked,
    newest,
    possible,
    word_of,
)
from .matching import MACHINE, value_of
from .numbers import figure, percent, plural
from .record import cases, describe, load_all, rows_of, session_of
from .settings import TOLD, setting_text, telling

COLUMNS = (
    "started, commit, rate, spread of the steps, fastest step, against the median of its level"
)
HASH_LETTERS = 18  # of a commit in a row
TITLE = "speed of the fastest steps relative to the first run; ▲▼: a lasting change"
WORDS = ["SLOWER", "UNKNOWN", "FASTER", "SAME"]  # the sooner, the more serious


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


def unknown(history, risk):
    """Why nothing can be said of the newest runs; empty if something can."""
    count, least = len(history), least_count(risk)
    if count < least:
        return f"{plural(count, 'run')}, {least} or more can show a change"
    found = possible(history)
    if found:
        runs, change = plural(found[0], "run"), math.expm1(found[1])
        word = word_of(1 + change)
        return f"newest {runs} {word}: step {change:+.1%}, too few to tell whether that lasts"
    change, scatter = least_change(history)
    if change > MOST_UNSEEN:
        return f"runs scatter by {scatter:.1%}, which hides changes below {change:.1%}"
    return ""


def verdict(history, risk):
    """(one of WORDS, what the history says in a sentence)."""
    run, why = newest(history), unknown(history, risk)
    said = f"no change in {plural(len(history), 'run')}"
    word = "SAME"
    if run is not None:
        level = (history.level == history.level.max()).sum()
        said = f"{change_text(run)}, since {run.started} ({plural(level, 'run')})"
        word = word_of(run.ratio).upper() if level <= RECENT else word
    if why and word != "SLOWER":
        return "UNKNOWN", f"unknown: {why}" if run is None else f"unknown: {why}; before: {said}"
    change, _ = least_change(history)
    return word, f"{said}; changes below {change:.1%} would not be seen"


# For people.


def table(name, history, risk):
    """Its rows, and what they say."""
    against = history.fastest / history.groupby("level").fastest.transform("median") - 1
    hashes = [session_of(run).get("git_hash", "") for run in rows_of(history)]
    told = [change_text(run) if run.ratio > 0 else "" for run in rows_of(history)]
    columns = [
        history.started,
        pandas.Series(hashes).str[:HASH_LETTERS],
        history.tokens_per_s.map(figure) + " token/s",
        "spread " + history.spread.map(percent),
        history.fastest.map("{:.4g} s".format),
        against.map("{:+.1%}".format),
        pandas.Series(told),
    ]
    rows = zip(*(column.str.ljust(column.str.len().max()) for column in columns))
    text = "".join(f"  {'  '.join(row)}".rstrip() + "\n" for row in rows)
    return f"# {name}\n# {COLUMNS}\n{text}# {verdict(history, risk)[1]}\n"


def draw_history(axes, label, style, history):
    dates = pandas.to_datetime(history.started, format="ISO8601", utc=True, errors="coerce")
    speeds = history.fastest[0] / history.fastest
    axes.plot(dates, speeds, label=label, **style)
    for at, ratio in history.ratio.dropna().items():
        axes.annotate("▼" if ratio > 1 else "▲", (dates[at], speeds[at]))


def draw(found):
    """The figure: a line for each history."""
    drawn, styles = new_figure(6.5, 3.5), styles_of(found)
    axes = drawn.subplots()
    for number, (name, history) in enumerate(found.items()):
        draw_history(axes, f"{history.schedule[0]} ({number})", styles[name], history)
    axes.set_title(TITLE, loc="left", fontsize=9)
    axes.tick_params(axis="x", rotation=30)
    add_legend(drawn, axes)
    return drawn


def closing(found):
    """(the word of all, the line)."""
    told = {name: verdict(history, RISK / len(found)) for name, history in found.items()}
    word = min((word for word, _ in told.values()), key=WORDS.index)
    some = [(name, said) for name, (its, said) in told.items() if its == word]
    count = f"{len(some)} of {plural(len(found), 'case')}"
    if word == "SAME":
        return word, f"TREND: SAME: {count}, no change of 10 % in the newest {RECENT} runs"
    name, said = some[0]
    why = said.removeprefix("unknown: ")
    return word, f"TREND: {word}: {count}, first {name}: {why}"


def main(words=None):
    parser = Parser(
        prog="trend",
        description="Lists the rate of each case over dates and commits, with its noise, and marks "
        "lasting changes (docs/ci.md).",
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
        f"newest {RECENT} runs",
    )
    options = parser.parse_args(words)
    runs = load_all(options.files)
    for file in runs.file.unique():
        if "unfinished" in file.verdict:
            write_stdout(f"# {file.path}: {file.verdict}\n")
    found = histories(runs)
    for name, history in found.items():
        write_stdout(table(name, history, RISK / len(found)))
    if options.output:
        save(draw(found), options.output)
        write_stdout(f"{options.output}\n")
    word, said = closing(found)
    write_stdout(f"{said}\n")
    return int(options.fail and word == "SLOWER")
