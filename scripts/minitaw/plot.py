"""Throughput and memory against sequence length, and where the time of a step went, as pictures: one column of panels for each number of
ranks, a line for each schedule and grouping. Cases that are not valid are left out and counted in the title."""

import pathlib

from .command import BadInput, Parser, put_out
from .figures import (
    SETTINGS, STEP_PARTS, at_longest, axis_of_counts, byte_unit, count_text, draw_bars, draw_lines, exists, grouped, legend_below, new_figure, plural,
    rate_whiskers, save, setting_text, styles_of, telling, time_unit)
from .record import load


def naming_of(cases):
    """Schedule and groups, and what else differs between cases with the same number of ranks."""
    varied = list(dict.fromkeys(name for some in grouped(cases, lambda case: case["ranks"]).values()
                                for name in telling(some, ("schedule", "groups", "seq", *SETTINGS)) if name not in ("schedule", "groups", "seq")))
    return lambda case: ", ".join([case["schedule"], f"groups {case['groups']}", *[setting_text(name, case[name]) for name in varied]])


def draw(cases, title):
    by_ranks, naming = dict(sorted(grouped(cases, lambda case: case["ranks"]).items())), naming_of(cases)
    styles, names = styles_of(map(naming, cases)), {naming(case) for case in cases}
    divisor, unit = byte_unit(max(case["memory_measured"] for case in cases))
    bars = {ranks: [case for case in at_longest(some)[1] if exists(case["compute_s"])] for ranks, some in by_ranks.items()}
    longest = 1 + 0.3 * max(map(len, bars.values()))
    if len(by_ranks) == 1:
        drawn = new_figure(15, max(4.5, longest) + 0.8 + 0.07 * len(names))
        columns = [drawn.subplots(1, 3)]
    else:
        drawn = new_figure(6 * len(by_ranks), 6.4 + longest + 0.8 + 0.2 * len(names))
        columns = drawn.subplots(3, len(by_ranks), gridspec_kw={"height_ratios": [3.2, 3.2, longest]}).T
    for axes, (ranks, some) in zip(columns, by_ranks.items()):
        draw_lines(axes[0], some, styles, naming, lambda case: case["tokens_per_s"], whiskers=rate_whiskers)
        draw_lines(axes[1], some, styles, naming, lambda case: case["memory_measured"] / divisor)
        axes[0].set_title(plural(ranks, "rank"))
        axes[0].set_ylabel("throughput, all ranks [token/s]")
        axes[1].set_ylabel(f"memory of the worst rank [{unit}]")
        for one in axes[:2]:
            axis_of_counts(one, [case["seq"] for case in some], "sequence length [token]")
        second, name = time_unit(max((case["compute_s"] + case["idle_s"] for case in bars[ranks]), default=1))
        rows = [(naming(case), [case[column] / second for column in STEP_PARTS], None, None) for case in bars[ranks]]
        draw_bars(axes[2], rows, list(STEP_PARTS.values()), f"step at {count_text(at_longest(some)[0])} tokens, mean over ranks [{name}]")
    legend_below(drawn, *(one for axes in columns for one in (axes[0], axes[2])), columns=max(2, int(drawn.get_figwidth() / 3)))
    drawn.suptitle(title, fontsize="medium")
    return drawn


def plot(name, output):
    cases = load(name).cases
    valid = [case for case in cases if case.valid]
    if not valid:
        raise BadInput(f"{name} has no valid case to plot ({len(cases)} in all)")
    stem = pathlib.Path(name).with_suffix("")
    prefix = stem if output is None else pathlib.Path(output) / stem.name if output.endswith("/") or pathlib.Path(output).is_dir() else pathlib.Path(output)
    if not prefix.parent.is_dir():
        raise BadInput(f"there is no folder {prefix.parent} to write to")
    models = {", ".join(setting_text(column, case[column]) for column in ("layers", "hidden", "dtype")) for case in valid}
    bad = len(cases) - len(valid)
    drawn = draw(valid, (models.pop() if len(models) == 1 else "several models") + (f" ({bad} of {len(cases)} cases not valid, left out)" if bad else ""))
    for suffix in (".png", ".svg"):
        save(drawn, f"{prefix}{suffix}")
        put_out(f"{prefix}{suffix}\n")


def main(words=None):
    parser = Parser(prog="plot", description=__doc__)
    parser.add_argument("file", metavar="FILE.h5", help="result file of minitaw run")
    parser.add_argument("-o", "--output", metavar="PREFIX", help="name of the pictures without suffix, or a folder")
    options = parser.parse_args(words)
    plot(options.file, options.output)
