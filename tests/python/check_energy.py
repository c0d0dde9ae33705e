# SPDX-License-Identifier: BSD-3-Clause
"""scripts/energy: samples of meters whose sums are known, in and out of the windows of the sample's
cases; MLPerf's rule; input that is none."""

import datetime
import json
import os
import time

import files
import numpy
from support import FOLDER, SAMPLE, accepted, call, refused, run_checks

BEGIN = datetime.datetime(
    2026, 7, 18, 9, 30, 0, 250000, datetime.timezone.utc
)  # of every window of the sample, which last 10.5 s
RESULT = FOLDER / "r.h5"
os.environ["TZ"] = "America/Lima"  # times without an offset are UTC, wherever that is read
time.tzset()


def at(seconds):
    return (
        (BEGIN + datetime.timedelta(seconds=seconds))
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def csv(samples, title="time,watts"):
    path = FOLDER / "meter.csv"
    path.write_text(
        "\n".join([title, *(",".join(map(str, (at(when), *rest))) for when, *rest in samples)])
        + "\n",
        encoding="utf-8",
    )
    return path


def rows(samples, title="time,watts"):
    return json.loads(accepted("energy", RESULT, csv(samples, title), "--json"))


def made(windows):
    """A file of one case of four steps of 6 x 2 x 128 tokens, once more for each repetition."""
    count = len(windows)
    data = {
        "repetition": numpy.repeat(numpy.arange(count), 4),
        "position": numpy.arange(count),
        "seconds": numpy.ones((4 * count, 3)),
        "window/begin": [at(begin) for begin, _ in windows],
        "window/end": [at(end) for _, end in windows],
    }
    files.make(
        SAMPLE, RESULT, [(0, {"verdict": "VALID", "tokens_per_s": 1536.0, "median_s": 1.0}, data)]
    )


def check_figures():
    made([(0, 10.5)])
    inside = [(0, 100), (5, 200), (10.5, 600)]
    text = accepted("energy", RESULT, csv([(-0.001, 5000), *inside, (10.501, 5000)])).splitlines()[
        1
    ]
    cells = text.partition("  indicative: ")[0].split()  # 3150 J for 4 x 1536 tokens
    assert cells == ["0", "tawpipe", "128", "0", "10.500", "3", "300", "3150", "0.5127"], cells
    (row,) = rows([(-0.001, 5000), *inside, (10.501, 5000)])
    assert (row["samples"], row["power_mean"], row["window_s"]) == (3, 300, 10.5), row
    assert row["energy"] == 3150 and abs(row["energy_per_token"] - 3150 / (4 * 1536)) < 1e-12, row
    (row,) = rows(
        [(when, watts, meter) for when, watts in inside for meter in ("rack 1", "rack 2")]
        + [(7, 300, "rack 2")],
        "time,watts,meter",
    )
    assert (row["samples"], row["power_mean"]) == (3, 600), row
    offset = (
        (BEGIN + datetime.timedelta(seconds=1))
        .astimezone(datetime.timezone(datetime.timedelta(hours=2)))
        .isoformat()
    )
    (FOLDER / "meter.csv").write_text(
        f"watts,phase,time\n100,1,{offset}\n300,1,{(BEGIN.timestamp() + 2):.3f}\n"
        "200,1,2026-07-18T09:30:07\n",
        encoding="utf-8",
    )
    (row,) = json.loads(accepted("energy", RESULT, FOLDER / "meter.csv", "--json"))
    assert (row["samples"], row["power_mean"]) == (3, 200), row


def check_rule():
    made([(0, 60), (100, 200), (300, 300.5)])
    second = [(second + 0.5, 100) for second in range(60)]
    dense = [(300 + 0.005 * i, 50) for i in range(100)]
    found = rows(second + dense + [(150, 70)])
    assert [round(row["energy_per_token"] * 4 * 1536, 9) for row in found] == [
        6000,
        7000,
        25,
    ], found
    lacking = [
        row["indicative"] for row in rows(second + [(100 + 1.5 * i, 70) for i in range(67)] + dense)
    ]
    assert lacking == ["", "less than a sample a second, longest gap 1.5 s", ""], lacking
    lacking = [
        row["indicative"]
        for row in rows(
            second[:-1]
            + [(100 + i / 2, 70) for i in range(200) if not 50 < i < 55][::-1]
            + dense[:1]
        )
    ]
    assert lacking == [
        "59 samples, 60 are needed",
        "less than a sample a second, longest gap 2.5 s",
        "1 sample, 60 are needed",
    ], lacking
    text = accepted("energy", RESULT, csv(second + second[:1] + dense + [(150, 1)]))
    assert text.count("indicative: 1 sample, 60 are needed") == 1 and text.count("\n") == 4, text
    done = call("energy", RESULT, csv(second))
    assert done.returncode == 1 and "indicative: no sample" in done.stdout, done


def check_meters():
    """What each of several lacks is told, with its name: too few samples, or a gap at the beginning
    or the end."""
    made([(0, 60)])
    second, half = (
        [(first + i * step, 100) for i in range(count)]
        for first, step, count in ((0.5, 1, 60), (2.5, 0.5, 115))
    )
    meters = {
        "a": second[1:],
        "b": second,
        "c": half,
        "d": [(when - 2.5, watts) for when, watts in half],
        "e": second[2:],
    }
    (row,) = rows(
        [(*sample, name) for name, samples in meters.items() for sample in samples],
        "time,watts,meter",
    )
    assert row["samples"] == 58, "those of the meter that has fewest"
    few, rare = (
        "samples of {}, 60 are needed",
        "less than a sample a second of {}, longest gap {:.1f} s",
    )
    assert row["indicative"] == "; ".join(
        [
            f"59 {few.format('a')}",
            rare.format("c", 2.5),
            rare.format("d", 3),
            f"58 {few.format('e')}",
        ]
    ), row


def check_refusals():
    made([(0, 10.5)])
    for content, word in [
        ("a,b\n1,2\n", "no columns time and watts"),
        ("time,watts\n", "no samples"),
        ("", "no columns"),
        ("time,watts\nyesterday,3\n", 'line 2: "yesterday" and "3"'),
        ("time,watts\n2026-07-18T09:30:01Z,-3\n", '"-3"'),
        ("time,watts\n2026-07-18T09:30:01Z\n", "line 2"),
        ("time,watts\n2026-07-18T09:30:01Z,nan\n", '"nan"'),
        ("time,watts\n2026-07-18T11:30:01Z,3\n", "it covers 2026-07-18T11:30:01+00:00 to"),
    ]:
        (FOLDER / "bad.csv").write_text(content, encoding="utf-8")
        refused("energy", RESULT, FOLDER / "bad.csv", says=word)
    refused("energy", RESULT, FOLDER / "none.csv", says="No such file")


run_checks(globals())
