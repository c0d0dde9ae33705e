# SPDX-License-Identifier: BSD-3-Clause
"""Tables for other programs: every column of every case, or every sample, as CSV (RFC 4180) or
JSON (docs/show.md)."""

import csv
import io
import json
import math

from .command import Parser, write_stdout
from .numbers import exists
from .record import load

# Of the long form: a row for each case, repetition, step and rank.
PLACE = ["repetition", "position", "step", "rank"]
# Counters of the device: name and units.
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
    titles = [title(name, units) for name, units in result.units.items()]
    return titles, [list(case.row.values()) for case in result.cases]


def counters_at(case, sample, repetition):
    """[(values of all ranks) or None] of one step; energy counts over a whole repetition."""
    for name in COUNTERS:
        values = case.get(f"device/{name}")
        yield values[repetition if name == "energy" else sample] if values.size else None


def sample_rows(case):
    """When and where, seconds and counters, of each step and rank."""
    repetitions = case.repetition.astype(int).tolist()
    positions, seconds = case.get("position"), case.get("seconds")
    step = 0
    for sample, repetition in enumerate(repetitions):
        begins = sample == 0 or repetitions[sample - 1] != repetition
        step = 0 if begins else step + 1
        counters = list(counters_at(case, sample, repetition))
        for rank in range(case["ranks"]):
            place = [repetition, int(positions[repetition]), step, rank]
            figures = [math.nan if values is None else values[rank].item() for values in counters]
            yield [*place, float(seconds[sample, rank]), *figures]


def sample_table(result):
    """Titles and rows of the long form: the settings of the case, then its samples."""
    names = ["case", *(name for name in result.settings if name != "identity")]
    titles = [title(name, result.units[name]) for name in names]
    titles += [*PLACE, "seconds [s]"]
    titles += [title(name, units) for name, units in COUNTERS.items()]
    rows = []
    for case in result.cases:
        settings = [case[name] for name in names]
        rows += [settings + row for row in sample_rows(case)]
    return titles, rows


def as_csv(titles, rows):
    """What does not exist is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(titles)
    for row in rows:
        writer.writerow([value if exists(value) else "" for value in row])
    return text.getvalue()


def as_json(titles, rows):
    """A list of objects, keys without units; what does not exist is null."""
    names = [title.partition(" [")[0] for title in titles]
    objects = []
    for row in rows:
        values = [value if exists(value) else None for value in row]
        objects.append(dict(zip(names, values)))
    return json.dumps(objects, indent=2, ensure_ascii=False) + "\n"


def main(words=None):
    parser = Parser(
        prog="export",
        description="Prints every column of every case of a result file, with units in the titles "
        "of CSV (docs/show.md).",
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
