# SPDX-License-Identifier: BSD-3-Clause
"""scripts/plot and scripts/trend: the points of a figure are the numbers of its files, ratios are those of the same x, and only a change
beyond noise is marked."""

import argparse
import csv
import json

import files
import numpy
from support import FOLDER, SAMPLE, accepted, refused, run_all
from minitaw import plot, trend
from minitaw.record import load_all

DAY = "2026-07-18T09:30:00Z"

def measured(name, cases, links=(), commit="abc", noise=0.01, **columns):
    """cases: [(schedule, seq, factor on the step, started)], of which each has 12 samples that spread by so much."""
    rows = []
    for schedule, seq, factor, started in cases:
        seconds = factor * (1 + noise * numpy.sin(numpy.arange(12))).reshape(12, 1).repeat(3, axis=1)
        step = float(numpy.median(seconds[:, 0]))
        rows.append((4, {"session": 0, "schedule": schedule, "seq": seq, "median_s": step, "tokens_per_s": 1000 / step, "tokens_per_s_rank": 1000 / step / 3,
                         "bytes_between": 3 << 20, "memory_measured": 5 << 20, "started": started, "spread": noise, "identity": f"{schedule} {seq} {columns.get('hidden')}"} | columns,
                     {"seconds": seconds, "repetition": numpy.zeros(12, int)}))
    return files.make(SAMPLE, FOLDER / name, rows, {"links": list(links), "git_hash": commit})

def points(*arguments):
    accepted("plot", *arguments, "-o", "out.csv", "-o", "out.pdf", "-o", "out.png")
    assert (FOLDER / "out.pdf").read_bytes().startswith(b"%PDF") and (FOLDER / "out.png").stat().st_size > 5000
    return [(row[0], float(row[1]), float(row[2])) for row in list(csv.reader(open("out.csv")))[1:]]

def close(found, expected):
    assert len(found) == len(expected) and all(a[:2] == b[:2] and abs(a[2] / b[2] - 1) < 0.02 for a, b in zip(found, expected)), (found, expected)

def check_points():
    one = measured("one.h5", [("tawpipe", 128, 0.5, DAY), ("fsdp", 128, 1, DAY), ("tawpipe", 256, 1, DAY), ("fsdp", 256, 4, DAY)], ["rate=100mbit"])
    close(points(one), [("fsdp", 128, 333), ("fsdp", 256, 83.3), ("tawpipe", 128, 667), ("tawpipe", 256, 333)])
    close(points(one, "--relative-to", "fsdp", "--y", "tokens_per_s"), [("fsdp", 128, 1), ("fsdp", 256, 1), ("tawpipe", 128, 2), ("tawpipe", 256, 4)])
    close(points(one, "--y", "between", "--schedule", "fsdp"), [("fsdp", 128, 3), ("fsdp", 256, 3)])
    close(points(one, "--relative-to", "fsdp", "--schedule", "tawpipe"), [("tawpipe", 128, 2), ("tawpipe", 256, 4)])
    close(points(one, "--where", "schedule=fsdp", "--where", "seq=256", "--y", "memory"), [("fsdp", 256, 5)])
    two = [measured(f"{rate}.h5", [("fsdp", 128, 100 / rate, DAY)], [f"rate={rate}mbit"]) for rate in (50, 200)]
    more = [measured(f"{rate}.h5", [("fsdp", 128, 1, DAY)], [f"rate={rate}"]) for rate in ("2gbit", "500kbit")]
    close(points(*two, *more, "--x", "between.rate", "--y", "step"), [("fsdp", 0.5, 1), ("fsdp", 50, 2), ("fsdp", 200, 0.5), ("fsdp", 2000, 1)])
    assert abs(plot.inches("84mm") - 8.4 / 2.54) < 1e-9 and abs(plot.inches("8.4cm") - 8.4 / 2.54) < 1e-9
    assert 'width="237' in (accepted("plot", one, "-o", "a.svg", "--width", "3.3in") and (FOLDER / "a.svg").read_text())  # 3.3 * 72 points
    refused("plot", *two, "-o", "x.pdf", says="fsdp has several cases at seq = 128, which differ in their file: choose by file")
    refused("plot", one, "-o", "x.txt", says="must end in")
    refused("plot", one, "-o", "x.pdf", "--relative-to", "ddp", says="no valid case has seq and tokens_per_s_rank beside one of ddp")
    for width in ("wide", "1e3in", ".in", "0.1in", "3..3in"):
        refused("plot", one, "-o", "x.pdf", "--width", width, says="3.3in")

