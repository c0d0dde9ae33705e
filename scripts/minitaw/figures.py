"""What report, plot and timeline share: numbers as a reader wants them, which cases belong together, and drawings by matplotlib that
are the same bytes for the same file."""

import io
import math
import pathlib
import re
import textwrap

import matplotlib
import numpy
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .command import BadInput
from .record import exists

matplotlib.rcParams.update({"svg.hashsalt": "minitaw", "svg.fonttype": "none", "text.parse_math": False, "font.size": 9, "hatch.linewidth": 0.5, "axes.axisbelow": True,
                            "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})

# Control characters may be in texts of a file, and nowhere in a page.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")
# Okabe and Ito: told apart with every common colour blindness. Markers, dashes and hatches do the same in grey print.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", "--", ":", "-."]
MEMORY_KINDS = [("weights", "#0072b2", ""), ("gradients", "#d55e00", ""), ("optimiser", "#009e73", "////"), ("activations", "#cc79a7", "\\\\\\\\"),
                ("buffers", "#8a8a8a", "")]
TRAFFIC_KINDS = [("weights", "#d55e00", ""), ("gradients", "#e69f00", "////"), ("activations", "#cc79a7", "\\\\\\\\"), ("embedding and head", "#56b4e9", "xxxx")]
# Of a step: column of the summary; name, colour and hatch.
STEP_PARTS = {"compute_s": ("computing", "#4d4d4d", ""), "exposed_weights_s": ("waiting for weights", "#d55e00", ""),
              "exposed_gradients_s": ("for gradients", "#e69f00", "////"), "exposed_activations_s": ("for activations", "#cc79a7", "\\\\\\\\"),
              "exposed_embeddings_s": ("for embedding and head", "#56b4e9", "xxxx"), "idle_s": ("idle", "#c8c8c8", "")}

# Numbers.


def figure(value, digits=4):
    """So many significant digits, no exponent, thousands set apart: 12 407, 0.1652."""
    if not exists(value) or math.isinf(value):
        return "–"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    places = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    if not -12 < places < 12:
        return f"{value:.{digits - 1}e}"
    return f"{round(value, places):,.{max(places, 0)}f}".replace(",", "\u202f")


def percent(value, places=1):
    return f"{100 * value:.{places}f} %" if exists(value) else "–"


def byte_unit(largest):
    """Divisor and name so that the largest of some values is a handy number."""
    return next(((1024**power, name) for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")) if largest >= 1024**power), (1, "B"))


def time_unit(largest):
    return next(((divisor, name) for divisor, name in ((1, "s"), (1e-3, "ms")) if largest >= divisor), (1e-6, "µs"))


def with_unit(value, unit_of):
    if not exists(value):
        return "–"
    divisor, unit = unit_of(abs(value))
    return f"{figure(value if divisor == 1 else value / divisor)} {unit}"


def bytes_text(value):
    return with_unit(value, byte_unit)


def rate_text(value):
    """Of GB/s."""
    return f"{figure(value)} GB/s" if exists(value) else "–"


def seconds_text(value):
    return with_unit(value, time_unit)


def count_text(tokens):
    """As decks write it: 8K is 8192."""
    return next((f"{tokens // size}{letter}" for size, letter in ((1024**2, "M"), (1024, "K")) if tokens >= size and tokens % size == 0), f"{tokens}")


def plural(count, thing):
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def listed(items, most=8):
    items = [str(item) for item in items]
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


# Which cases belong together. The settings stand in the order in which they tell panels apart.

SETTINGS = {"ranks": "ranks", "groups": "groups", "replicas": "copies", "hidden": "hidden", "layers": "layers", "dtype": "", "recompute": "recompute",
            "micro_batches": "M =", "micro_batch": "B =", "micro_batch_per_rank": "B of each rank", "vocab": "vocabulary", "heads": "heads",
            "kv_heads": "key/value heads", "ffn": "feed-forward width", "data": "tokens", "attention": "attention", "transport": "transport",
            "seed": "seed", "learning_rate": "learning rate"}
COUNTED = ("ranks", "layers", "heads", "kv_heads", "replicas")


def setting_text(name, value):
    """"4 ranks", "groups 2+2", "M = 16"."""
    word = SETTINGS[name]
    if name in COUNTED:
        return f"{value} {word if value != 1 else 'copy' if name == 'replicas' else word.removesuffix('s')}"
    return f"{word} {value}".strip()


def telling(cases, settings=tuple(SETTINGS)):
    """The settings that tell these cases apart, without those that follow from others."""
    chosen, parts = [], 1
    for name in settings:
        count = len({tuple(case[s] for s in [*chosen, name]) for case in cases})
        if count > parts:
            chosen, parts = [*chosen, name], count
    return chosen


def shared_settings(cases):
    """Texts of the settings that all cases have in common."""
    first = {name: case[name] for case in cases[:1] for name in SETTINGS}
    return [setting_text(name, value) for name, value in first.items()
            if value not in ("", "auto") and (name, value) != ("replicas", 1) and all(case[name] == value for case in cases)]


def grouped(cases, key):
    found = {}
    for case in cases:
        found.setdefault(key(case), []).append(case)
    return found


def panels(cases):
    """[(title, cases)]: cases that are alike but for schedule and sequence length. The title says what tells a panel from the others."""
    names = telling(cases)
    parts = grouped(cases, lambda case: tuple(case[name] for name in names))
    return [(", ".join(map(setting_text, names, key)), some) for key, some in parts.items()]


def at_longest(cases):
    """The longest sequence that has a valid case, and the cases at it."""
    longest = max([case["seq"] for case in cases if case.valid] or [case["seq"] for case in cases])
    return longest, [case for case in cases if case["seq"] == longest]


def styles_of(names):
    """One look for each name, in the order of their first appearance."""
    return {name: {"color": COLOURS[i % 8], "marker": MARKERS[(i + 3 * (i // 8)) % 8], "linestyle": DASHES[(i + i // 8) % 4], "markersize": 5,
                   "linewidth": 1.4} for i, name in enumerate(dict.fromkeys(names))}


# Drawings.

def new_figure(width=4.8, height=2.6, margin=0.1):
    """Inches. A page shows 4.8 inches on the width of a phone. The margin is for letters of a browser that are wider than ours."""
    drawn = Figure(figsize=(width, height), layout="constrained")
    drawn.get_layout_engine().set(w_pad=margin)
    return drawn


def short(name, width=26):
    """On two lines at most."""
    name = FORBIDDEN.sub("\ufffd", name)
    return "\n".join(textwrap.wrap(name if len(name) <= 2 * width else f"{name[:width]}…{name[1 - width:]}", width)) or "–"


def legend_below(drawn, *axes, columns=2, order=()):
    handles = {label: handle for one in axes for handle, label in zip(*one.get_legend_handles_labels())}
    handles = {label: handles[label] for label in [*order, *handles] if label in handles}
    if handles:
        labels = [short(label, 34) for label in handles]
        columns = min(columns, int(drawn.get_figwidth() * 72 / (45 + 5.5 * max(len(line) for label in labels for line in label.split("\n")))))
        drawn.legend(handles.values(), labels, loc="outside lower left", ncols=max(1, columns), fontsize=9)


def draw_lines(axes, cases, styles, naming, value, x=lambda case: case["seq"], whiskers=None):
    """A line for each name. whiskers(case): low and high end. A cross at the foot: a case that is not valid."""
    for name, some in grouped(cases, naming).items():
        good = sorted((case for case in some if case.valid), key=x)
        xs, ys = [x(case) for case in good], numpy.array([value(case) for case in good])
        ends = numpy.abs(numpy.array([whiskers(case) for case in good]).T - ys) if whiskers and good else None
        axes.errorbar(xs, ys, yerr=ends, capsize=3, elinewidth=0.9, label=name, **styles[name])
        bad = [x(case) for case in some if not case.valid]
        if bad:
            axes.plot(bad, [0.04] * len(bad), "x", color=styles[name]["color"], transform=axes.get_xaxis_transform(), zorder=5)
    axes.set_ylim(0, 1.06 * max(axes.get_ylim()[1], 1e-12))
    axes.grid(True, color="#808080", alpha=0.25, linewidth=0.6)


def axis_of_counts(axes, counts, label):
    """A logarithmic axis with a mark at each of these."""
    counts = sorted(set(counts))
    if len(counts) > 1 and counts[-1] / counts[0] > 2:
        axes.set_xscale("log", base=2)
    if len(counts) > 8:
        counts = counts[::math.ceil(len(counts) / 8)]
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(round(value))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)
    axes.margins(x=0.08)


def draw_bars(axes, rows, parts, label):
    """A stacked bar for each row. rows: [(name, values of the parts, plan or None, low and high end of a whisker or None)]; parts: [(name,
    colour, hatch)]. A row without values stays empty, which says that there are none."""
    left = numpy.zeros(len(rows))
    values = numpy.nan_to_num([row[1] if len(row[1]) else [0] * len(parts) for row in rows]).reshape(len(rows), len(parts))
    for (name, colour, hatch), widths in zip(parts, values.T):
        if widths.any():
            axes.barh(range(len(rows)), widths, left=left, height=0.7, color=colour, hatch=hatch, edgecolor="#ffffff", linewidth=0.4, label=name)
            left = left + widths
    for y, (_, _, plan, ends) in enumerate(rows):
        if plan is not None:
            axes.plot([plan, plan], [y - 0.45, y + 0.45], color="#ffffff", linewidth=4)
            axes.plot([plan, plan], [y - 0.45, y + 0.45], color="#000000", linewidth=1.6, label="planned")
        if ends:
            axes.errorbar([sum(ends) / 2], [y], xerr=(ends[1] - ends[0]) / 2, color="#000000", capsize=3, elinewidth=1, linestyle="", label="_whisker")
    axes.set_yticks(range(len(rows)), [short(row[0]) for row in rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    axes.grid(True, axis="x", color="#808080", alpha=0.25, linewidth=0.6)


def bars_figure(names, parts, draw):
    """A figure of its own of bars of so many parts; draw(axes) fills it."""
    drawn = new_figure(height=0.75 + 0.3 * sum(1 + 0.4 * short(name).count("\n") for name in names) + 0.2 * ((len(parts) + 2) // 2))
    axes = drawn.subplots()
    draw(axes)
    legend_below(drawn, axes)
    return drawn


def draw_rates_and_memory(axes, cases, styles, naming, lines):
    """Throughput on the first of two axes, memory on the second: over the sequence length with `lines`, else as bars."""
    def rate_whiskers(case):  # of the third and of the first quartile of the step times
        return [case.tokens / case[name] if case[name] > 0 else case["tokens_per_s"] for name in ("q3_s", "q1_s")]

    divisor, unit = byte_unit(max(case["memory_measured"] for case in cases if case.valid))
    for one, column, scale, label, ends in ((axes[0], "tokens_per_s", 1, "throughput [token/s], whiskers: quartiles", rate_whiskers),
                                            (axes[1], "memory_measured", divisor, f"memory of the worst rank [{unit}]", None)):
        one.set_title(label, loc="left", fontsize=9)
        if lines:
            draw_lines(one, cases, styles, naming, lambda case: case[column] / scale, whiskers=ends)
            axis_of_counts(one, [case["seq"] for case in cases], "sequence length [token]")
        else:
            draw_bars(one, [(naming(c), [c[column] / scale] if c.valid else [], None, ends(c) if ends and c.valid else None) for c in cases],
                      [("", "#0072b2", "")], "")


def draw_traffic(axes, cases, naming, which, label):
    """Bytes counted between groups (which = 0) or inside (1) by kind, the plan as a mark."""
    divisor, unit = byte_unit(max(case.traffic(name)[which].sum() for case in cases for name in ("counted", "planned")))
    draw_bars(axes, [(naming(c), c.traffic("counted")[which] / divisor, c.traffic("planned")[which].sum() / divisor, None) for c in cases],
              TRAFFIC_KINDS, f"{label} [{unit}/step]")


def draw_step(axes, cases, naming, label):
    """Parts of a step, mean over ranks."""
    divisor, unit = time_unit(max(numpy.nansum([case[name] for name in STEP_PARTS]) for case in cases))
    draw_bars(axes, [(naming(case), [case[name] / divisor for name in STEP_PARTS], None, None) for case in cases], list(STEP_PARTS.values()),
              f"{label} [{unit}/step]")


def as_svg(drawn, label, number):
    """An element for a page: with a label, without anything that two drawings of a page may not share, in the colour of the page's text."""
    text = io.StringIO()
    drawn.savefig(text, format="svg", dpi=150, transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg"):], flags=re.DOTALL)
    used = set(re.findall(r"#(\w+)", " ".join(re.findall(r"(?:href=\"|url\()#\w+", svg))))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{found[1]}-{number}"' if found[1] in used else "", svg)
    svg = re.sub(r'(href="|url\()#(\w+)', rf"\1#\2-{number}", svg).replace("#000000", "currentColor")
    label = re.sub(r'[<>&"]', " ", label)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return FORBIDDEN.sub("\ufffd", svg)


def save(drawn, path):
    """A picture that the user has named: the same file from the same numbers."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    try:
        drawn.savefig(path, dpi=130, metadata=undated.get(pathlib.Path(path).suffix))
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error
