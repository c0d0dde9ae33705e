# SPDX-License-Identifier: BSD-3-Clause
"""scripts/plot and scripts/trend: the points of a figure are the numbers of its files, ratios are
those of the same x, and only a lasting
change beyond the noise between runs is marked."""

import argparse
import csv
import json
import os

import files
import numpy
from support import FOLDER, SAMPLE, accepted, refused, run_checks
from minitaw import history, plot, trend
from minitaw.record import load_all

DAY = "2026-07-18T09:30:00Z"
SEED = int(os.environ.get("MINITAW_SEED", 20260115))


def measured(name, cases, links=(), commit="abc", noise=0.01, **columns):
    """cases: [(schedule, seq, factor on the step, started)], of which each has 12 samples that
    spread by so much."""
    rows = []
    for schedule, seq, factor, started in cases:
        seconds = factor * (1 + noise * numpy.sin(numpy.arange(12))).reshape(12, 1).repeat(
            3, axis=1
        )
        step = float(numpy.median(seconds[:, 0]))
        rows.append(
            (
                4,
                {
                    "session": 0,
                    "schedule": schedule,
                    "seq": seq,
                    "median_s": step,
                    "tokens_per_s": 1000 / step,
                    "tokens_per_s_rank": 1000 / step / 3,
                    "bytes_between": 3 << 20,
                    "memory_measured": 5 << 20,
                    "started": started,
                    "spread": noise,
                    "identity": f"{schedule} {seq} {columns.get('hidden')}",
                }
                | columns,
                {"seconds": seconds, "repetition": numpy.zeros(12, int)},
            )
        )
    return files.make(SAMPLE, FOLDER / name, rows, {"links": list(links), "git_hash": commit})


def points(*arguments):
    accepted("plot", *arguments, "-o", "out.csv", "-o", "out.pdf", "-o", "out.png")
    assert (FOLDER / "out.pdf").read_bytes().startswith(b"%PDF")
    assert (FOLDER / "out.png").stat().st_size > 5000
    return [(row[0], float(row[1]), float(row[2])) for row in list(csv.reader(open("out.csv")))[1:]]


def close(found, expected):
    assert len(found) == len(expected), (found, expected)
    assert all(a[:2] == b[:2] and abs(a[2] / b[2] - 1) < 0.02 for a, b in zip(found, expected)), (
        found,
        expected,
    )


def check_points():
    cases = [
        ("tawpipe", 128, 0.5, DAY),
        ("fsdp", 128, 1, DAY),
        ("tawpipe", 256, 1, DAY),
        ("fsdp", 256, 4, DAY),
    ]
    one = measured("one.h5", cases, ["rate=100mbit"])
    for options, expected in (
        (
            (),
            [("fsdp", 128, 333), ("fsdp", 256, 83.3), ("tawpipe", 128, 667), ("tawpipe", 256, 333)],
        ),
        (
            ("--relative-to", "fsdp", "--y", "tokens_per_s"),
            [("fsdp", 128, 1), ("fsdp", 256, 1), ("tawpipe", 128, 2), ("tawpipe", 256, 4)],
        ),
        (("--y", "between", "--schedule", "fsdp"), [("fsdp", 128, 3), ("fsdp", 256, 3)]),
        (
            ("--relative-to", "fsdp", "--schedule", "tawpipe"),
            [("tawpipe", 128, 2), ("tawpipe", 256, 4)],
        ),
        (("--where", "schedule=fsdp", "--where", "seq=256", "--y", "memory"), [("fsdp", 256, 5)]),
    ):
        close(points(one, *options), expected)

    # Units of rates as scripts/cluster takes them.
    files = [
        measured(f"{rate}.h5", [("fsdp", 128, seconds, DAY)], [f"rate={rate}"])
        for rate, seconds in (("50mbit", 2), ("200mbit", 0.5), ("2gbit", 1), ("500kbit", 1))
    ]
    close(
        points(*files, "--x", "between.rate", "--y", "step"),
        [("fsdp", 0.5, 1), ("fsdp", 50, 2), ("fsdp", 200, 0.5), ("fsdp", 2000, 1)],
    )
    refused("plot", *files[:2], "-o", "x.pdf", says=("fsdp", "seq = 128", "by file"))
    refused("plot", one, "-o", "x.txt", says="must end in")
    nothing = ("seq", "tokens_per_s_rank", "ddp")
    refused("plot", one, "-o", "x.pdf", "--relative-to", "ddp", says=nothing)


