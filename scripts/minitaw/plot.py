# SPDX-License-Identifier: BSD-3-Clause
"""A figure for a paper: one quantity of result files, or of predictions, over one setting
(docs/report.md)."""

import csv
import io
import pathlib
import re
from dataclasses import dataclass

from .command import PICTURES, BadInput, Parser, from_json, suffix_of, write_file, write_stdout
from .drawing import draw_lines, legend_below, new_figure, save, styles_of
from .numbers import bits_per_second, exists, size_value
from .record import Case, Result, load_all
from .settings import grouped, telling

MEBI = 2**-20
MEGABITS = 1e-6
LARGEST = 1e18  # of the figures of a prediction
NARROWEST, WIDEST = 1, 40  # inches
INCH = {"in": 1, "cm": 2.54, "mm": 25.4}
# Of --y: column of the summary, factor, label.
QUANTITIES = {
    "tokens_per_s": ("tokens_per_s", 1, "throughput [token/s]"),
    "tokens_per_s_rank": ("tokens_per_s_rank", 1, "throughput [token/s per rank]"),
    "step": ("median_s", 1, "step [s]"),
    "memory": ("memory_measured", MEBI, "memory of the worst rank [MiB]"),
    "between": ("bytes_between", MEBI, "sent between groups [MiB/step]"),
}
AXES = {
    "seq": "sequence length [token]",
    "ranks": "ranks",
    "groups": "groups",
    "between.rate": "adapter of a node [Mbit/s]",
}
FIGURES = ("ranks", "seq", "median_s", "tokens_per_s", "tokens_per_s_rank", "memory_measured",
           "bytes_between", "rate_of_links")  # fmt: skip
PREDICTED = ", predicted"  # after the name of a schedule


# Predictions as cases.


def predicted_row(number, found, rate_of_links):
    """One that does not fit into its device is not valid."""
    settings = found["settings"]
    row = settings | {
        "case": number,
        "schedule": str(settings["schedule"]),
        "verdict": "INVALID: does not fit" if found.get("fits") is False else "VALID",
        "median_s": found["step_s"],
        "tokens_per_s": found["tokens_per_s"],
        "tokens_per_s_rank": found["tokens_per_s"] / settings["ranks"],
        "memory_measured": found["memory_bytes"],
        "bytes_between": found["bytes_between"],
        "rate_of_links": rate_of_links,
    }
    for name in FIGURES:
        if not 0 <= row[name] < LARGEST:  # of what is no number, TypeError
            raise ValueError(f"{name} is {row[name]}")
    return row


def predicted(path):
    """The cases of `minitaw predict --json` as those of a result."""
    result = Result(pathlib.Path(path))

    def cases_of(content):
        rate = 8 * MEGABITS * content.get("between_bytes_per_s", 0)
        rows = [predicted_row(n, found, rate) for n, found in enumerate(content["cases"])]
        return [Case(result, row) for row in rows]

    result.cases = from_json(path, cases_of, "output of minitaw predict --json")
    return result


# Points.


@dataclass(order=True)
class Point:
    name: str
    x: float
    y: float

    @property
    def schedule(self):
        return self.name.removesuffix(PREDICTED)

    @property
    def is_predicted(self):
        return self.name.endswith(PREDICTED)


def name_of(case):
    return case["schedule"] + ("" if case.file.sessions else PREDICTED)


def rate_of(case):
    """Of an adapter between the nodes, Mbit/s: what scripts/cluster or the machine file gave it;
    None if it is not known. As many digits as a person writes."""
    shaped = bits_per_second(case.links.get("rate", ""))
    if shaped is not None:
        return float(f"{shaped * MEGABITS:g}")
    predicted_rate = case.row.get("rate_of_links")
    return float(f"{predicted_rate:.4g}") if predicted_rate else None


def x_of(case, axis):
    if axis == "between.rate":
        value = rate_of(case)
    else:
        value = case["group_count" if axis == "groups" else axis]
    if not exists(value):
        return None
    number = float(value)
    return int(number) if number.is_integer() else number


def wanted_settings(words):
    """{setting: text} of --where."""
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            found[name] = str(size_value(value))
        except ValueError as error:
            raise BadInput(f"--where: {' '.join(words)} has no such size as hidden=4K") from error
    return found


def chosen_cases(results, options):
    column = QUANTITIES[options.y][0]
    where = wanted_settings(options.where)
    schedules = options.schedule and [*options.schedule, options.relative_to]
    for case in (case for result in results for case in result.cases):
        is_known = case.valid and exists(case[column]) and exists(x_of(case, options.x))
        is_wanted = all(str(case[name]) == value for name, value in where.items())
        if is_known and is_wanted and (not schedules or case["schedule"] in schedules):
            yield case


