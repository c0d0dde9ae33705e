# SPDX-License-Identifier: BSD-3-Clause
"""Energy of every case by an outside meter, whose samples are joined by time with the timed windows
of a result (docs/show.md)."""

import csv
import datetime
import io
import math

import numpy

from .command import BadInput, Parser, plural, write_stdout
from .export import as_json
from .record import load, read_bytes

LEAST_SAMPLES, LEAST_RATE, WIDEST_GAP = (
    60,
    1.0,
    2.0,
)  # in a window, a second, and seconds without any: MLPerf's rule with room for a meter's jitter


MOST_WATTS = 1e12  # of one meter
LATEST = 253370764800  # seconds from 1970 to the year 9999, the last that has a date


def utc_seconds(text):
    """Seconds since 1970 of an ISO 8601 time: with Z or an offset, or UTC without; or of a number
    of such seconds. Raises ValueError."""
    try:
        seconds = float(text)
    except ValueError:
        time = datetime.datetime.fromisoformat(text)
        seconds = (time if time.tzinfo else time.replace(tzinfo=datetime.timezone.utc)).timestamp()
    if not 0 <= seconds < LATEST:
        raise ValueError(f"{text} is not between 1970 and 9999")
    return seconds


def read_meters(name):
    """{meter: (times, watts)}, times rising, of a CSV with the columns time and watts, and meter
    where there are several."""
    rows = csv.DictReader(io.StringIO(read_bytes(name).decode("utf-8-sig", "replace")))
    try:
        return samples_of(name, rows)
    except csv.Error as error:
        raise BadInput(f"{name} is no CSV, or it is damaged: {error}") from error


def samples_of(name, rows):
    """As read_meters()."""
    if not {"time", "watts"} <= set(rows.fieldnames or []):
        raise BadInput(
            f"{name} has no columns time and watts in its first line; meter is a third one where there are several"
        )
    samples = {}
    for row in rows:
        try:
            time, watts = utc_seconds(row["time"].strip()), float(row["watts"])
        except (ValueError, TypeError, AttributeError, OverflowError):
            time = watts = math.nan
        if not (math.isfinite(time) and 0 <= watts < MOST_WATTS):
            raise BadInput(
                f'{name}, line {rows.line_num}: "{str(row["time"])[:80]}" and '
                f'"{str(row["watts"])[:80]}" are not a time (2026-11-24T12:00:00.250Z) and watts'
            )
        samples.setdefault(row.get("meter") or "", []).append((time, watts))
    if not samples:
        raise BadInput(f"{name} has no samples")
    return {meter: numpy.array(sorted(found)).T for meter, found in sorted(samples.items())}


def measure(meters, begin, end):
    """Mean watts of all meters together, samples of the meter that has fewest, and what the rule
    misses; None if a meter has no sample."""
    watts, counts, lacks = 0.0, [], []
    for name, (times, power) in meters.items():
        inside = (times >= begin) & (times <= end)
        if not inside.any():
            return None
        gap = numpy.diff([begin, *times[inside], end]).max()
        counts.append(int(inside.sum()))
        watts += float(power[inside].mean())
        of = f" of {name}" if name else ""
        if counts[-1] < LEAST_SAMPLES:
            lacks.append(f"{plural(counts[-1], 'sample')}{of}, {LEAST_SAMPLES} are needed")
        elif counts[-1] < math.floor(LEAST_RATE * (end - begin)) or gap > WIDEST_GAP:
            lacks.append(f"less than a sample a second{of}, longest gap {gap:.1f} s")
    return watts, min(counts), "; ".join(lacks)


def windows_of(case):
    """Of each repetition, where all are known: files of earlier programs have none."""
    windows = list(zip(case.get("window/begin"), case.get("window/end")))
    return (
        [(utc_seconds(begin), utc_seconds(end)) for begin, end in windows]
        if all(begin and end for begin, end in windows)
        else []
    )


def rows_of(case, meters):
    """A row for each repetition: what the meter says of its timed steps."""
    for repetition, (begin, end) in enumerate(windows_of(case)):
        found, tokens = measure(meters, begin, end), case.tokens * int(
            (case.repetition == repetition).sum()
        )
        watts, samples, lacks = found or (math.nan, 0, "no sample")
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
    text = f"# {'case':>4} {'schedule':<28} {'tokens':>8} {'rep.':>4} {'window, s':>10} {'samples':>8} {'mean W':>10} {'J':>12} {'J/token':>11}\n"
    for row in rows:
        verdict = f"  indicative: {row['indicative']}" if row["indicative"] else ""
        text += (
            f"{row['case']:6} {row['schedule']:<28} {row['seq']:8} {row['repetition']:4} {row['window_s']:10.3f} {row['samples']:8} "
            f"{row['power_mean']:10.5g} {row['energy']:12.6g} {row['energy_per_token']:11.5g}{verdict}\n"
        )
    return text


def span_text(times):
    return " to ".join(
        datetime.datetime.fromtimestamp(f(times), datetime.timezone.utc).isoformat("T", "seconds")
        for f in (min, max)
    )


def main(words=None):
    parser = Parser(
        prog="energy",
        description="Joins the samples of an outside power meter with the timed steps of a result by time: mean power, energy and "
        "energy per token of every repetition. Exit code 0: all have samples, 1: some have none (docs/show.md).",
    )
    parser.add_argument("file", metavar="FILE.h5", help="result file of minitaw run")
    parser.add_argument(
        "meter",
        metavar="METER.csv",
        help="columns time (ISO 8601, UTC) and watts, and meter where there are several, which are added up",
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
            f"{options.meter} has no sample in the timed steps of {options.file}: it covers {span_text(covered)}, they ran {span_text(times)}"
        )
    write_stdout(
        as_json(rows[0], [row.values() for row in rows]) if options.json else text_of(rows)
    )
    return int(not all(row["samples"] for row in rows))
