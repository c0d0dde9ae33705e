# SPDX-License-Identifier: BSD-3-Clause
"""scripts/trend: only a lasting change beyond the noise between runs is marked, where it began."""

import os
from unittest import mock

import files
import numpy
import pandas
from support import SAMPLE, accepted, run_checks
from minitaw import history, record, trend

SEED = int(os.environ.get("MINITAW_SEED", 20260115))
CHANCE = numpy.random.default_rng(SEED)
SEEN = record.load(SAMPLE)
SESSION = {"git_hash": "abc", "links": [], "devices": ["cpu"], "build_type": "Release"}
DAYS = [f"2026-01-{day:02}T00:00:00Z" for day in range(1, 31)]


def measured(*cases, day=0, session=SESSION, **columns):
    """The runs of a file. cases: (schedule, seq, factor on the step)."""
    rows = []
    for number, (schedule, seq, factor) in enumerate(cases):
        seconds = factor * (1 + 0.01 * numpy.sin(numpy.arange(12))).reshape(12, 1)
        given = {
            "case": number,
            "schedule": schedule,
            "seq": seq,
            "verdict": "VALID",
            "started": DAYS[day],
            "spread": 0.01,
            "identity": f"{schedule} {seq} {columns.get('hidden')}",
        }
        rows.append((SEEN.iloc[0].to_dict() | given | columns, {"seconds": seconds}))
    return files.in_memory(rows, settings=SEEN.file[0].settings, sessions=[session])


def days_of(factors, noisy=()):
    """A record a day; two schedules, of which only the first changes."""
    found = []
    for i, factor in enumerate(factors):
        verdict = "VALID (noisy: quartiles 40 % of the median apart)" if i in noisy else "VALID"
        cases = (
            ("fsdp", 128, factor * (1 + 0.001 * (i * 7 % 5))),
            ("ddp", 128, 2 + 0.001 * (i * 3 % 7)),
        )
        session = SESSION | {"git_hash": f"c{i:02}"}
        found.append(measured(*cases, day=i, verdict=verdict, session=session))
    return found


def joined(tables):
    return pandas.concat(tables, ignore_index=True)


def said(tables, *options, code=0):
    """What the command prints of these files."""
    with mock.patch.object(trend, "load_all", lambda _: joined(tables)):
        return accepted("trend", "x.h5", *options, code=code)


def marks(steps):
    """Where a history of runs of these fastest steps changes, and by how much."""
    runs = pandas.DataFrame({"fastest": numpy.array(steps, float), "counts": True})
    found = history.marked(runs, history.RISK)
    return found.ratio.dropna().round(2).to_dict()


def check_one_program():
    """30 histories of 30 runs of one program, each with noise of its own: normal, and one that
    only lengthens, both of 5 %. One in twenty may have a mark; that 7 or more had is less probable
    than one in 1500."""
    for noise in (
        lambda: numpy.exp(0.05 * CHANCE.standard_normal(30)),
        lambda: 1 + 0.05 * CHANCE.exponential(size=30),
    ):
        found = [marks(noise()) for _ in range(30)]
        assert sum(map(bool, found)) <= 6 and max(map(len, found)) <= 1, (SEED, found)


def noisy(*levels):
    """Of 15 runs each, with normal noise of 1.5 %."""
    runs = numpy.repeat(levels, 15)
    return runs * numpy.exp(0.015 * CHANCE.standard_normal(len(runs)))


def check_changes():
    """10 % between run 15 and 16 of 30: marked once, and there. To put it one run off takes a run
    that is 3.2 standard deviations off."""
    for factor in (1.1, 1 / 1.1):
        found = [marks(noisy(1, factor)) for _ in range(20)]
        assert sum([*one] == [15] for one in found) >= 19, (SEED, found)
        assert max(map(len, found)) == 1, (SEED, found)
        assert all(abs(ratio - factor) < 0.04 for one in found for ratio in one.values()), found
    assert [*marks(noisy(1, 1.3, 1))] == [15, 30]
    assert marks(noisy(1, 1.02)) == {}
    exact = 1 + 0.001 * (numpy.arange(30) * 7 % 10)  # spread over less than a percent
    exact[12:14] *= 1.5
    assert marks(exact) == {}, "two runs are no lasting change"
    # Evenly over +- 9 %: a scatter of 1.48 times 4.5 %.
    wide = 1 + 0.09 * (numpy.arange(31) * 7 % 31 - 15) / 15
    small = marks(numpy.concatenate([wide, 1.12 * wide[:11]]))
    assert small == {}, "ranks show it, but it is less than twice the scatter"
    assert [*marks(numpy.concatenate([wide, 1.4 * wide[:11]]))] == [31]