def refuse_several(name, x, some, axis):
    names = telling(some)
    differ = " and ".join(names) or "their file"
    choices = " ".join(f"--where {one}={some[0][one]}" for one in names) or "file"
    raise BadInput(
        f"{name} has several cases at {axis} = {x:g}, which differ in {differ}: choose by {choices}"
    )


def points(results, options):
    """Of the valid cases; with --relative-to over what that schedule has at the same x, measured
    and predicted ones apart."""
    column, factor, _ = QUANTITIES[options.y]
    cases = chosen_cases(results, options)
    values = {}
    for (name, x), some in grouped(cases, lambda c: (name_of(c), x_of(c, options.x))).items():
        if len(some) > 1:
            refuse_several(name, x, some, options.x)
        values[name, x] = factor * some[0][column]

    found = []
    for (name, x), value in values.items():
        point = Point(name, x, value)
        if options.relative_to:
            kind = PREDICTED if point.is_predicted else ""
            base = values.get((options.relative_to + kind, x))
            if not base:
                continue
            point.y = value / base
        if not options.schedule or point.schedule in options.schedule:
            found.append(point)
    if not found:
        what = " and ".join([options.x, options.y, *options.where])
        beside = f" beside one of {options.relative_to}" if options.relative_to else ""
        raise BadInput(f"no valid case has {what}{beside}")
    return found


# Drawing.


def inches(text):
    match = re.fullmatch(r"(\d+\.?\d*)(in|cm|mm)", text)
    width = float(match[1]) / INCH[match[2]] if match else 0
    if not NARROWEST <= width <= WIDEST:
        raise BadInput(
            f'--width: "{text}" is no width from {NARROWEST}in to {WIDEST}in; write for example '
            "3.3in or 84mm"
        )
    return width


def relative_label(label, options):
    return f"{label} relative to {options.relative_to}" if options.relative_to else label


def draw(found, options):
    width = inches(options.width)
    drawn = new_figure(width, 0.75 * width, margin=0.03)
    axes = drawn.subplots()
    lines = grouped(found, lambda point: point.name)
    looks = styles_of(point.schedule for point in found)
    styles = {}
    for name, (first, *_) in lines.items():
        fill = "none" if first.is_predicted else "full"
        styles[name] = looks[first.schedule] | {"fillstyle": fill}
    label = QUANTITIES[options.y][2]
    if options.relative_to:
        label = relative_label(label.partition(" [")[0], options)
    draw_lines(axes, lines, styles, lambda point: point.x, lambda point: point.y, label)
    axes.set_xlabel(AXES[options.x])
    legend_below(drawn, axes)
    return drawn


def numbers_text(found, options):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["schedule", options.x, relative_label(options.y, options)])
    writer.writerows((point.name, point.x, point.y) for point in sorted(found))
    return text.getvalue()


def parse(words):
    parser = Parser(
        prog="plot",
        description="Draws one quantity over one setting, a line for each schedule, as a figure "
        "for a paper (docs/report.md).",
    )
    add = parser.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="+",
        help="result file of minitaw run (.h5), or output of minitaw predict --json (.json)",
    )
    add("--x", choices=AXES, default="seq")
    add("--y", choices=QUANTITIES, default="tokens_per_s_rank")
    add("--schedule", action="append", help="only this one; may be repeated")
    add(
        "--where",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="only cases with this setting, as hidden=4K; may be repeated",
    )
    add("--relative-to", metavar="SCHEDULE", help="divide by what this schedule has")
    add("--width", default="3.3in", help="of the figure: 3.3in (a column of most journals), 17cm")
    add(
        "-o",
        "--output",
        metavar="OUT",
        action="append",
        required=True,
        help="a picture (.pdf, .svg, .png) or its numbers (.csv); may be repeated",
    )
    options = parser.parse_args(words)
    for output in options.output:
        suffix_of(output, *PICTURES, ".csv")
    return options


def main(words=None):
    options = parse(words)
    predictions = [name for name in options.files if name.endswith(".json")]
    results = load_all([name for name in options.files if name not in predictions])
    found = points([*results, *map(predicted, predictions)], options)
    for output in options.output:
        if output.endswith(".csv"):
            write_file(output, numbers_text(found, options))
        else:
            save(draw(found, options), output)
        write_stdout(f"{output}\n")
