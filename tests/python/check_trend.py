# SPDX-License-Identifier: BSD-3-Clause
"""scripts/trend: only a lasting change beyond the noise between runs is marked, where it began."""

import os
from unittest import mock

import files
import numpy
import pandas
from support import FOLDER, SAMPLE, accepted, run_checks
from minitaw import history, record, trend

SEED = int(os.environ.get("MINITAW_SEED", 20260115))
CHANCE = numpy.random.default_rng(SEED)
SEEN = record.load(SAMPLE)
SESSION = {"git_hash": "abc", "links": [], "devices": ["cpu"], "build_type": "Release"}
DAYS = [f"2026-01-{day:02}T00:00:00Z" for day in range(1, 31)]


def measured(*cases, day=0, verdict="VALID", session=SESSION, **columns):
    """The runs of a file. cases: (schedule, seq, factor on the step)."""
    rows = []
    for number, (schedule, seq, factor) in enumerate(cases):
        seconds = factor * (1 + 0.01 * numpy.sin(numpy.arange(12))).reshape(12, 1)
        given = {
            "case": number,
            "schedule": schedule,
            "seq": seq,
            "verdict": verdict,
            "started": DAYS[day],
            "spread": 0.01,
            "tokens_per_s": 1000 / numpy.median(seconds),
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


def said(tables, *options, code=0):
    """What the command prints of these files."""
    with mock.patch.object(trend, "load_all", lambda _: pandas.concat(tables, ignore_index=True)):
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
    for blip in ([1.5], [1.5, 1.5], [1.5, 0.5]):
        exact = 1 + 0.001 * (numpy.arange(30) * 7 % 10)  # spread over less than a percent
        exact[12 : 12 + len(blip)] *= blip
        assert marks(exact) == {}, "one or two runs are no lasting change"
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
    assert marks([1] * 7 + [2] * 6) == {}
    rising = [1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7]
    assert marks(rising) == {7: 2.31}


SLOW = days_of([1] * 10 + [1.5] + [1] * 3 + [1.2] * 9, noisy=[10])


def check_trend():
    """A change is told where it began, fails while it is new, and is history after ten runs; noisy
    runs are shown and do not count."""
    text = said(SLOW[::-1])
    fsdp, ddp = (part.splitlines() for part in text.split("# 1: "))
    assert fsdp[0].startswith("# 0: fsdp, ")
    rows = [line for line in fsdp if line.startswith("  ")]
    assert [row.split()[:2] for row in rows] == [[DAYS[i], f"c{i:02}"] for i in range(23)]
    told = {i: row.split("  ")[-1].strip() for i, row in enumerate(rows) if not row.endswith("%")}
    assert told.pop(10) == "noisy, does not count", told
    assert [*told] == [14], told
    assert told[14].startswith("slower: step +20."), told
    assert told[14].endswith(" against the 13 runs before") and "spread 1.0 %" in rows[0], rows
    (last,) = [line for line in fsdp if line.startswith("# slower")]
    assert f"since {DAYS[14]} (9 runs); changes below 3.0% would not be seen" in last, last
    assert last.endswith("; 1 noisy run did not count"), last
    assert any(line.startswith("# no change in 22 runs; ") for line in ddp), ddp
    closing = text.splitlines()[-1]
    assert closing.startswith("TREND: SLOWER: 1 of 2 cases, first 0: fsdp, "), closing
    assert closing.endswith(f"runs before, since {DAYS[14]}"), closing
    assert said(SLOW, "--fail", code=1).endswith(f"{closing}\n")
    later = days_of([9] * 23 + [1.2] * 2)[23:]
    older = said([*SLOW, *later], "--fail")
    assert older.endswith("TREND: SAME: no change in the newest 10 runs of 2 cases\n")
    assert "slower: step +2" in older
    faster = said(days_of([1.2] * 12 + [1] * 9), "--fail")
    assert "TREND: FASTER: 1 of 2 cases, first 0: fsdp" in faster and "slower" not in faster
    few = said(SLOW[:5], "--fail")
    assert "TREND: UNKNOWN" in few
    assert "# unknown: 5 runs, 16 or more can show a change\n" in few, few


def check_histories():
    """Each case has one of its own, on each machine; what failed is in none."""
    both = ("fsdp", 128, 1), ("fsdp", 256, 2)
    tables = [
        measured(*both),
        measured(("fsdp", 128, 3), day=1, hidden=1024),
        measured(("fsdp", 128, 9), verdict="INVALID: wrong"),
        measured(both[0]),
    ]
    found = trend.histories(pandas.concat(tables, ignore_index=True))
    assert [(name.split(", ", 2)[2], len(runs)) for name, runs in found.items()] == [
        ("128 tokens, hidden 12", 2),
        ("256 tokens, hidden 12", 1),
        ("128 tokens, hidden 1024", 1),
    ], found
    tables.append(measured(both[0], session=SESSION | {"build_type": "Debug"}))
    found = trend.histories(pandas.concat(tables, ignore_index=True))
    assert any("build_type Debug" in name for name in found), "another machine is no history"


def check_drawing():
    found = trend.histories(pandas.concat(SLOW, ignore_index=True))
    axes = trend.draw(found).axes[0]
    line, hollow, other, _ = axes.lines
    assert len(line.get_xdata()) == len(other.get_xdata()) == 23
    assert abs(line.get_ydata()[22] - 1 / 1.2) < 0.005
    assert [str(x)[:10] for x in hollow.get_xdata()] == [DAYS[10][:10]]
    assert hollow.get_markerfacecolor() == "white"
    (text,) = axes.texts
    assert (text.get_text(), str(text.xy[0])[:10]) == ("▼", DAYS[14][:10])
    assert said(SLOW, "-o", "trend.svg").splitlines()[-2] == "trend.svg"
    assert "▼" in (FOLDER / "trend.svg").read_text(encoding="utf-8")


print(f"MINITAW_SEED={SEED}")
run_checks(globals())
