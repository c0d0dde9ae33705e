# SPDX-License-Identifier: BSD-3-Clause
"""Energy of every case by an outside meter, whose samples are joined by time with the timed windows
of a result (docs/show.md)."""

import csv
import datetime
import io
import math

import numpy

from .command import BadInput, Parser, read_bytes, write_stdout
from .export import as_json
from .numbers import plural
from .record import load

# MLPerf's rule with room for a meter's jitter.
LEAST_SAMPLES = 60  # in a window
LEAST_RATE = 1.0  # samples a second
WIDEST_GAP = 2.0  # seconds without any
MOST_WATTS = 1e12  # of one meter
LATEST = 253370764800  # seconds from 1970 to the year 9999, the last that has a date
# Of the table: column, its title, and the formats of titles and figures.
COLUMNS = [
    ("case", "case", ">6", ""),
    ("schedule", "schedule", "<28", ""),
    ("seq", "tokens", ">8", ""),
    ("repetition", "rep.", ">4", ""),
    ("window_s", "window, s", ">10", ".3f"),
    ("samples", "samples", ">8", ""),
    ("power_mean", "mean W", ">10", ".5g"),
    ("energy", "J", ">12", ".6g"),
    ("energy_per_token", "J/token", ">11", ".5g"),
]


def utc_seconds(text):
    """Seconds since 1970 of an ISO 8601 time: with Z or an offset, or UTC without; or of a number
    of such seconds. Raises ValueError."""
    try:
        seconds = float(text)
    except ValueError:
        time = datetime.datetime.fromisoformat(text)
        if not time.tzinfo:
            time = time.replace(tzinfo=datetime.timezone.utc)
        seconds = time.timestamp()
    if not 0 <= seconds < LATEST:
        raise ValueError(f"{text} is not between 1970 and 9999")
    return seconds


# Meters.


def read_meters(name):
    """{meter: (times, watts)}, times rising, of a CSV with the columns time and watts, and meter
    where there are several."""
    rows = csv.DictReader(io.StringIO(read_bytes(name).decode("utf-8-sig", "replace")))
    try:
        return samples_of(name, rows)
    except csv.Error as error:
        raise BadInput(f"{name} is no CSV, or it is damaged: {error}") from error


def sample_of(row):
    """(seconds, watts); NaN if they are none."""
    try:
        time, watts = utc_seconds(row["time"].strip()), float(row["watts"])
    except (ValueError, TypeError, AttributeError, OverflowError):
        return math.nan, math.nan
    return time, watts if 0 <= watts < MOST_WATTS else math.nan


def samples_of(name, rows):
    """As read_meters()."""
    if not {"time", "watts"} <= set(rows.fieldnames or []):
        raise BadInput(
            f"{name} has no columns time and watts in its first line; meter is a third one where "
            "there are several"
        )
    samples = {}
    for row in rows:
        sample = sample_of(row)
        if not all(map(math.isfinite, sample)):
            raise BadInput(
                f'{name}, line {rows.line_num}: "{str(row["time"])[:80]}" and '
                f'"{str(row["watts"])[:80]}" are not a time (2026-11-24T12:00:00.250Z) and watts'
            )
        samples.setdefault(row.get("meter") or "", []).append(sample)
    if not samples:
        raise BadInput(f"{name} has no samples")
    return {meter: numpy.array(sorted(found)).T for meter, found in sorted(samples.items())}


def lack_of(name, times, begin, end):
    """What the rule misses of a meter in a window; empty if nothing."""
    of_meter = f" of {name}" if name else ""
    count = len(times)
    gap = numpy.diff([begin, *times, end]).max()
    if count < LEAST_SAMPLES:
        return f"{plural(count, 'sample')}{of_meter}, {LEAST_SAMPLES} are needed"
    if count < math.floor(LEAST_RATE * (end - begin)) or gap > WIDEST_GAP:
        return f"less than a sample a second{of_meter}, longest gap {gap:.1f} s"
    return ""


def measure(meters, begin, end):
    """Mean watts of all meters together, samples of the meter that has fewest, and what the rule
    misses; None if a meter has no sample."""
    watts, counts, lacks = 0.0, [], []
    for name, (times, power) in meters.items():
        inside = (times >= begin) & (times <= end)
        if not inside.any():
            return None
        counts.append(int(inside.sum()))
        watts += float(power[inside].mean())
        lacks.append(lack_of(name, times[inside], begin, end))
    return watts, min(counts), "; ".join(filter(None, lacks))


# Cases.


def windows_of(case):
    """Of each repetition, where all are known: files of earlier programs have none."""
    times = [*case.get("window/begin"), *case.get("window/end")]
    if not all(times):
        return []
    windows = zip(case.get("window/begin"), case.get("window/end"))
    return [(utc_seconds(begin), utc_seconds(end)) for begin, end in windows]


def rows_of(case, meters):
    """A row for each repetition: what the meter says of its timed steps."""
    for repetition, (begin, end) in enumerate(windows_of(case)):
        watts, samples, lacks = measure(meters, begin, end) or (math.nan, 0, "no sample")
        tokens = case.tokens * int((case.repetition == repetition).sum())
        joules = watts * (end - begin)
        yield {
            "case": case["case"],
            "schedule": case["schedule"],
            "seq": case["seq"],
            "repetition": repetition,
            "window_s": round(end - begin, 3),
            "samples": samples,
            "power_mean": watts,
            "energy": joules,
            "energy_per_token": joules / tokens if tokens else math.nan,
            "indicative": lacks,
        }


def text_of(rows):
    head = " ".join(f"{title:{width}}" for _, title, width, _ in COLUMNS)
    lines = ["#" + head[1:]]
    for row in rows:
        cells = [f"{row[name]:{width}{kind}}" for name, _, width, kind in COLUMNS]
        lines.append(" ".join(cells))
        if row["indicative"]:
            lines[-1] += f"  indicative: {row['indicative']}"
    return "".join(f"{line}\n" for line in lines)


def date_text(seconds):
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return time.isoformat("T", "seconds")


def span_text(times):
    return f"{date_text(min(times))} to {date_text(max(times))}"


def main(words=None):
    parser = Parser(
        prog="energy",
        description="Joins the samples of an outside power meter with the timed steps of a result "
        "by time: mean power, energy and energy per token of every repetition. Exit code 0: all "
        "have samples, 1: some have none (docs/show.md).",
    )
    parser.add_argument("file", metavar="FILE.h5", help="result file of minitaw run")
    parser.add_argument(
        "meter",
        metavar="METER.csv",
        help="columns time (ISO 8601, UTC) and watts, and meter where there are several, which "
        "are added up",
    )
    parser.add_argument(
        "--json", action="store_true", help="a JSON list of objects instead of a table"
    )
    options = parser.parse_args(words)
    result, meters = load(options.file), read_meters(options.meter)
    rows = [row for case in result.cases for row in rows_of(case, meters)]
    if not rows:
        raise BadInput(
            f"{options.file} says of no case when its timed steps ran; "
            "measure them again with this program"
        )
    if not any(row["samples"] for row in rows):
        times = [time for case in result.cases for window in windows_of(case) for time in window]
        covered = numpy.concatenate([times for times, _ in meters.values()])
        raise BadInput(
            f"{options.meter} has no sample in the timed steps of {options.file}: it covers "
            f"{span_text(covered)}, they ran {span_text(times)}"
        )
    table = [row.values() for row in rows]
    write_stdout(as_json(rows[0], table) if options.json else text_of(rows))
    return int(not all(row["samples"] for row in rows))
