#!/usr/bin/env python3
"""plot.py FILE.h5 [-o PREFIX]: throughput and memory against sequence length.

Draws PREFIX.png and PREFIX.svg (default: the name of the file without .h5; a folder: that name in the folder). One column of
panels for each number of ranks; in each, one line for every schedule (colour) and grouping (marker and dashes). Dots are medians,
bars go from the first to the third quartile. Cases that are not valid are left out and counted in the title.
"""

import argparse
import itertools
import pathlib
import sys

# Okabe and Ito: told apart with every common colour blindness, and in print.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", "--", ":", "-."]
# What a line may differ in besides schedule, ranks and groups.
SETTINGS = ["layers", "hidden", "heads", "kv_heads", "vocab", "ffn", "dtype", "recompute", "micro_batch", "micro_batches", "data"]
SCHEMA = 2


class BadInput(Exception):
    """The user's file cannot be plotted; the message says why."""


def read_summary(name):
    """The summary as a pandas table (docs/results.md)."""
    import h5py
    import pandas

    try:
        with h5py.File(name) as file:
            if file.attrs.get("format") != "minitaw" or "schema" not in file.attrs:
                raise BadInput(f"{name} is an HDF5 file, but not a miniTaw result")
            if file.attrs["schema"] > SCHEMA:
                raise BadInput(f"{name} has schema version {file.attrs['schema']}, this script reads up to {SCHEMA}")
            columns = file["summary"].items()
            return pandas.DataFrame(
                {key: data.asstr()[:] if data.attrs["units"] == "text" else data[:] for key, data in columns})
    except (OSError, KeyError, ValueError) as error:
        reason = "there is no such file" if not pathlib.Path(name).exists() else "it is not an HDF5 file, or it is damaged"
        raise BadInput(f"{name} cannot be read: {reason}") from error


def lines_of(table):
    """Tables of one line each, with a label that tells them apart within their panel."""
    varied = [name for name in SETTINGS if table[name].nunique() > 1]
    # Micro-batches that only follow the number of ranks are no difference within a panel.
    varied = [name for name in varied if table.groupby("ranks")[name].nunique().max() > 1]
    for key, rows in table.groupby(["ranks", "schedule", "groups", *varied], sort=False):
        ranks, schedule, groups, *others = key
        label = f"{schedule}, groups {groups}" + "".join(f", {name} {value}" for name, value in zip(varied, others))
        yield ranks, schedule, (groups, *others), label, rows.sort_values("seq")


def memory_unit(table):
    largest = table.memory_measured.max()
    return (2**30, "GiB") if largest >= 2**30 else (2**20, "MiB") if largest >= 2**20 else (2**10, "KiB")


def length_text(tokens):
    return f"{tokens // 1024}K" if tokens >= 1024 and tokens % 1024 == 0 else f"{tokens}"


def draw_line(top, bottom, rows, style, scale):
    rates = rows.tokens_per_s.to_numpy()
    tokens = rates * rows.median_s.to_numpy()  # of a step
    spread = [rates - tokens / rows.q3_s.to_numpy(), tokens / rows.q1_s.to_numpy() - rates]
    (line, _, _) = top.errorbar(rows.seq.to_numpy(), rates, yerr=spread, capsize=2, elinewidth=0.8, **style)
    bottom.plot(rows.seq, rows.memory_measured / scale, **style)
    return line


def finish_panels(panels, table, unit):
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    for ranks, (top, bottom) in panels.items():
        top.set_title(f"{ranks} rank{'s' if ranks > 1 else ''}")
        bottom.set_xlabel("sequence length [token]")
        for axes in (top, bottom):
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(FixedLocator(sorted(table.seq.unique())))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: length_text(round(value))))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_ylim(bottom=0)
            axes.grid(True, linewidth=0.4, alpha=0.5)
    first = next(iter(panels.values()))
    first[0].set_ylabel("throughput, all ranks [token/s]")
    first[1].set_ylabel(f"memory of the worst rank [{unit}]")


def add_legend(figure, handles):
    """Below the panels, in as many columns as fit."""
    longest = max(len(label) for label in handles)
    columns = max(1, min(len(handles), int(figure.get_figwidth() * 10 / (longest + 8))))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize="small", frameon=False)


def draw(table, title):
    """The figure of all valid rows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "minitaw"  # the same file from the same numbers
    counts = sorted(table.ranks.unique())
    figure, grid = plt.subplots(2, len(counts), figsize=(max(5.5, 4.2 * len(counts)), 7.5), sharex=True, sharey="row",
                                squeeze=False, layout="constrained")
    panels = {ranks: grid[:, column] for column, ranks in enumerate(counts)}
    scale, unit = memory_unit(table)
    colours = dict(zip(table.schedule.unique(), itertools.cycle(COLOURS)))
    kinds = {}
    handles = {}
    for ranks, schedule, kind, label, rows in lines_of(table):
        n = kinds.setdefault(kind, len(kinds))
        style = {"color": colours[schedule], "marker": MARKERS[n % len(MARKERS)], "markersize": 5,
                 "linestyle": DASHES[n % len(DASHES)], "linewidth": 1.4}
        handles.setdefault(label, draw_line(*panels[ranks], rows, style, scale))
    finish_panels(panels, table, unit)
    add_legend(figure, handles)
    figure.suptitle(title, fontsize="medium")
    return figure


def title_of(table, valid):
    model = valid.iloc[0]
    text = f"{model.layers} layers, hidden {model.hidden}, {model['dtype']}"
    if valid[["layers", "hidden", "dtype"]].drop_duplicates().shape[0] > 1:
        text = "several models"
    left_out = len(table) - len(valid)
    return text + (f" ({left_out} of {len(table)} cases not valid, left out)" if left_out else "")


def prefix_of(name, output):
    stem = pathlib.Path(name).with_suffix("")
    if output is None:
        return stem
    return pathlib.Path(output) / stem.name if output.endswith("/") or pathlib.Path(output).is_dir() else pathlib.Path(output)


def plot(name, output):
    table = read_summary(name)
    valid = table[table.verdict == "VALID"]
    if valid.empty:
        raise BadInput(f"{name} has no valid case to plot ({len(table)} in all)")
    prefix = prefix_of(name, output)
    if not prefix.parent.is_dir():
        raise BadInput(f"there is no folder {prefix.parent} to write to")
    figure = draw(valid, title_of(table, valid))
    for suffix in (".png", ".svg"):
        target = prefix.with_name(prefix.name + suffix)
        figure.savefig(target, dpi=150, metadata={"Date": None} if suffix == ".svg" else None)
        print(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE.h5", help="result file of minitaw run")
    parser.add_argument("-o", "--output", metavar="PREFIX", help="name of the pictures without suffix, or a folder")
    arguments = parser.parse_args()
    try:
        plot(arguments.file, arguments.output)
    except ImportError as error:
        sys.exit(f"plot.py: needs Python with h5py, pandas and matplotlib ({error}); scripts/env brings them")
    except (BadInput, OSError) as error:
        print(f"plot.py: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
