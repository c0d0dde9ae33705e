# SPDX-License-Identifier: BSD-3-Clause
"""scripts/trend: only a lasting change beyond the noise between runs is marked, where it began."""

import re
from unittest import mock

import numpy
import pandas
import pytest
import samples
from minitaw import history, trend
from programs import output_of, script

CHANCE = numpy.random.default_rng(20260115)
SESSION = dict(git_hash="abc", links=[], devices=["cpu"], build_type="Release")
DAYS = [f"2026-01-{day:02}T00:00:00Z" for day in range(1, 31)]


def marks(steps):
    """Where a history of runs of these fastest steps changes, and by how much."""
    runs = pandas.DataFrame({"fastest": numpy.array(steps, float)})
    found = history.marked(runs, history.RISK)
    return found.ratio.dropna().round(2).to_dict()


def noisy(*levels):
    """Of 15 runs each, with normal noise of 1.5 %."""
    runs = numpy.repeat(levels, 15)
    return runs * numpy.exp(0.015 * CHANCE.standard_normal(len(runs)))


def test_noise_of_one_program_has_no_mark():
    """One in twenty histories may have one; the second noise only lengthens."""
    normal = [numpy.exp(0.05 * CHANCE.standard_normal(30)) for _ in range(6)]
    longer = [1 + 0.05 * CHANCE.exponential(size=30) for _ in range(6)]
    assert sum(map(bool, map(marks, normal + longer))) <= 1


@pytest.mark.parametrize("factor", [1.1, 1 / 1.1])
def test_a_lasting_change_is_marked_once_and_there(factor):
    """To put it one run off takes a run that is 3.2 standard deviations off."""
    for _ in range(3):
        assert marks(noisy(1, factor)) == {15: pytest.approx(factor, abs=0.04)}


def test_small_or_short_changes_have_no_mark():
    assert marks(noisy(1, 1.02)) == {}
    assert [*marks(noisy(1, 1.3, 1))] == [15, 30]
    exact = 1 + 0.001 * (numpy.arange(30) * 7 % 10)  # spread over less than a percent
    exact[12:14] *= 1.5
    assert marks(exact) == {}
    # Evenly over +- 9 %: a scatter of 1.48 times 4.5 %, of which 12 % is less than twice, though
    # ranks show it.
    wide = 1 + 0.09 * (numpy.arange(31) * 7 % 31 - 15) / 15
    assert marks(numpy.concatenate([wide, 1.12 * wide[:11]])) == {}
    assert [*marks(numpy.concatenate([wide, 1.4 * wide[:11]]))] == [31]


def test_all_comparisons_share_the_risk():
    """By hand: each of up to 10 newest runs against all before, for 2, 3, ... n runs; 2 / (14 over
    7) = 2 / 3432 is the first that is below 0.05 over their number (85)."""
    assert [history.tests_of(n) for n in (3, 11, 12, 14)] == [3, 55, 65, 85]
    assert history.least_count(0.05) == 14
    rising = 1 + 0.01 * numpy.arange(14)
    rising[7:] += 1
    assert marks(rising[:13]) == {}
    assert marks(rising) == {7: 2.04}


# Files.


def measured(*cases, day=0, session={}, **columns):
    """The runs of a file. cases: (sequence length, factor on the step)."""
    runs = []
    for case, (seq, factor) in enumerate(cases):
        run = dict(case=case, seq=seq, verdict="VALID", spread=0.01, started=DAYS[day]) | columns
        run["seconds"] = factor * numpy.linspace([1], [1.01], 12)
        run["identity"] = f"{seq} {run.get('hidden')}"
        runs.append(run)
    return samples.in_memory(*runs, sessions=[SESSION | session])


def said(factors, *options, code=0):
    """What the command prints of a record a day, in any order; of two cases only the first
    changes."""
    files = []
    for day, factor in enumerate(factors):
        cases = (128, factor * (1 + 0.001 * (day * 7 % 5))), (256, 2 + 0.001 * (day % 7))
        session = dict(git_hash=f"c{day:02}")
        files.append(measured(*cases, day=day, session=session))
    table = pandas.concat(files[::-1], ignore_index=True)
    with mock.patch.object(trend, "load_all", lambda _: table):
        return output_of(script("trend", "x.h5", *options), code)


SCATTERED = [1 + 0.01 * (day * 7 % 18 - 8.5) for day in range(18)]
SLOW = [1] * 14 + [1.2] * 9


