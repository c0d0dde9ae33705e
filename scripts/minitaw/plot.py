"""Throughput and memory against sequence length, and where the time of a step went, as pictures.

One column of panels for each number of ranks; in each, one line for every schedule (colour, marker) and grouping (dashes, marker). Dots
are medians, bars go from the first to the third quartile. Below, at the longest sequence, the step of each line in parts: computing,
waiting for transfers by kind, idle; means over ranks (docs/results.md). Cases that are not valid are left out and counted in the title.
"""

import pathlib

import matplotlib
import pandas

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

from .command import BadInput, Parser, put_out  # noqa: E402
from .record import load  # noqa: E402
from .report.markup import COLOURS, count_text  # noqa: E402

MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", "--", ":", "-."]
# What a line may differ in besides schedule, ranks and groups.
SETTINGS = ["replicas", "layers", "hidden", "heads", "kv_heads", "vocab", "ffn", "dtype", "recompute", "micro_batch", "micro_batch_per_rank",
            "micro_batches", "data"]
# Parts of a step in the order of the stack: column of the summary, name, colour, pattern.
PARTS = [
    ("compute_s", "computing", "#4d4d4d", ""),
    ("exposed_weights_s", "waiting for weights", "#D55E00", ""),
    ("exposed_gradients_s", "for gradients", "#E69F00", "////"),
    ("exposed_activations_s", "for activations", "#CC79A7", "...."),
    ("exposed_ends_s", "for embedding and head", "#F0E442", "xxxx"),
    ("idle_s", "idle", "#dddddd", ""),
]


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


def ranks_text(ranks):
    return f"{ranks} rank{'s' if ranks > 1 else ''}"


def draw_line(top, bottom, rows, style, scale):
    rates = rows.tokens_per_s.to_numpy()
    tokens = rates * rows.median_s.to_numpy()  # of a step
    spread = [rates - tokens / rows.q3_s.to_numpy(), tokens / rows.q1_s.to_numpy() - rates]
    (line, _, _) = top.errorbar(rows.seq.to_numpy(), rates, yerr=spread, capsize=2, elinewidth=0.8, **style)
    bottom.plot(rows.seq, rows.memory_measured / scale, **style)
    return line


def finish_panels(panels, table, unit):
    for ranks, (top, bottom, *_) in panels.items():
        if len(panels) > 1:
            top.set_title(ranks_text(ranks))
        for axes in (top, bottom):
            if axes is bottom or axes.get_subplotspec().is_last_row():
                axes.set_xlabel("sequence length [token]")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(FixedLocator(sorted(table.seq.unique())))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(round(value))))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_ylim(bottom=0)
            axes.grid(True, linewidth=0.4, alpha=0.5)
    first = next(iter(panels.values()))
    first[0].set_ylabel("throughput, all ranks [token/s]")
    first[1].set_ylabel(f"memory of the worst rank [{unit}]")


def bars_of(table):
    """Of each number of ranks the label and the row of every line at the longest sequence."""
    bars = {}
    for ranks, _, _, label, rows in lines_of(table):
        longest = table[table.ranks == ranks].seq.max()
        if rows.seq.iloc[-1] == longest and rows.compute_s.notna().iloc[-1]:
            bars.setdefault(ranks, []).append((label, rows.iloc[-1]))
    return bars


def draw_parts(axes, bars):
    """A stacked bar for every line. Returns the handles of the parts that there are."""
    scale, unit = (1, "s") if max(row.compute_s + row.idle_s for _, row in bars) >= 1 else (1000, "ms")
    positions = range(len(bars))
    left = [0.0] * len(bars)
    handles = {}
    for column, name, colour, pattern in PARTS:
        widths = [scale * row[column] for _, row in bars]
        if not any(widths):
            continue
        handles[name] = axes.barh(positions, widths, left=left, height=0.75, color=colour, hatch=pattern, edgecolor="white", linewidth=0.4)
        left = [begin + width for begin, width in zip(left, widths)]
    axes.set_yticks(positions, [label for label, _ in bars], fontsize="small")
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(f"step at {count_text(int(bars[0][1].seq))} tokens, mean over ranks [{unit}]")
    axes.grid(True, axis="x", linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
    return handles


def draw_all_parts(panels, bars):
    handles = {}
    for ranks, some in bars.items():
        handles |= draw_parts(panels[ranks][2], some)
    return handles


def add_legend(figure, handles):
    """Below the panels, in as many columns as fit."""
    longest = max(len(label) for label in handles)
    columns = max(1, min(len(handles), int(figure.get_figwidth() * 13 / (longest + 8))))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize="small", frameon=False)


