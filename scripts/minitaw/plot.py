"""Bytes between groups, throughput and memory against sequence length, and where the time of a step went, as pictures: a column of panels
for each number of ranks. Cases that are not valid are left out and counted in the title."""

import pathlib

from .command import BadInput, Parser, put_out
from .figures import (SETTINGS, at_longest, count_text, draw_rates_and_memory, draw_step, draw_traffic, exists, grouped, legend_below, new_figure, save, setting_text,
                      styles_of, telling)
from .record import load


def naming_of(cases):
    """Schedule, and what else differs between cases with the same number of ranks and tokens."""
    varied = dict.fromkeys(name for some in grouped(cases, lambda case: case["ranks"]).values() for name in telling(some, ("schedule", "seq", *SETTINGS)))
    varied = [name for name in varied if name not in ("schedule", "seq")]
    return lambda case: ", ".join([case["schedule"], *[setting_text(name, case[name]) for name in varied]])


def draw(cases, title):
    columns, naming = [some for _, some in sorted(grouped(cases, lambda case: case["ranks"]).items())], naming_of(cases)
    styles, several = styles_of(map(naming, cases)), len({case["seq"] for case in cases}) > 1
    longest = [at_longest(some)[1] for some in columns]
    bars = 1.2 + 0.27 * max(map(len, longest))
    if len(columns) == 1:
        drawn = new_figure(13, 2 * max(3.6 if several else 0, bars) + 0.9)
        panels = [list(drawn.subplots(2, 2).flat)]
    else:
        heights = [bars, *([3.2] * 2 if several else [bars] * 2), bars]
        drawn = new_figure(6 * len(columns), sum(heights) + 0.9 + 0.2 * len(styles))
        panels = drawn.subplots(4, len(columns), gridspec_kw={"height_ratios": heights}).T
    for axes, some, last in zip(panels, columns, longest):
        at = f"at {count_text(last[0]['seq'])} tokens"
        if len(columns) > 1:
            axes[0].set_title(setting_text("ranks", some[0]["ranks"]))
        moved = [case for case in last if case["bytes_between"] > 0]
        if moved:
            draw_traffic(axes[0], last, naming, 0, f"bytes sent between groups {at}, exact")
        else:
            axes[0].axis("off")
        draw_rates_and_memory(axes[1:3], some, styles, naming, several)
        timed = [case for case in last if exists(case["compute_s"])]
        draw_step(axes[3], timed, naming, f"step {at}, mean over ranks") if timed else axes[3].axis("off")
    legend_below(drawn, *(axes[i] for axes in panels for i in ([1] if several else []) + [0, 3]), columns=max(2, int(drawn.get_figwidth() / 2.5)))
    drawn.suptitle(title, fontsize="medium")
    return drawn


def title_of(cases, count):
    """What all cases share of what a reader has to know, the shape of links, and how many cases are left out."""
    same = [setting_text(name, cases[0][name]) for name in ("ranks", "groups", "layers", "hidden", "micro_batches", "dtype") if len({case[name] for case in cases}) == 1]
    links = dict.fromkeys(" ".join(case.session.get("links", [])) for case in cases)
    bad = f"{count - len(cases)} of {count} cases not valid, left out" if count > len(cases) else ""
    noisy = sum(bool(case.doubt) for case in cases)
    return "; ".join(filter(None, [", ".join(same), *(f"links between nodes: {text}" for text in links if text), bad,
                                   f"{noisy} of {len(cases)} cases in doubt (noisy or no warm-up)" if noisy else ""]))


def main(words=None):
    parser = Parser(prog="plot", description=__doc__)
    parser.add_argument("file", metavar="FILE.h5", help="result file of minitaw run")
    parser.add_argument("-o", "--output", metavar="PREFIX", help="name of the pictures without suffix, or a folder")
    options = parser.parse_args(words)
    cases = load(options.file).cases
    valid = [case for case in cases if case.valid]
    if not valid:
        raise BadInput(f"{options.file} has no valid case to plot ({len(cases)} in all)")
    stem, output = pathlib.Path(options.file).with_suffix(""), options.output
    prefix = stem if output is None else pathlib.Path(output, stem.name) if output.endswith("/") or pathlib.Path(output).is_dir() else pathlib.Path(output)
    if not prefix.parent.is_dir():
        raise BadInput(f"there is no folder {prefix.parent} to write to")
    drawn = draw(valid, title_of(valid, len(cases)))
    for suffix in (".png", ".svg"):
        save(drawn, f"{prefix}{suffix}")
        put_out(f"{prefix}{suffix}\n")