def check_width():
    for text in ("84mm", "8.4cm"):
        assert abs(plot.inches(text) - 8.4 / 2.54) < 1e-9, text
    one = measured("one.h5", [("fsdp", 128, 1, DAY)])
    accepted("plot", one, "-o", "a.svg", "--width", "3.3in")
    assert 'width="237' in (FOLDER / "a.svg").read_text(), "3.3 * 72 points"
    for width in ("wide", "1e3in", ".in", "0.1in", "3..3in"):
        refused("plot", one, "-o", "x.pdf", "--width", width, says="3.3in")


def check_predictions():
    settings = {
        "schedule": "tawpipe",
        "ranks": 4,
        "groups": "2+2",
        "group_count": 2,
        "seq": 256,
        "hidden": 4096,
        "replicas": 2,
    }
    found = {
        "between_bytes_per_s": 12.5e6,
        "cases": [
            {
                "settings": settings,
                "step_s": 2.0,
                "tokens_per_s": 400,
                "memory_bytes": 2 << 20,
                "bytes_between": 4 << 20,
            }
        ],
    }
    found["cases"].append(
        found["cases"][0] | {"settings": settings | {"schedule": "fsdp"}, "fits": False}
    )
    (FOLDER / "p.json").write_text(json.dumps(found))
    for x, y, expected in (
        ("seq", "tokens_per_s_rank", (256, 100)),
        ("between.rate", "step", (100, 2)),
        ("groups", "between", (2, 4)),
        ("ranks", "memory", (4, 2)),
    ):
        close(points("p.json", "--x", x, "--y", y), [("tawpipe, predicted", *expected)])
    where = ("--where", "hidden=4K", "--where", "replicas=2", "--schedule", "tawpipe")
    close(points("p.json", *where), [("tawpipe, predicted", 256, 100)])
    lines = (
        plot.draw(
            [plot.Point("tawpipe", 1, 2), plot.Point("tawpipe, predicted", 1, 2)],
            argparse.Namespace(width="3in", y="step", x="seq", relative_to=None),
        )
        .axes[0]
        .lines
    )
    assert [line.get_fillstyle() for line in lines if line.get_marker() == "o"] == [
        "full",
        "none",
    ], "predictions are hollow"
    one = measured("both.h5", [("tawpipe", 256, 0.5, DAY), ("fsdp", 256, 1, DAY)])
    close(
        points(one, "p.json", "--relative-to", "tawpipe", "--y", "tokens_per_s"),
        [("fsdp", 256, 0.5), ("tawpipe", 256, 1), ("tawpipe, predicted", 256, 1)],
    )
    refused("plot", "missing.json", "-o", "x.pdf", says=("missing.json", "No such file"))
    (FOLDER / "bad.json").write_text("[1]")
    refused("plot", "bad.json", "-o", "x.pdf", says="no output of minitaw predict --json")


class Quiet:
    doubt = ""


def marks(steps):
    """Where a history of runs of these fastest steps changes, and by how much."""
    runs = [history.Run(Quiet, step) for step in steps]
    history.mark(runs, history.RISK)
    return {at: round(run.change.ratio, 2) for at, run in enumerate(runs) if run.change}


def check_one_program():
    """30 histories of 30 runs of one program, each with noise of its own: normal, and one that
    only lengthens, both of 5 %.
    One in twenty may have a mark; that 7 or more had is less probable than one in 1500."""
    chance = numpy.random.default_rng(SEED)
    for noise in (
        lambda: numpy.exp(0.05 * chance.standard_normal(30)),
        lambda: 1 + 0.05 * chance.exponential(size=30),
    ):
        found = [marks(noise()) for _ in range(30)]
        assert sum(map(bool, found)) <= 6 and max(map(len, found)) <= 1, (SEED, found)