def add_panels(figure, counts, heights):
    """Axes of each number of ranks, one below the other: the first two share their scale with their neighbours."""
    grid = figure.add_gridspec(len(heights), len(counts), height_ratios=heights)
    panels = {}
    for column, ranks in enumerate(counts):
        first = next(iter(panels.values()), None)
        axes = [figure.add_subplot(grid[row, column], sharey=first[row] if first else None) for row in range(2)]
        axes[0].tick_params(labelbottom=False)
        for shared in axes if first else []:
            shared.tick_params(labelleft=False)
        panels[ranks] = axes + [figure.add_subplot(grid[row, column]) for row in range(2, len(heights))]
    return panels


def make_panels(figure, counts, bars):
    """Axes of each number of ranks: throughput, memory and, if there are bars, parts of a step."""
    longest = 1 + 0.24 * max(map(len, bars.values())) if bars else 0
    if bars and len(counts) == 1:
        figure.set_size_inches(14, max(4.2, longest) + 1.3)
        return {counts[0]: figure.subplots(1, 3)}
    heights = [3.2, 3.2] + ([longest] if bars else [])
    figure.set_size_inches(max(5.5, (5.6 if bars else 4.2) * len(counts)), sum(heights) + 1.3)
    return add_panels(figure, counts, heights)


def draw(table, title):
    """The figure of all valid rows."""
    plt.rcParams["svg.hashsalt"] = "minitaw"  # the same file from the same numbers
    plt.rcParams["hatch.linewidth"] = 0.5
    figure = plt.figure(layout="constrained")
    bars = bars_of(table)
    panels = make_panels(figure, sorted(table.ranks.unique()), bars)
    scale, unit = memory_unit(table)
    numbers = {schedule: number for number, schedule in enumerate(table.schedule.unique())}
    kinds = {}
    handles = {}
    for ranks, schedule, kind, label, rows in lines_of(table):
        n = kinds.setdefault(kind, len(kinds))
        again, colour = divmod(numbers[schedule], len(COLOURS))  # where there are more schedules than colours
        style = {"color": COLOURS[colour], "marker": MARKERS[(n + numbers[schedule] + 3 * again) % len(MARKERS)], "markersize": 5,
                 "linestyle": DASHES[(n + again) % len(DASHES)], "linewidth": 1.4}
        handles.setdefault(label, draw_line(*panels[ranks][:2], rows, style, scale))
    finish_panels(panels, table, unit)
    if bars:
        handles |= draw_all_parts(panels, bars)
    add_legend(figure, handles)
    figure.suptitle(title, fontsize="medium")
    return figure


def title_of(table, valid):
    model = valid.iloc[0]
    text = f"{model.layers} layers, hidden {model.hidden}, {model['dtype']}"
    if valid[["layers", "hidden", "dtype"]].drop_duplicates().shape[0] > 1:
        text = "several models"
    if valid.ranks.nunique() == 1:
        text = f"{ranks_text(model.ranks)}, {text}"
    left_out = len(table) - len(valid)
    return text + (f" ({left_out} of {len(table)} cases not valid, left out)" if left_out else "")


def prefix_of(name, output):
    stem = pathlib.Path(name).with_suffix("")
    if output is None:
        return stem
    return pathlib.Path(output) / stem.name if output.endswith("/") or pathlib.Path(output).is_dir() else pathlib.Path(output)


def plot(name, output):
    table = pandas.DataFrame([case.row for case in load(name).cases])
    valid = table[table.verdict.str.startswith("VALID")] if len(table) else table
    if valid.empty:
        raise BadInput(f"{name} has no valid case to plot ({len(table)} in all)")
    prefix = prefix_of(name, output)
    if not prefix.parent.is_dir():
        raise BadInput(f"there is no folder {prefix.parent} to write to")
    figure = draw(valid, title_of(table, valid))
    for suffix in (".png", ".svg"):
        target = prefix.with_name(prefix.name + suffix)
        figure.savefig(target, dpi=150, metadata={"Date": None} if suffix == ".svg" else None)
        put_out(f"{target}\n")


def main(words=None):
    parser = Parser(prog="plot", description=__doc__)
    parser.add_argument("file", metavar="FILE.h5", help="result file of minitaw run")
    parser.add_argument("-o", "--output", metavar="PREFIX", help="name of the pictures without suffix, or a folder")
    options = parser.parse_args(words)
    try:
        plot(options.file, options.output)
    except OSError as error:
        raise BadInput(f"the pictures cannot be written: {error.strerror}") from error
