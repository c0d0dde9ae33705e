# SPDX-License-Identifier: BSD-3-Clause
"""A figure for a paper: one quantity of result files, or of predictions, over one setting (docs/report.md)."""

import json
import pathlib
import re

from .command import BadInput, Parser, write_file, write_stdout
from .export import as_csv
from .figures import PICTURES, draw_lines, grouped, legend_below, new_figure, save, styles_of
from .record import Case, Result, exists, load_all

# Of --y: column of the summary, of a prediction, factor, label, whether more is better.
QUANTITIES = {"tokens_per_s": ("tokens_per_s", 1, "throughput [token/s]"), "tokens_per_s_rank": ("tokens_per_s_rank", 1, "throughput [token/s per rank]"),
              "step": ("median_s", 1, "step [s]"), "memory": ("memory_measured", 2**-20, "memory of the worst rank [MiB]"),
              "between": ("bytes_between", 2**-20, "sent between groups [MiB/step]")}
AXES = {"seq": "sequence length [token]", "ranks": "ranks", "groups": "groups", "between.rate": "adapter of a node [Mbit/s]"}
UNITS = {"kbit": 1e-3, "mbit": 1, "gbit": 1e3}


def predicted(path):
    """The cases of `minitaw predict --json` as those of a result."""
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        result = Result(pathlib.Path(path))
        for number, found in enumerate(content["cases"]):
            words = dict(word.partition("=")[::2] for word in found["settings"].split())
            row = {name: int(words[name]) if words[name].isdigit() else words[name] for name in words}
            row |= {"case": number, "verdict": "VALID", "median_s": found["step_s"], "tokens_per_s": found["tokens_per_s"],
                    "tokens_per_s_rank": found["tokens_per_s"] / row["ranks"], "memory_measured": found["memory_bytes"],
                    "bytes_between": sum(adapter["out_bytes"] for adapter in found["adapters"]), "group_count": words["groups"].count("+") + 1,
                    "rate_of_links": content.get("between_bytes_per_s", 0) * 8e-6}
            result.cases.append(Case(result, row))
        return result
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is no output of minitaw predict --json ({type(error).__name__})") from error


def rate_of(case):
    """Of an adapter between the nodes, Mbit/s: what scripts/cluster or the machine file gave it."""
    words = dict(word.partition("=")[::2] for word in case.session.get("links", [])) if case.file.sessions else {}
    match = re.fullmatch(r"([0-9.]+)(kbit|mbit|gbit)", words.get("rate", ""))
    return f"{float(match[1]) * UNITS[match[2]]:g}" if match else f"{case['rate_of_links']:.4g}" if case.row.get("rate_of_links") else None


def x_of(case, axis):
    value = rate_of(case) if axis == "between.rate" else case["group_count" if axis == "groups" else axis]
    number = float(value) if exists(value) else None
    return int(number) if number is not None and number.is_integer() else number


def points(results, options):
    """[(name, x, y)] of the valid cases; with --relative-to over what that schedule has at the same x."""
    column, factor, _ = QUANTITIES[options.y]
    found = [(name, x_of(case, options.x), factor * case[column]) for result in results for case in result.cases if case.valid
             for name in [case["schedule"] + (", predicted" if not case.file.sessions else "")]
             if exists(x_of(case, options.x)) and (not options.schedule or case["schedule"] in options.schedule)]
    if not found:
        raise BadInput(f"no valid case has {options.x} and {options.y}")
    twice = [key for key, some in grouped(found, lambda point: point[:2]).items() if len(some) > 1]
    if twice:
        raise BadInput(f"{twice[0][0]} has several cases at {options.x} = {twice[0][1]:g}; give files in which only {options.x} and the schedule differ")
    if not options.relative_to:
        return found
    base = {x: y for name, x, y in found if name.removesuffix(", predicted") == options.relative_to}
    if not base:
        raise BadInput(f"--relative-to: no valid case of {options.relative_to}")
    return [(name, x, y / base[x]) for name, x, y in found if x in base]


def inches(text):
    match = re.fullmatch(r"([0-9.]+)(in|cm|mm)", text)
    if not match:
        raise BadInput(f"--width: \"{text}\" is no width; write for example 3.3in or 84mm")
    return float(match[1]) / {"in": 1, "cm": 2.54, "mm": 25.4}[match[2]]


def draw(found, options):
    drawn = new_figure(inches(options.width), 0.75 * inches(options.width), margin=0.03)
    axes = drawn.subplots()
    lines = grouped(found, lambda point: point[0])
    label = QUANTITIES[options.y][2]
    draw_lines(axes, lines, styles_of(lines), lambda point: point[1], lambda point: point[2],
               f"{label.partition(' [')[0]} relative to {options.relative_to}" if options.relative_to else label)
    axes.set_xlabel(AXES[options.x])
    legend_below(drawn, axes)
    return drawn


def main(words=None):
    parser = Parser(prog="plot", description="Draws one quantity over one setting, a line for each schedule, as a figure for a paper (docs/report.md).")
    parser.add_argument("files", metavar="FILE", nargs="+", help="result file of minitaw run (.h5), or output of minitaw predict --json (.json)")
    parser.add_argument("--x", choices=AXES, default="seq")
    parser.add_argument("--y", choices=QUANTITIES, default="tokens_per_s_rank")
    parser.add_argument("--schedule", action="append", help="only this one; may be repeated")
    parser.add_argument("--relative-to", metavar="SCHEDULE", help="divide by what this schedule has")
    parser.add_argument("--width", default="3.3in", help="of the figure: 3.3in (a column of most journals), 17cm")
    parser.add_argument("-o", "--output", metavar="OUT", action="append", required=True, help="a picture (.pdf, .svg, .png) or its numbers (.csv); may be repeated")
    options = parser.parse_args(words)
    for output in options.output:
        if pathlib.Path(output).suffix not in (*PICTURES, ".csv"):
            raise BadInput(f"-o: \"{output}\" must end in .pdf, .svg, .png or .csv")
    results = load_all([name for name in options.files if not name.endswith(".json")])
    found = points([*results, *(predicted(name) for name in options.files if name.endswith(".json"))], options)
    for output in options.output:
        if output.endswith(".csv"):
            write_file(output, as_csv(["schedule", options.x, options.y + (f" relative to {options.relative_to}" if options.relative_to else "")], sorted(found)))
        else:
            save(draw(found, options), output)
        write_stdout(f"{output}\n")
