# SPDX-License-Identifier: BSD-3-Clause
"""A figure for a paper: one quantity of result files, or of predictions, over one setting
(docs/show.md)."""

import math
import pathlib
import re
import shlex

import pandas
from pandas.api.types import is_numeric_dtype

from .charts import add_note, chart, label_of, points_of
from .command import (
    PICTURES,
    BadInput,
    Parser,
    ending,
    from_json,
    number,
    write_file,
    write_stdout,
)
from .drawing import save, styles_of
from .numbers import bits_per_second, cell_text, listed, plural, size_value
from .record import File, cases, clean, links_of, load_all, reason_of, rows_of
from .settings import DERIVED

MEGABITS = 1e-6
LARGEST = 1e18  # of the figures of a prediction
RATE = "between.rate"
# Of predictions: what they call a column, and units.
COLUMNS = {
    "step_s": "median_s",
    "memory_bytes": "memory_measured",
    "idle": "idle_share",
}
UNITS = {
    "median_s": "s",
    "tokens_per_s": "token/s",
    "tokens_per_s_rank": "token/s",
    "memory_measured": "B",
    "bytes_between": "B",
    "seq": "token",
    RATE: "Mbit/s",
}


# Cases.


def predicted_table(content, file):
    """One that does not fit into its device is not valid. Raises one of command.MISSHAPEN."""
    if shlex.split(content["command"])[1] != "predict":
        raise ValueError(f"it is of {content['command']}")
    found = pandas.json_normalize(content["cases"]).rename(columns=COLUMNS)
    found.columns = [name.removeprefix("settings.") for name in found]
    file.settings = list(content["cases"][0]["settings"])
    found[RATE] = 8 * MEGABITS * content.get("between_bytes_per_s", math.nan)
    found["tokens_per_s_rank"] = found.tokens_per_s / found.ranks
    for name in UNITS:
        if not (is_numeric_dtype(found[name]) and found[name].between(0, LARGEST).all()):
            raise ValueError(f"{name} is no number")
    if "schedule" not in found:
        raise ValueError("a case has no schedule")
    valid = found.fits.ne(False)
    texts = found.select_dtypes(object).map(lambda value: clean(str(value)))
    return found.assign(
        **texts,
        valid=valid,
        verdict=valid.map({True: "VALID", False: "INVALID: does not fit"}),
        runs=[[]] * len(found),
        file=file,
    )


def predicted(path):
    """The cases of `minitaw predict --json` as those of a result file."""
    file = File(pathlib.Path(path), units=UNITS)
    what = "output of minitaw predict --json"
    return from_json(path, lambda content: predicted_table(content, file), what)


def rate_of(case):
    """Of an adapter between the nodes, Mbit/s, if scripts/cluster gave it."""
    rate = bits_per_second(links_of(case).get("rate", ""))
    return math.nan if rate is None else rate * MEGABITS


def cases_of(names):
    """A table of all cases, measured and predicted, whose rates are equal where a person has
    written the same."""
    predictions = [name for name in names if name.endswith(".json")]
    tables = list(map(predicted, predictions))
    if results := [name for name in names if name not in predictions]:
        measured = cases(load_all(results))
        rates = [rate_of(case) for case in rows_of(measured)]
        tables.insert(0, measured.assign(**{RATE: rates}))
    found = pandas.concat(tables, ignore_index=True)
    return found.assign(line=found.schedule, **{RATE: found[RATE].round(6)})


# What is drawn.


def with_x(table, axis):
    """Adds x: of a column, or of an option of schedules, whose lines then go without it. Bars of
    schedules need none."""
    if axis == "schedule":
        return table.assign(x="")
    if axis in table:
        return table.assign(x=table[axis])
    values = table.schedule.str.extract(rf":{re.escape(axis)}=([^:]*)")[0]
    if values.isna().all():
        known = listed(table.file[0].settings, 99)
        raise BadInput(f"--x: no case has {axis}; it may be {RATE}, an option, or {known}")
    families = table.schedule.str.partition(":")[0]
    has_option = families.isin(families[values.notna()])
    lines = table.schedule.str.replace(rf":{re.escape(axis)}=[^:]*", "", regex=True)
    return table.assign(x=values.fillna("default").where(has_option), line=lines)


def chosen(table, conditions):
    """The cases that --where wants."""
    for word in conditions:
        name, _, values = word.partition("=")
        try:
            wanted = [str(size_value(value)) for value in values.split(",")]
            table = table[table[name].map(cell_text).isin(wanted)]
        except (KeyError, ValueError) as error:
            raise BadInput(f"--where: {word} is no setting and size, as hidden=4K") from error
    return table