def check_chances():
    """By hand: each of up to 10 newest runs against all before, for 2, 3, ... n runs; 2 / (14 over
    7) = 2 / 3432 is the first that is below 0.05 over their number (85)."""
    assert [history.tests_of(n) for n in (1, 2, 3, 11, 12, 14)] == [0, 1, 3, 55, 65, 85]
    assert history.least_count(0.05) == 14
    rising = 1 + 0.01 * numpy.arange(14)
    rising[7:] += 1
    assert marks(rising[:13]) == {} and marks(rising) == {7: 2.04}


SLOW = days_of([1] * 10 + [1.5] + [1] * 3 + [1.2] * 9, noisy=[10])


def check_trend():
    """A change is told where it began, fails while it is new, and is history after ten runs; noisy
    runs are shown and do not count."""
    fsdp, ddp = said(SLOW[::-1]).split("# 1: ")
    rows = fsdp.splitlines()[2:-1]
    assert [row.split()[:2] for row in rows] == [[DAYS[i], f"c{i:02}"] for i in range(23)]
    assert [i for i, row in enumerate(rows) if not row.endswith("%")] == [10, 14], fsdp
    assert "spread 1.0 %" in rows[0] and rows[10].endswith("  noisy, does not count"), rows
    change = "slower: step +20." + rows[14].partition("slower: step +20.")[2]
    assert change.endswith(" against the 13 runs before"), rows[14]
    told = f"# {change}, since {DAYS[14]} (9 runs); changes below 3.0% would not be seen"
    assert told in fsdp and fsdp.endswith("; 1 noisy run did not count\n"), fsdp
    assert "# no change in 22 runs; " in ddp
    for tables, code, closing, also in (
        (SLOW, 1, "SLOWER: 1 of 2 cases, first 0: fsdp, ", f": {change}, since {DAYS[14]}\n"),
        (
            [*SLOW, *days_of([9] * 23 + [1.2] * 2)[23:]],
            0,
            "SAME: no change in the newest 10 runs of 2 cases\n",
            "slower: step +2",
        ),
        (days_of([1.2] * 12 + [1] * 9), 0, "FASTER: 1 of 2 cases, first 0: fsdp", "faster: step"),
        (SLOW[:5], 0, "UNKNOWN", "# unknown: 5 runs, 16 or more can show a change\n"),
    ):
        text = said(tables, "--fail", code=code)
        assert f"TREND: {closing}" in text and also in text, text
    assert "TREND: SLOWER" in said(SLOW), "without --fail"


def check_histories():
    """Each case has one of its own, on each machine; what failed is in none."""
    both = ("fsdp", 128, 1), ("fsdp", 256, 2)
    tables = [
        measured(*both),
        measured(("fsdp", 128, 3), day=1, hidden=1024),
        measured(("fsdp", 128, 9), verdict="INVALID: wrong"),
        measured(both[0]),
        measured(both[0], session=SESSION | {"build_type": "Debug"}),
    ]
    found = trend.histories(joined(tables))
    assert [(name.split(", ", 2)[2], len(runs)) for name, runs in found.items()] == [
        ("128 tokens, hidden 12, build_type Release", 2),
        ("256 tokens, hidden 12, build_type Release", 1),
        ("128 tokens, hidden 1024, build_type Release", 1),
        ("128 tokens, hidden 12, build_type Debug", 1),
    ], found


def check_drawing():
    found = trend.histories(joined(SLOW))
    axes = trend.draw(found).axes[0]
    line, hollow, other, _ = axes.lines
    assert len(line.get_xdata()) == len(other.get_xdata()) == 23
    assert abs(line.get_ydata()[22] - 1 / 1.2) < 0.005
    assert [str(x)[:10] for x in hollow.get_xdata()] == [DAYS[10][:10]]
    assert hollow.get_markerfacecolor() == "white"
    (text,) = axes.texts
    assert (text.get_text(), str(text.xy[0])[:10]) == ("▼", DAYS[14][:10])
    assert said(SLOW, "-o", "trend.svg").splitlines()[-2] == "trend.svg"


print(f"MINITAW_SEED={SEED}")
run_checks(globals())
