# SPDX-License-Identifier: BSD-3-Clause
"""A figure for a paper: one quantity of result files, or of predictions, over one setting
(docs/report.md)."""

import math
import pathlib
import re
from dataclasses import replace

import pandas
from pandas.api.types import is_numeric_dtype

from .book import left_out
from .charts import chart, chart_figure, label_of, points_of, scaled
from .command import PICTURES, BadInput, Parser, from_json, suffix_of, write_file, write_stdout
from .drawing import save, styles_of
from .numbers import bits_per_second, exists, listed, size_value
from .record import File, cases, clean, links_of, load_all, reason_of
from .settings import DERIVED

MEGABITS = 1e-6
LARGEST = 1e18  # of the figures of a prediction
NARROWEST, WIDEST = 1, 40  # inches
INCH = {"in": 1, "cm": 2.54, "mm": 25.4}
# Short names of --x and --y for columns of the table.
SHORT = {
    "step": "median_s",
    "memory": "memory_measured",
    "between": "bytes_between",
    "groups": "group_count",
}
RATE = "between.rate"
# Of predictions: {their name: (column, unit)}.
FIGURES = {
    "step_s": ("median_s", "s"),
    "tokens_per_s": ("tokens_per_s", "token/s"),
    "memory_bytes": ("memory_measured", "B"),
    "bytes_between": ("bytes_between", "B"),
    "mfu": ("mfu", "1"),
    "idle": ("idle_share", "1"),
    "overlap": ("overlap", "1"),
}
UNITS = {column: unit for column, unit in FIGURES.values()}
UNITS |= {"tokens_per_s_rank": "token/s", "seq": "token", RATE: "Mbit/s"}
PREDICTION = "output of minitaw predict --json"


# Cases.


def number_of(found, name):
    """Raises one of command.MISSHAPEN for what is no number."""
    if not 0 <= found[name] < LARGEST:
        raise ValueError(f"{name} is {found[name]}")
    return found[name]


def predicted_row(found):
    """One that does not fit into its device is not valid."""
    row = {
        name: clean(one) if isinstance(one, str) else one for name, one in found["settings"].items()
    }
    odd = [name for name, one in row.items() if not isinstance(one, (str, int, float))]
    if odd or not isinstance(row["schedule"], str):
        raise ValueError(f"no setting: {(odd or ['schedule'])[0]}")
    row |= {column: number_of(found, name) for name, (column, _) in FIGURES.items()}
    row["tokens_per_s_rank"] = row["tokens_per_s"] / number_of(row, "ranks")
    row["valid"] = found.get("fits") is not False
    return row | {"verdict": "VALID" if row["valid"] else "INVALID: does not fit", "runs": []}


def predicted(path):
    """The cases of `minitaw predict --json` as those of result files."""

    def cases_of(content):
        if content.get("command", "predict") != "predict":
            raise ValueError(f"it is of {content['command']}")
        found = pandas.DataFrame([predicted_row(one) for one in content["cases"]])
        file = File(pathlib.Path(path), units=UNITS, settings=list(content["cases"][0]["settings"]))
        rate = 8 * MEGABITS * number_of(content, "between_bytes_per_s")
        return found.assign(file=[file] * len(found), rate_of_links=rate)

    return from_json(path, cases_of, PREDICTION)


def cases_of_files(names):
    """A table of all cases, measured and predicted."""
    predictions = [name for name in names if name.endswith(".json")]
    results = [name for name in names if name not in predictions]
    tables = [cases(load_all(results))] if results else []
    found = pandas.concat([*tables, *map(predicted, predictions)], ignore_index=True)
    return found.assign(line=found["schedule"])


# What is drawn.


def rate_of(case):
    """Of an adapter between the nodes, Mbit/s: what scripts/cluster or the machine file gave it. As
    many digits as a person writes."""
    shaped = bits_per_second(links_of(case).get("rate", "")) if case["file"].sessions else None
    if shaped is not None:
        return float(f"{shaped * MEGABITS:g}")
    return float(f"{case.get('rate_of_links', math.nan):.4g}")


def options_of(schedule):
    """{option: value} of "tawpipe:cco=off:prefetch=4"."""
    return dict(word.partition("=")[::2] for word in schedule.split(":")[1:])


def without(schedule, option):
    return ":".join(word for word in schedule.split(":") if word.partition("=")[0] != option)


def set_x(table, axis):
    """Adds x, of a column or of an option of schedules, whose lines then go without it."""
    if axis == RATE:
        return table.assign(x=[rate_of(case) for _, case in table.iterrows()])
    if axis in table:
        return table.assign(x=table[axis])
    values = table["schedule"].map(lambda schedule: options_of(schedule).get(axis))
    if values.isna().all():
        known = listed(table["file"].iloc[0].settings, 99)
        raise BadInput(f"--x: no case has {axis}, which may be an option, {RATE}, or {known}")
    families = table["schedule"].str.partition(":")[0]
    has_option = families.isin(families[values.notna()])
    lines = [without(schedule, axis) for schedule in table["schedule"]]
    return table.assign(x=values.fillna("default").where(has_option), line=lines)


def value_text(value):
    """As --where has it, after K, M and G are multiplied out."""
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value)


def chosen(table, options):
    """The cases that --where and --schedule want."""
    for word in options.where:
        name, _, value = word.partition("=")
        if name not in table:
            raise BadInput(f"--where: no case has {name}; a setting is wanted, as hidden=4K")
        try:
            text = str(size_value(value))
        except ValueError as error:
            raise BadInput(f"--where: {word} has no such size as hidden=4K") from error
        table = table[table[name].map(value_text) == text]
    if options.schedule:
        wanted = [*options.schedule, options.relative_to]
        table = table[table["schedule"].isin(wanted) | table["line"].isin(wanted)]
    return table