def test_a_change_is_told_where_it_began():
    with mock.patch.object(trend, "save") as save:
        text = said(SLOW, "--fail", "-o", "trend.svg", code=1)
    first, second = text.split("# 1: ")
    rows = first.splitlines()[2:-1]
    assert [row.split()[:2] for row in rows] == [[DAYS[i], f"c{i:02}"] for i in range(23)]
    assert [i for i, row in enumerate(rows) if not row.endswith("%")] == [14]
    assert "spread 1.0 %" in rows[0]
    change = re.search("slower: step [+]20..% against the 14 runs before$", rows[14])[0]
    told = f"# {change}, since {DAYS[14]} (9 runs); changes below 3.0% would not be seen"
    assert told in first
    assert "# no change in 23 runs; " in second
    closing = text.splitlines()[-1]
    assert closing.startswith("TREND: SLOWER: 1 of 2 cases, first 0: tawpipe, ")
    assert closing.endswith(told.removeprefix("#"))
    axes = save.call_args.args[0].axes[0]
    line, other = axes.lines
    assert len(line.get_xdata()) == len(other.get_xdata()) == 23
    assert line.get_ydata()[22] == pytest.approx(1 / 1.2, abs=0.005)
    (mark,) = axes.texts
    assert (mark.get_text(), mark.xy[0]) == ("▼", line.get_xdata()[14])


@pytest.mark.parametrize(
    "factors, options, closing, also",
    [
        ([1] * 13 + [1.2] * 9, [], "SLOWER", "slower: step"),
        ([1] * 13 + [1.2] * 11, ["--fail"], "SAME: 2 of 2 cases", "11 runs); changes below 3.0%"),
        ([1.2] * 12 + [1] * 9, ["--fail"], "FASTER: 1 of 2 cases", "faster: step"),
        ([1] * 5, ["--fail"], "UNKNOWN", "# unknown: 5 runs, 16 or more can show a change"),
        (SCATTERED, [], "UNKNOWN: 1 of 2", "# unknown: runs scatter by "),
        # a load that left the newest run alone
        ([1] * 18 + [1.2, 1.2, 1], [], "SAME: 2 of 2 cases", "# no change in 21 runs"),
        *(
            ([1] * 18 + [1.125] * newest, ["--fail"], "UNKNOWN: 1 of 2", f": newest {some} slower")
            for newest, some in ((1, "1 run"), (3, "3 runs"))
        ),
        ([1] * 18 + [1.125] * 9, [], "SLOWER", "step +12.5% against the 18 runs before"),
    ],
)
def test_only_a_new_slowdown_fails_if_asked(factors, options, closing, also):
    text = said(factors, *options)
    assert f"TREND: {closing}" in text
    assert also in text


def test_the_fastest_step_of_all_stands_for_a_record():
    """Of as many repetitions and steps as each record has; noisy ones count."""
    tables = []
    for day, steps in enumerate(([[5, 4], [3, 6]], [[7, 5, 1], [8, 9, 1], [1, 1, 1]])):
        for repetition, of in enumerate(steps):
            run = dict(case=0, repetition=repetition, repeats=len(steps), seconds=[[s] for s in of])
            run |= dict(verdict="VALID (noisy: much)", started=DAYS[day])
            run["seconds"] = numpy.array(run["seconds"], float)
            tables.append(run)
    files = [samples.in_memory(*tables[:2], sessions=[SESSION])]
    files.append(samples.in_memory(*tables[2:], sessions=[SESSION]))
    (found,) = trend.histories(pandas.concat(files, ignore_index=True)).values()
    assert [*found.fastest] == [3, 5]


def test_a_sweep_that_was_stopped_is_told():
    table = measured((128, 1))
    table.file[0].verdict = "INVALID: unfinished cases: 3 (stopped by SIGTERM)"
    with mock.patch.object(trend, "load_all", lambda _: table):
        text = output_of(script("trend", "x.h5"))
    assert text.startswith(f"# a.h5: {table.file[0].verdict}\n")


def test_each_case_has_a_history_on_each_machine():
    """What failed is in none."""
    tables = [
        measured((128, 1), (256, 2)),
        measured((128, 3), day=1, hidden=1024),
        measured((128, 9), verdict="INVALID: wrong"),
        measured((128, 1)),
        measured((128, 1), session={"build_type": "Debug"}),
    ]
    found = trend.histories(pandas.concat(tables, ignore_index=True))
    assert [name.split(", ", 2)[2] + f": {len(runs)}" for name, runs in found.items()] == [
        "128 tokens, hidden 12, build_type Release: 2",
        "256 tokens, hidden 12, build_type Release: 1",
        "128 tokens, hidden 1024, build_type Release: 1",
        "128 tokens, hidden 12, build_type Debug: 1",
    ]