def refuse_several(same, axis):
    """Cases at one place of a line."""
    settings = [name for name in same.file.iloc[0].settings if name not in DERIVED]
    names = [name for name in settings if same[name].nunique() > 1]
    first = same.iloc[0]
    choices = " ".join(f"--where {name}={cell_text(first[name])}" for name in names)
    place = "" if axis == "schedule" else f" at {axis} = {cell_text(first.x)}"
    where = f"{first.line} has several cases{place}"
    differ = " and ".join(names) or "their file"
    raise BadInput(f"{where}, which differ in {differ}: choose by {choices or 'file'}")


def left_out(reasons, table):
    """What a figure does not show, and why: "left out: 2 of 9 cases (2 × does not fit)"."""
    if reasons.empty:
        return ""
    counts = reasons.value_counts(sort=False)
    why = listed(f"{number} × {reason}" for reason, number in counts.items())
    return f"left out: {len(reasons)} of {plural(len(table), 'case')} ({why})"


def points_and_note(table, options):
    """Points of the valid cases, and what is left out."""
    table = chosen(with_x(table, options.x), options.where)
    if options.y not in table or not is_numeric_dtype(table[options.y]):
        raise BadInput(f"--y: {options.y} is no number that these files have")
    reasons = pandas.Series([reason_of(case) for case in rows_of(table)], table.index)
    for name, column in ((options.x, "x"), (options.y, options.y)):
        reasons = reasons.mask(table.valid & table[column].isna(), f"without {name}")
    is_good = table.valid & table[["x", options.y]].notna().all(axis=1)
    note = left_out(reasons[~is_good], table)
    good = table[is_good].infer_objects()
    points = points_of(good, options.y, "x")
    for _, same in points.groupby(["line", "x", "predicted"]):
        if len(same) > 1:
            refuse_several(good.iloc[same.index], options.x)
    if points.empty:
        what = " and ".join([options.x, options.y, *options.where])
        raise BadInput(f"no valid case has {what}" + (note and f"; {note}"))
    return points, note


# Outputs.


def draw(points, note, units, options):
    """units: {column: unit}."""
    name, unit = options.y, units.get(options.y, "")
    kinds = {(True,): ", predicted", (False,): ""}
    kind = kinds.get(tuple(points.predicted.unique()), ", hollow: predicted")
    across = label_of(options.x, units.get(options.x, ""))
    styles = styles_of(points.line)
    drawn = chart(points, styles, name, unit, across, kind, options.width)
    if note:
        add_note(drawn, note)
    return drawn


def numbers_text(points, units, options):
    names = [options.x, options.y]
    titles = [f"{name} [{units[name]}]" if name in units else name for name in names]
    kinds = points.predicted.map({True: "predicted", False: "measured"})
    found = pandas.DataFrame({"schedule": points.line, "kind": kinds})
    found[[*titles, "low", "high"]] = points[["x", "value", "low", "high"]]
    return found.sort_values(["schedule", "kind", titles[0]]).to_csv(index=False)


def parse(words):
    parser = Parser(
        prog="plot",
        description="Draws one quantity over one setting, a line for each schedule, or bars where "
        "the setting is a name, as a figure for a paper (docs/show.md).",
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
        help="ranks, schedule or another setting, an option of schedules as cco, or "
        f"{RATE} (default: %(default)s)",
    )
    add(
        "--y",
        metavar="NAME",
        default="tokens_per_s_rank",
        help="median_s, memory_measured, bytes_between, or another number that minitaw show --csv "
        "has (default: %(default)s)",
    )
    add(
        "--where",
        metavar="NAME=VALUE[,VALUE]",
        action="append",
        default=[],
        help="only cases with this setting, as hidden=4K; may be repeated",
    )
    add(
        "--width",
        metavar="INCHES",
        type=number(1, 40),
        default=3.3,
        help="of the figure (default: %(default)s, a column of most journals)",
    )
    add(
        "-o",
        "--output",
        metavar="OUT",
        type=ending(*PICTURES, ".csv"),
        action="append",
        required=True,
        help="a picture (.pdf, .svg, .png) or its numbers (.csv); may be repeated",
    )
    return parser.parse_args(words)


def main(words=None):
    options = parse(words)
    table = cases_of(options.files)
    points, note = points_and_note(table, options)
    units = UNITS | table.file[0].units
    for output in options.output:
        if output.endswith(".csv"):
            write_file(output, numbers_text(points, units, options))
        else:
            save(draw(points, note, units, options), output)
        write_stdout(f"{output}\n")
    write_stdout(note and f"{note}\n")
