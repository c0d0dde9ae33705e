# SPDX-License-Identifier: BSD-3-Clause
"""A figure for a paper: one quantity of result files, or of predictions, over one setting
(docs/report.md)."""

import json
import pathlib
import re

from .check_rules import size_value
from .command import BadInput, Parser, write_file, write_stdout
from .export import as_csv
from .figures import (
    PICTURES,
    draw_lines,
    grouped,
    legend_below,
    new_figure,
    save,
    styles_of,
    telling,
)
from .record import Case, Result, exists, load_all, read_bytes

# Of --y: column of the summary, of a prediction, factor, label, whether more is better.
QUANTITIES = {
    "tokens_per_s": ("tokens_per_s", 1, "throughput [token/s]"),
    "tokens_per_s_rank": ("tokens_per_s_rank", 1, "throughput [token/s per rank]"),
    "step": ("median_s", 1, "step [s]"),
    "memory": ("memory_measured", 2**-20, "memory of the worst rank [MiB]"),
    "between": ("bytes_between", 2**-20, "sent between groups [MiB/step]"),
}
AXES = {
    "seq": "sequence length [token]",
    "ranks": "ranks",
    "groups": "groups",
    "between.rate": "adapter of a node [Mbit/s]",
}
UNITS = {"kbit": 1e-3, "mbit": 1, "gbit": 1e3}
FIGURES = ("ranks", "seq", "median_s", "tokens_per_s", "tokens_per_s_rank", "memory_measured",
           "bytes_between", "rate_of_links")  # fmt: skip
MISSHAPEN = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)
LARGEST = 1e18  # of these
PREDICTED = ", predicted"  # behind the name of a schedule


def predicted(path):
    """The cases of `minitaw predict --json` as those of a result; one that does not fit into its
    device is not valid."""
    content, result = read_bytes(path), Result(pathlib.Path(path))
    try:
        content = json.loads(content)
        for number, found in enumerate(content["cases"]):
            row = found["settings"] | {
                "case": number,
                "schedule": str(found["settings"]["schedule"]),
                "verdict": "INVALID: does not fit" if found.get("fits") is False else "VALID",
                "median_s": found["step_s"],
                "tokens_per_s": found["tokens_per_s"],
                "tokens_per_s_rank": found["tokens_per_s"] / found["settings"]["ranks"],
                "memory_measured": found["memory_bytes"],
                "bytes_between": sum(adapter["out_bytes"] for adapter in found["adapters"]),
                "rate_of_links": content.get("between_bytes_per_s", 0) * 8e-6,
            }
            for name in FIGURES:
                if not 0 <= row[name] < LARGEST:  # of what is no number, TypeError
                    raise ValueError(f"{name} is {row[name]}")
            result.cases.append(Case(result, row))
        return result
    except MISSHAPEN as error:
        raise BadInput(
            f"{path} is no output of minitaw predict --json ({type(error).__name__})"
        ) from error


def rate_of(case):
    """Of an adapter between the nodes, Mbit/s: what scripts/cluster or the machine file gave it."""
    words = (
        dict(word.partition("=")[::2] for word in case.session.get("links", []))
        if case.file.sessions
        else {}
    )
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(kbit|mbit|gbit)", words.get("rate", ""))
    return (
        f"{float(match[1]) * UNITS[match[2]]:g}"
        if match
        else f"{case['rate_of_links']:.4g}" if case.row.get("rate_of_links") else None
    )


def x_of(case, axis):
    value = (
        rate_of(case)
        if axis == "between.rate"
        else case["group_count" if axis == "groups" else axis]
    )
    number = float(value) if exists(value) else None
    return int(number) if number is not None and number.is_integer() else number