def refusal_of(some, axis):
    """Cases that are at one place of a line."""
    settings = [name for name in some["file"].iloc[0].settings if name not in DERIVED]
    names = [name for name in settings if some[name].nunique() > 1]
    differ = " and ".join(names) or "nothing but their file"
    first = some.iloc[0]
    choices = " ".join(f"--where {name}={value_text(first[name])}" for name in names)
    where = f"{first['line']} has several cases at {axis} = {value_text(first['x'])}"
    return BadInput(f"{where}, which differ in {differ}: choose by {choices or 'file'}")


def relative(points, base, over_names):
    """The values over those of one line at the same x, measured and predicted ones apart."""
    keys = ["predicted"] if over_names else ["predicted", "x"]
    bases = points[points["line"] == base].drop_duplicates(keys).set_index(keys)["value"]
    places = points[keys[0]] if over_names else pandas.MultiIndex.from_frame(points[keys])
    values = points["value"] / bases.reindex(places).to_numpy()
    return points.assign(value=values, low=values, high=values).dropna(subset="value")


def points_and_note(table, options):
    """Points of the valid cases, and what is left out."""
    axis, column = (SHORT.get(name, name) for name in (options.x, options.y))
    if column not in table or not is_numeric_dtype(table[column]):
        raise BadInput(f"--y: {options.y} is no figure of these files")
    table = chosen(set_x(table, axis), options)
    reasons = table["verdict"].map(lambda verdict: verdict.removeprefix("INVALID: "))
    reasons = reasons.mask(table["valid"] & table["x"].isna(), f"without {options.x}")
    reasons = reasons.mask(table["valid"] & table[column].isna(), f"without {options.y}")
    good = table["valid"] & table["x"].notna() & table[column].notna()
    some = table[good].infer_objects()
    note = left_out(reasons[~good], len(table))
    for _, same in some.groupby(["line", "x", some["file"].map(lambda file: not file.sessions)]):
        if len(same) > 1:
            raise refusal_of(same, options.x)
    points = points_of(some, column, "x")
    if options.relative_to:
        points = relative(points, options.relative_to, axis == "schedule")
        if options.schedule:
            points = points[points["line"].isin(options.schedule)]
    if points.empty:
        what = " and ".join([options.x, options.y, *options.where])
        beside = f" beside one of {options.relative_to}" if options.relative_to else ""
        raise BadInput(f"no valid case has {what}{beside}" + (note and f"; {note}"))
    return points, note


# Outputs.


def inches(text):
    match = re.fullmatch(r"(\d+\.?\d*)(in|cm|mm)", text)
    width = float(match[1]) / INCH[match[2]] if match else 0
    if not NARROWEST <= width <= WIDEST:
        raise BadInput(
            f'--width: "{text}" is no width from {NARROWEST}in to {WIDEST}in; write for example '
            "3.3in or 84mm"
        )
    return width


def units_of(table, name):
    known = (file.units.get(name) for file in table["file"].unique())
    return next(filter(None, known), UNITS.get(name, "1"))


def draw(points, note, units, options):
    """units: of x and y."""
    width = inches(options.width)
    across, column = (SHORT.get(name, name) for name in (options.x, options.y))
    if options.relative_to:
        label = f"{label_of(column, '')} relative to {options.relative_to}"
    else:
        points, unit = scaled(points, units[1])
        label = label_of(column, unit)
    if points["predicted"].any():
        label += ", predicted" if points["predicted"].all() else ", hollow: predicted"
    across = label_of(options.x, units[0].removeprefix("1"))
    drawn = chart(points, styles_of(points["line"]), label, across)
    drawn = replace(drawn, height=max(drawn.height, 0.6 * width))
    return chart_figure([[drawn]], width, note=note)


def numbers_text(points, units, options):
    names = [options.x, options.y]
    titles = [
        f"{name} [{unit}]" if unit not in ("1", "text") else name
        for name, unit in zip(names, units)
    ]
    if options.relative_to:
        titles[1] = f"{options.y} relative to {options.relative_to}"
    kinds = points["predicted"].map({True: "predicted", False: "measured"})
    found = pandas.DataFrame({"schedule": points["line"], "kind": kinds})
    found[titles] = points[["x", "value"]]
    if not options.relative_to:
        found[["low", "high"]] = points[["low", "high"]]
    return found.sort_values(["schedule", "kind", titles[0]]).to_csv(index=False)


def parse(words):
    parser = Parser(
        prog="plot",
        description="Draws one quantity over one setting, a line for each schedule, or bars where "
        "the setting is a name, as a figure for a paper (docs/report.md).",
    )
    add = parser.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="+",
        help="result file of minitaw run (.h5), or output of minitaw predict --json (.json)",
    )
    add(
        "--x",
        metavar="NAME",
        default="seq",
        help="seq (default), ranks, groups, hidden, schedule or any other setting, an option of "
        f"schedules as cco, or {RATE}",
    )
    add(
        "--y",
        metavar="NAME",
        default="tokens_per_s_rank",
        help="tokens_per_s_rank (default), tokens_per_s, step, memory, between, or any other "
        "number that minitaw show --csv has",
    )
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
    table = cases_of_files(options.files)
    points, note = points_and_note(table, options)
    names = (SHORT.get(name, name) for name in (options.x, options.y))
    units = [units_of(table, name) for name in names]
    for output in options.output:
        if output.endswith(".csv"):
            write_file(output, numbers_text(points, units, options))
        else:
            save(draw(points, note, units, options), output)
        write_stdout(f"{output}\n")
    if note:
        write_stdout(f"{note}\n")