def check_changes():
    """10 % between run 15 and 16 of 30, with normal noise of 1.5 %: marked once, and there. To put
    it one run off takes a run that is 3.2
    standard deviations off."""
    chance = numpy.random.default_rng(SEED)

    def noisy(*levels):
        return numpy.concatenate(levels) * numpy.exp(
            0.015 * chance.standard_normal(sum(map(len, levels)))
        )

    for factor in (1.1, 1 / 1.1):
        found = [marks(noisy([1] * 15, [factor] * 15)) for _ in range(20)]
        assert sum([*one] == [15] for one in found) >= 19 and max(map(len, found)) == 1, (
            SEED,
            found,
        )
        assert all(abs(ratio - factor) < 0.04 for one in found for ratio in one.values()), found
    assert [*marks(noisy([1] * 10, [1.3] * 10, [1] * 10))] == [10, 20]
    assert marks(noisy([1] * 15, [1.02] * 15)) == {}
    exact = 1 + 0.001 * (numpy.arange(30) * 7 % 10)  # spread over less than a percent
    for blip in ([1], [1, 1], [1, -1]):
        exact_blip = exact.copy()
        exact_blip[12 : 12 + len(blip)] *= 1 + 0.5 * numpy.array(blip)
        assert marks(exact_blip) == {}, "one or two runs are no lasting change"
    wide = (
        1 + 0.09 * (numpy.arange(31) * 7 % 31 - 15) / 15
    )  # evenly over +- 9 %: a scatter of 1.48 times 4.5 %
    assert (
        marks(numpy.concatenate([wide, 1.12 * wide[:11]])) == {}
    ), "ranks show it, but it is less than twice the scatter"
    assert [*marks(numpy.concatenate([wide, 1.4 * wide[:11]]))] == [31]


def check_chances():
    """By hand: each of up to 10 newest runs against all before, for 2, 3, ... n runs; 2 / (14 over
    7) = 2 / 3432 is the first that is below
    0.05 over their number (85)."""
    assert [history.tests_of(n) for n in (1, 2, 3, 11, 12, 14)] == [0, 1, 3, 55, 65, 85]
    assert history.least_count(0.05) == 14
    assert [
        marks([1] * 7 + [2] * 6),
        marks([1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7]),
    ] == [{}, {7: 2.31}]


DAYS = [f"2026-01-{day:02}T00:00:00Z" for day in range(1, 31)]


def files_of(name, factors, noisy=(), **more):
    """A record a day; two schedules, of which only the first changes."""
    names = []
    for i, factor in enumerate(factors):
        columns = more | {
            "verdict": (
                "VALID (noisy: quartiles 40 % of the median apart)" if i in noisy else "VALID"
            )
        }
        cases = [
            ("fsdp", 128, factor * (1 + 0.001 * (i * 7 % 5)), DAYS[i]),
            ("ddp", 128, 2 + 0.001 * (i * 3 % 7), DAYS[i]),
        ]
        names.append(measured(f"{name}{i:02}.h5", cases, commit=f"c{i:02}", **columns))
    return names