def points(results, options):
    """[(name, x, y)] of the valid cases; with --relative-to over what that schedule has at the same
    x, measured and predicted ones apart."""
    column, factor, _ = QUANTITIES[options.y]
    try:
        where = {
            name: str(size_value(value))
            for name, _, value in (word.partition("=") for word in options.where)
        }
    except ValueError as error:
        raise BadInput(
            f"--where: {' '.join(options.where)} has no such size as hidden=4K"
        ) from error
    known = [
        case
        for result in results
        for case in result.cases
        if case.valid and exists(case[column]) and exists(x_of(case, options.x))
    ]
    known = [
        case
        for case in known
        if all(str(case[name]) == value for name, value in where.items())
        and (not options.schedule or case["schedule"] in [*options.schedule, options.relative_to])
    ]
    found = grouped(
        known,
        lambda case: (
            case["schedule"] + PREDICTED * (not case.file.sessions),
            x_of(case, options.x),
        ),
    )
    for (name, x), some in found.items():
        if len(some) > 1:
            differ, told = " and ".join(telling(some)) or "their file", [
                f"--where {one}={some[0][one]}" for one in telling(some)
            ]
            raise BadInput(
                f"{name} has several cases at {options.x} = {x:g}, which differ in {differ}: choose by {' '.join(told) or 'file'}"
            )
    values = {key: factor * case[column] for key, (case,) in found.items()}
    if options.relative_to:
        bases = {
            key: values.get((options.relative_to + PREDICTED * key[0].endswith(PREDICTED), key[1]))
            for key in values
        }
        values = {key: value / bases[key] for key, value in values.items() if bases[key]}
    chosen = [
        (name, x, y)
        for (name, x), y in values.items()
        if not options.schedule or name.removesuffix(PREDICTED) in options.schedule
    ]
    if not chosen:
        beside = f" beside one of {options.relative_to}" if options.relative_to else ""
        raise BadInput(
            f"no valid case has {' and '.join([options.x, options.y, *options.where])}{beside}"
        )
    return chosen


def inches(text):
    match = re.fullmatch(r"(\d+\.?\d*)(in|cm|mm)", text)
    width = float(match[1]) / {"in": 1, "cm": 2.54, "mm": 25.4}[match[2]] if match else 0
    if not 1 <= width <= 40:
        raise BadInput(
            f'--width: "{text}" is no width from 1in to 40in; write for example 3.3in or 84mm'
        )
    return width


def draw(found, options):
    drawn = new_figure(inches(options.width), 0.75 * inches(options.width), margin=0.03)
    axes = drawn.subplots()
    lines, label = grouped(found, lambda point: point[0]), QUANTITIES[options.y][2]
    styles = styles_of(name.removesuffix(PREDICTED) for name in lines)
    styles = {
        name: styles[name.removesuffix(PREDICTED)]
        | {"fillstyle": "none" if name.endswith(PREDICTED) else "full"}
        for name in lines
    }
    draw_lines(
        axes,
        lines,
        styles,
        lambda point: point[1],
        lambda point: point[2],
        (
            f"{label.partition(' [')[0]} relative to {options.relative_to}"
            if options.relative_to
            else label
        ),
    )
    axes.set_xlabel(AXES[options.x])
    legend_below(drawn, axes)
    return drawn


def main(words=None):
    parser = Parser(
        prog="plot",
        description="Draws one quantity over one setting, a line for each schedule, as a figure for a paper (docs/report.md).",
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="result file of minitaw run (.h5), or output of minitaw predict --json (.json)",
    )
    parser.add_argument("--x", choices=AXES, default="seq")
    parser.add_argument("--y", choices=QUANTITIES, default="tokens_per_s_rank")
    parser.add_argument("--schedule", action="append", help="only this one; may be repeated")
    parser.add_argument(
        "--where",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="only cases with this setting, as hidden=4K; may be repeated",
    )
    parser.add_argument(
        "--relative-to", metavar="SCHEDULE", help="divide by what this schedule has"
    )
    parser.add_argument(
        "--width", default="3.3in", help="of the figure: 3.3in (a column of most journals), 17cm"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        action="append",
        required=True,
        help="a picture (.pdf, .svg, .png) or its numbers (.csv); may be repeated",
    )
    options = parser.parse_args(words)
    for output in options.output:
        if pathlib.Path(output).suffix not in (*PICTURES, ".csv"):
            raise BadInput(f'-o: "{output}" must end in .pdf, .svg, .png or .csv')
    results = load_all([name for name in options.files if not name.endswith(".json")])
    found = points(
        [*results, *(predicted(name) for name in options.files if name.endswith(".json"))], options
    )
    for output in options.output:
        if output.endswith(".csv"):
            write_file(
                output,
                as_csv(
                    [
                        "schedule",
                        options.x,
                        options.y
                        + (f" relative to {options.relative_to}" if options.relative_to else ""),
                    ],
                    sorted(found),
                ),
            )
        else:
            save(draw(found, options), output)
        write_stdout(f"{output}\n")
