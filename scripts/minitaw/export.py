# SPDX-License-Identifier: BSD-3-Clause
"""Tables for other programs: every column of every case, or every sample, as CSV (RFC 4180) or
JSON."""

import csv
import io
import json
import math

from .command import Parser, write_stdout
from .record import exists, load

# Of the long form: a row for each case, repetition, step and rank. Counters of the device: name and
# units.
COUNTERS = {
    "clock": "MHz",
    "memory_clock": "MHz",
    "temperature": "degC",
    "power": "W",
    "throttle": "1",
    "energy": "J",
}


def title(name, units):
    """ "median_s [s]"; without units where it is a plain number or text."""
    return name if units in ("text", "1") else f"{name} [{units}]"


def summary_table(result):
    """Titles and rows of all columns."""
    return [title(name, units) for name, units in result.units.items()], [
        list(case.row.values()) for case in result.cases
    ]


def sample_table(result):
    """Titles and rows of the long form: the settings of the case, then when and where, seconds and
    counters."""
    names = ["case", *(name for name in result.settings if name != "identity")]
    titles = [title(name, result.units[name]) for name in names] + [
        "repetition",
        "position",
        "step",
        "rank",
        "seconds [s]",
    ]
    rows = []
    for case in result.cases:
        settings, step, counters = (
            [case[name] for name in names],
            0,
            [case.get(f"device/{name}") for name in COUNTERS],
        )
        for sample, repetition in enumerate(case.repetition.astype(int).tolist()):
            step = step + 1 if sample and case.repetition[sample - 1] == repetition else 0
            at = [
                repetition if name == "energy" else sample for name in COUNTERS
            ]  # which counts over a whole repetition
            rows += [
                [
                    *settings,
                    repetition,
                    int(case.get("position")[repetition]),
                    step,
                    rank,
                    float(case.get("seconds")[sample, rank]),
                    *[
                        values[row, rank].item() if values.size else math.nan
                        for values, row in zip(counters, at)
                    ],
                ]
                for rank in range(case["ranks"])
            ]
    return titles + [title(name, units) for name, units in COUNTERS.items()], rows


def as_csv(titles, rows):
    """What does not exist is empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [titles, *([value if exists(value) else "" for value in row] for row in rows)]
    )
    return text.getvalue()


def as_json(titles, rows):
    """A list of objects, keys without units; what does not exist is null."""
    names = [title.partition(" [")[0] for title in titles]
    return (
        json.dumps(
            [dict(zip(names, (value if exists(value) else None for value in row))) for row in rows],
            indent=2,
            ensure_ascii=False,
        )
        + "\n"
    )


def main(words=None):
    parser = Parser(
        prog="export",
        description="Prints every column of every case of a result file, with units in the titles of CSV (docs/show.md).",
    )
    parser.add_argument("file", metavar="FILE.h5", help="result file of minitaw run")
    parser.add_argument("--json", action="store_true", help="a JSON list of objects instead of CSV")
    parser.add_argument(
        "--samples",
        action="store_true",
        help="a row for each case, repetition, step and rank instead",
    )
    options = parser.parse_args(words)
    result = load(options.file)
    table = sample_table(result) if options.samples else summary_table(result)
    write_stdout(as_json(*table) if options.json else as_csv(*table))