def check_trend():
    """A change is told where it began, fails while it is new, and is history after ten runs; noisy
    runs are shown and do not count."""
    names = files_of("slow", [1] * 10 + [1.5] + [1] * 3 + [1.2] * 9, noisy=[10])
    text = accepted("trend", *reversed(names), "-o", "trend.png")
    fsdp, ddp = (part.splitlines() for part in text.split("# 1: "))
    assert fsdp[0].startswith("# 0: fsdp, ")
    assert "128 tokens" in fsdp[0]
    assert "trend.png" in text
    assert (FOLDER / "trend.png").stat().st_size > 5000
    rows = [line for line in fsdp if line.startswith("  ")]
    assert [row.split()[:2] for row in rows] == [[DAYS[i], f"c{i:02}"] for i in range(23)]
    told = {i: row.split("  ")[-1].strip() for i, row in enumerate(rows) if not row.endswith("%")}
    assert told.pop(10) == "noisy, does not count", told
    assert [*told] == [14], told
    assert told[14].startswith("slower: step +20."), told
    assert told[14].endswith(" against the 13 runs before") and "spread 1.0 %" in rows[0], rows
    last = [line for line in fsdp if line.startswith("# slower")]
    assert len(last) == 1, fsdp
    assert f"since {DAYS[14]} (9 runs); changes below 3.0% would not be seen" in last[0], fsdp
    assert last[0].endswith("; 1 noisy run did not count"), fsdp
    assert any(line.startswith("# no change in 22 runs; ") for line in ddp), ddp
    closing = text.splitlines()[-1]
    assert closing.startswith("TREND: SLOWER: 1 of 2 cases, first 0: fsdp, "), closing
    assert closing.endswith(f"runs before, since {DAYS[14]}"), closing
    assert accepted("trend", *names, "--fail", code=1).endswith(f"{closing}\n")
    older = accepted(
        "trend", *names, *files_of("later", [9] * 23 + [1.2] * 2)[23:], "--fail"
    ).splitlines()
    assert older[-1] == "TREND: SAME: no change in the newest 10 runs of 2 cases"
    assert any("slower: step +2" in line for line in older)
    faster = accepted("trend", *files_of("fast", [1.2] * 12 + [1] * 9), "--fail")
    assert faster.splitlines()[-1].startswith("TREND: FASTER: 1 of 2 cases, first 0: fsdp")
    assert "slower" not in faster
    few = accepted("trend", *names[:5], "--fail").splitlines()
    assert few[-1].startswith("TREND: UNKNOWN"), few
    assert "# unknown: 5 runs, 16 or more can show a change" in few, few


def check_histories():
    """Each case has one of its own, on each machine; what failed is in none."""
    day = [("fsdp", 128, 1, DAYS[0]), ("fsdp", 256, 2, DAYS[0])]
    names = [
        measured("a.h5", day),
        measured("b.h5", [("fsdp", 128, 3, DAYS[1])], hidden=1024),
        measured("c.h5", [("fsdp", 128, 9, DAYS[0])], verdict="INVALID: wrong"),
    ]
    names.append(measured("d.h5", day[:1]))
    with_other = files.make(
        SAMPLE, FOLDER / "e.h5", [(4, {"session": 0}, {})], {"build_type": "Debug"}
    )
    found = trend.histories(load_all(names))
    assert [(name.split(", ", 2)[2], len(runs)) for name, runs in found.items()] == [
        ("128 tokens, hidden 12", 2),
        ("256 tokens, hidden 12", 1),
        ("128 tokens, hidden 1024", 1),
    ], found
    assert any(
        "build_type Debug" in name for name in trend.histories(load_all([*names, with_other]))
    ), "a rate of another machine is no history"


def check_drawing():
    names = files_of("drawn", [1] * 10 + [1.5] + [1] * 3 + [1.25] * 9, noisy=[10])
    found = trend.histories(load_all(names))
    axes = trend.draw(found).axes[0]
    line, noisy, other, _ = axes.lines
    assert len(line.get_xdata()) == len(other.get_xdata()) == 23
    assert abs(line.get_ydata()[22] - 0.8) < 0.005
    assert [x.isoformat()[:10] for x in noisy.get_xdata()] == [DAYS[10][:10]]
    assert noisy.get_markerfacecolor() == "white"
    (text,) = axes.texts
    assert (text.get_text(), text.xy[0].isoformat()[:10]) == ("▼", DAYS[14][:10])
    (text,) = (
        trend.draw(trend.histories(load_all(files_of("up", [1.25] * 12 + [1] * 9)))).axes[0].texts
    )
    assert text.get_text() == "▲"


print(f"MINITAW_SEED={SEED}")
run_checks(globals())