def check_predictions():
    settings = "schedule=tawpipe ranks=4 groups=2+2 seq=256 hidden=4096 replicas=2"
    found = {"between_bytes_per_s": 12.5e6, "cases": [{"settings": settings, "step_s": 2.0, "tokens_per_s": 400, "memory_bytes": 2 << 20,
                                                       "adapters": [{"out_bytes": 1 << 20}, {"out_bytes": 3 << 20}]}]}
    found["cases"].append(found["cases"][0] | {"settings": settings.replace("tawpipe", "fsdp"), "fits": False})
    (FOLDER / "p.json").write_text(json.dumps(found))
    for x, y, expected in (("seq", "tokens_per_s_rank", (256, 100)), ("between.rate", "step", (100, 2)), ("groups", "between", (2, 4)), ("ranks", "memory", (4, 2))):
        close(points("p.json", "--x", x, "--y", y), [("tawpipe, predicted", *expected)])
    where = ("--where", "hidden=4K", "--where", "replicas=2", "--schedule", "tawpipe")
    close(points("p.json", *where), [("tawpipe, predicted", 256, 100)])
    lines = plot.draw([("tawpipe", 1, 2), ("tawpipe, predicted", 1, 2)], argparse.Namespace(width="3in", y="step", x="seq", relative_to=None)).axes[0].lines
    assert [line.get_fillstyle() for line in lines if line.get_marker() == "o"] == ["full", "none"], "predictions are hollow"
    one = measured("both.h5", [("tawpipe", 256, 0.5, DAY), ("fsdp", 256, 1, DAY)])
    close(points(one, "p.json", "--relative-to", "tawpipe", "--y", "tokens_per_s"), [("fsdp", 256, 0.5), ("tawpipe", 256, 1), ("tawpipe, predicted", 256, 1)])
    refused("plot", "missing.json", "-o", "x.pdf", says="missing.json cannot be read: No such file")
    (FOLDER / "bad.json").write_text("[1]")
    refused("plot", "bad.json", "-o", "x.pdf", says="no output of minitaw predict --json")

def check_trend():
    steps = [("2026-01-01T00:00:00Z", 1.0, "aaa"), ("2026-02-01T00:00:00Z", 1.005, "bbb"), ("2026-03-01T00:00:00Z", 1.2, "ccc"), ("2026-04-01T00:00:00Z", 0.9, "ddd")]
    names = [measured(f"trend{commit}.h5", [("fsdp", 128, factor, day)], commit=commit) for day, factor, commit in steps]
    lines = accepted("trend", *reversed(names), "-o", "trend.png").splitlines()
    assert lines[0].startswith("# 0: fsdp, ") and "128 tokens" in lines[0] and lines[-1] == "trend.png" and (FOLDER / "trend.png").stat().st_size > 5000
    assert [line.split()[:2] for line in lines[1:5]] == [[day, commit] for day, _, commit in steps]
    assert [line.split()[-1] for line in lines[1:5]][1:] == ["-0.5%", "slower", "faster"] and "-16.2%" in lines[3], lines

def check_marks():
    """A change is marked if it is 3 % and beyond noise. Each case is a line of its own; what failed is in none."""
    days = [f"2026-0{month}-01T00:00:00+00:00" for month in range(1, 7)]
    steps = (1, 0.01), (1.02, 0.0001), (1.06, 0.01), (1.01, 0.01), (1.2, 0.4), (1.26, 0.3)
    names = [measured(f"mark{day}.h5", [("fsdp", 128, step, day), ("fsdp", 256, 2, day)], noise=noise) for day, (step, noise) in zip(days, steps)]
    names += [measured("bad.h5", [("fsdp", 128, 9, days[0])], verdict="INVALID: wrong"), measured("large.h5", [("fsdp", 128, 3, days[0])], hidden=1024)]
    found = trend.history(load_all(names))
    assert [name.split(", ", 2)[2] for name in found] == ["128 tokens, hidden 12", "256 tokens, hidden 12", "128 tokens, hidden 1024"], found
    rows, *others = ([row[2:] for row in trend.lines(some)] for some in found.values())
    assert rows == [("999.3 token/s", "spread 1.0 %", "", ""), ("980.4 token/s", "spread 0.0 %", "-1.9%", ""), ("942.7 token/s", "spread 1.0 %", "-3.8%", "slower"),
                    ("989.4 token/s", "spread 1.0 %", "+5.0%", "faster"), ("810.5 token/s", "spread 40.0 %", "-18.1%", ""),
                    ("777.2 token/s", "spread 30.0 %", "-4.1%", "")], rows
    assert [len(some) for some in others] == [6, 1]
    axes = trend.draw(found).axes[0]
    assert numpy.allclose(axes.lines[0].get_ydata(), [1, 0.9811, 0.9434, 0.9901, 0.8110, 0.7777], atol=1e-4), axes.lines[0].get_ydata()
    marks = [(text.get_text(), text.xy[0].isoformat(), round(text.xy[1], 2)) for text in axes.texts]
    assert marks == [("▼", days[2], 0.94), ("▲", days[3], 0.99)], marks

run_all(check_points, check_predictions, check_trend, check_marks)
