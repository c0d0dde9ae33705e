# SPDX-License-Identifier: BSD-3-Clause
"""What a comparison says of cases that differ in one thing each: times, memory, bytes, losses,
settings, machines, programs."""

import math
import re

import numpy
import pytest
import samples
from minitaw import comparison, record
from minitaw.aspects import Rules
from minitaw.comparison_text import as_text
from minitaw.junit import as_junit
from programs import SAMPLE, refusal_of, says

RANDOM = numpy.random.default_rng(20111741)
SEEN = record.load(SAMPLE)
SETTINGS = SEEN.file[0].settings
SESSION = dict(devices=["host, 2 threads"] * 3, nodes=[0] * 3, cpu=["one"] * 3)
SESSION["build_type"] = "Release"
STEPS = 6


def measured(seconds=1, repetitions=1, **columns):
    """Runs of a case, columns and arrays of each: steps of about so many seconds, a little
    different in each."""
    first = SEEN.iloc[0].to_dict() | dict(steps=STEPS, repeats=repetitions, verdict="VALID")
    runs = []
    for repetition in range(repetitions):
        steps = seconds * (1 + 0.01 * RANDOM.random((STEPS, 3)))
        arrays = dict(seconds=steps, losses=3.0 - 0.125 * numpy.arange(5))
        runs.append((first | columns | dict(repetition=repetition), arrays))
    return runs


def file_of(*cases, **session):
    """The runs of a file, as load() has them."""
    numbered = enumerate(cases)
    rows = [(row | {"case": i}, arrays) for i, case in numbered for row, arrays in case]
    return samples.in_memory(rows, settings=SETTINGS, sessions=[SESSION | session])


def compare(base, new, **rules):
    return comparison.compare(base, new, Rules(**rules))


def compared(change, rules={}, dtype="fp32", **session):
    """Two files of one case, four repetitions each; `change` is done to the new one."""
    base, new = (measured(1, 4, dtype=dtype) for _ in range(2))
    for run in new:
        change(*run)
    return compare([file_of(base)], [file_of(new, **session)], **rules)


def in_turn(*factors, cases=1, **rules):
    """Pairs of files; the last one of the cases is slower by these factors. Both of a pair see the
    same drift."""

    base, new = [], []
    for pair, factor in enumerate(factors):
        drift = 1 + 0.5 * abs(math.sin(pair))
        for side, last in ((base, drift), (new, factor * drift)):
            others = [measured(drift, seq=128 << i) for i in range(cases - 1)]
            side.append(file_of(*others, measured(last, seq=1 << 20)))
    return compare(base, new, **rules)


def columns(**changed):
    return lambda row, arrays: row.update(changed)


def larger(column, factor):
    return columns(**{column: round(SEEN[column][0] * factor)})


def scaled(name, factor, at=slice(None)):
    """Of an array."""

    def change(row, arrays):
        arrays[name][at] *= factor

    return change


FAILED = dict(status="wrong", verdict="INVALID: wrong: the loss is not finite")
FIVE_OF_SIX = scaled("seconds", 3, slice(1, None))
unchanged = columns()


def aspect_of(found, name):
    return found.cases[0].aspects[name]


def time_of(found):
    return aspect_of(found, "time")


def test_unchanged_is_the_same():
    for found in (compared(unchanged), in_turn(*[1] * 7)):
        assert found.word == "SAME"
        assert {aspect.outcome for aspect in found.cases[0].aspects.values()} == {"same"}


@pytest.mark.parametrize(
    "change, rules, name, word",
    [
        (scaled("seconds", 1.2), {}, "time", "SLOWER"),
        (scaled("seconds", 1.2), dict(threshold=0.3), "time", "SAME"),
        (FIVE_OF_SIX, {}, "time", "SAME"),
        (FIVE_OF_SIX, dict(quantile=0.5), "time", "SLOWER"),
        (columns(**FAILED), {}, "verdict", "BROKEN"),
        (larger("memory_measured", 1.04), {}, "memory", "SAME"),
        (larger("memory_measured", 1.06), {}, "memory", "MORE"),
        (larger("memory_measured", 1.04), dict(memory_threshold=0.01), "memory", "MORE"),
        (larger("bytes_between", 1.1), {}, "bytes between", "MORE"),
        (larger("bytes_inside", 0.9), {}, "bytes inside", "LESS"),
        (scaled("losses", math.nan, 0), {}, "first loss", "WRONG"),
    ],
)
def test_one_change_is_told_by_its_aspect(change, rules, name, word):
    found = compared(change, rules)
    assert aspect_of(found, name).word == word
    assert found.outcome == ("same" if word in ("SAME", "LESS") else "worse")


def test_losses_agree_within_limits_of_the_type():
    for dtype, at, limit in (
        ("fp32", 0, 1e-6),
        ("fp32", -1, 1e-4),
        ("bf16", 0, 1e-3),
        ("bf16", -1, 0.01),
    ):
        for off, word in ((0.95, "SAME"), (-1.05, "WRONG")):
            found = compared(scaled("losses", 1 + off * limit, at), dtype=dtype)
            assert aspect_of(found, "last loss" if at else "first loss").word == word, (dtype, at)


def test_a_drift_of_both_files_of_a_pair_does_not_matter():
    for pairs in (7, 8):
        time = time_of(in_turn(*[1.1] * pairs))
        assert time.word == "SLOWER" and time.ratio.estimate == pytest.approx(1.1, abs=0.01)
        assert time.new / time.base == pytest.approx(time.ratio.estimate, rel=1e-12)
    assert in_turn(*[1 / 1.1] * 7).word == "FASTER"


def test_files_without_partners_are_repetitions():
    base, new = ([file_of(measured(of)) for _ in range(n)] for n, of in ((5, 1), (4, 1.3)))
    assert time_of(compare(base, new)).word == "SLOWER"
    few = compare(base[:3], new)
    assert "too few repetitions (3 and 4) for" in few.text() and few.word == "AMBIGUOUS"
    one = compare(base[:1], new[:1])
    assert one.notes[-1].startswith("there is one file of each") and few.notes == []
    assert "too few pairs of files (5) for" in in_turn(*[2] * 5).text()


@pytest.mark.parametrize(
    "pairs, options, word",
    [
        (6, {"cases": 1}, "SLOWER"),
        (7, {"cases": 3}, "AMBIGUOUS"),
        (8, {"cases": 3}, "SLOWER"),
        (9, {"cases": 3, "looks": 4}, "AMBIGUOUS"),
        (10, {"cases": 3, "looks": 4}, "SLOWER"),
    ],
)
def test_many_cases_and_looks_take_more_pairs(pairs, options, word):
    """That n pairs are all slower by chance has a probability of 2^-n: of 0.025 a case alone needs
    six, one of four intervals (three cases, and all together) eight; with four looks ten."""
    found = in_turn(*[1.2] * pairs, **options)
    *others, last = (one.aspects["time"] for one in found.cases)
    assert last.word == word and {other.word for other in others} <= {"SAME"}
    assert found.word == ("REGRESSION" if word == "SLOWER" else "AMBIGUOUS")
    if pairs == 7:
        assert "one of 4 intervals may miss by chance; measure more, 8" in found.text()


def test_looks_share_the_risk_of_same_too():
    few = time_of(in_turn(*[1] * 6, looks=10)).reason
    assert "too few pairs of files (6) for a confidence of 0.995: 9 are needed" in few


def test_cases_can_be_slower_together():
    """Each interval reaches below the threshold."""
    base, new = [], []
    for pair in range(9):
        factors = [1.02 if pair // 3 == case else 1.3 for case in range(3)]
        base.append(file_of(*(measured(seq=i) for i in range(3))))
        new.append(file_of(*(measured(of, seq=i) for i, of in enumerate(factors))))
    found = compare(base, new)
    assert [one.aspects["time"].word for one in found.cases] == ["AMBIGUOUS"] * 3
    assert found.together.word == "SLOWER" and found.outcome == "worse"
    assert found.together.ratio.estimate == pytest.approx((1.3 * 1.3 * 1.02) ** (1 / 3), abs=0.005)
    assert found.text().startswith("REGRESSION: all 3 cases together: step time: new / base = 1.")
    assert "# all cases together: SLOWER" in as_text(found, "a", "b")
    assert re.search('name="all cases together".*failures="1"', as_junit(found, False))


def test_same_says_the_largest_slowdown_that_is_left():
    """The upper end of the widest interval, here the largest of six ratios."""

    def side(*ratios):
        for ratio in ratios:
            one, other = measured(seq=64), measured(seq=128)
            one[0][1]["seconds"][:], other[0][1]["seconds"][:] = 1, ratio
            yield file_of(one, other)

    base, new = [*side(*[1] * 6)], [*side(0.99, 1.0, 1.01, 1.02, 1.03, 1.04)]
    said = "SAME: no step time of 2 cases is longer by more than 4.0 % (case 1), 95 % sure"
    assert compare(base, new).text() == said
    off = compare(base, new, threshold=math.inf)
    assert off.text() == "SAME: in what was compared; no step times were"
    assert time_of(off).word == "OFF"


def test_more_steps_are_no_advantage():
    """The first six of each repetition count."""
    many = measured(1, 6, steps=12)
    for _, arrays in many:
        arrays["seconds"] = numpy.concatenate([arrays["seconds"], numpy.full((6, 3), 0.5)])
    found = compare([file_of(measured(1, 6))], [file_of(many)])
    assert time_of(found).word == "SAME"
    assert any("steps = 6 -> 12" in note for note in found.notes)


def test_cases_are_matched_by_their_settings():
    def files(*lengths):
        return [file_of(*(measured(1, 4, seq=length) for length in lengths))]

    both = compare(files(64, 32), files(256, 64))
    assert [one.case.seq for one in both.cases] == [64] and both.word == "SAME"
    (old,), (new,) = both.only_base, both.only_new
    assert "32 tokens" in old and "256 tokens" in new
    assert {f"only in the base: {old}", f"only in the new one: {new}"} <= {*both.notes}
    lacks = f"REGRESSION: 1 of the base's cases missing in the new one, first {old}"
    assert compare(files(64, 32), files(64), missing="fail").text() == lacks
    assert compare(files(64), files(64, 32), missing="fail").word == "SAME"
    says(refusal_of(compare, files(64), files(32)), "no case in common", "seq is 64")


CARDS = [f"device {i}, NVIDIA H100, 79.1 GiB, GPU-{i}" for i in range(6)]
COLUMNS = dict(dtype="bf16", grad_dtype="fp16", recompute="none", attention_used="cudnn",
               transport_used="nccl", seed=7, learning_rate=0.5, clip_norm=0.5)  # fmt: skip
MACHINES = dict(
    device=dict(devices=CARDS[:1] * 3),
    processor=dict(cpu=["one", "one", "another"]),
    nodes=dict(nodes=[0, 0, 1]),
    build_type=dict(build_type="Debug"),
    threads=dict(devices=["host, 1 threads"] * 3),
    links=dict(links=["rate=100mbit"]),
)


def test_what_matters_and_differs_is_refused():
    for column, value in COLUMNS.items():
        refusal = refusal_of(compared, columns(**{column: value}))
        assert f"--allow {column.removesuffix('_used')} " in refusal
    for name, session in MACHINES.items():
        assert f"--allow {name} " in refusal_of(compared, unchanged, **session)


def test_what_matters_may_differ_where_it_is_allowed():
    names = [column.removesuffix("_used") for column in COLUMNS] + [*MACHINES][1:]
    session = {key: value for one in MACHINES.values() for key, value in one.items()}
    found = compared(columns(**COLUMNS), {"allow": names}, **session)
    assert found.word == "SAME"
    assert {note.split(" = ")[0] for note in found.notes if "as allowed" in note} == {*names}
    threads = compared(scaled("losses", 2), {"allow": ["threads"]}, **MACHINES["threads"])
    assert aspect_of(threads, "first loss").word == "WRONG"  # machines explain no other loss


def test_which_of_equal_devices_it_was_does_not_matter():
    """Nor what ranks have that the case has not."""
    base, new = (
        [file_of(measured(1, 4), devices=some)]
        for some in (CARDS[:3], [*CARDS[2:5], "host, 1 threads"])
    )
    assert compare(base, new).word == "SAME"


@pytest.mark.parametrize(
    "column, name", [("process_peak", "process peak"), ("device_used", "device memory")]
)
def test_what_a_process_holds_beside_the_step_is_noise_up_to_32_mib(column, name):
    for before, after, word in ((100, 130, "SAME"), (100, 133, "MORE"), (1060, 1000, "LESS")):
        sides = ([file_of(measured(1, 4, **{column: peak << 20}))] for peak in (before, after))
        assert aspect_of(compare(*sides), name).word == word


def test_validity_is_compared():
    bad, good = [file_of(measured(1, 6, **FAILED))], [file_of(measured(1, 6))]
    repaired = compare(bad, good)
    assert aspect_of(repaired, "verdict").word == "REPAIRED" and repaired.outcome == "same"
    assert "valid" in refusal_of(compare, bad, bad)
    short = compare(good, [good[0][:5]])
    assert "INVALID: 5 of 6 repetitions" in aspect_of(short, "verdict").reason


def test_a_run_that_failed_takes_its_pair_along():
    new = [file_of(measured(**(FAILED if i == 3 else {}))) for i in range(7)]
    found = compare([file_of(measured()) for _ in range(7)], new)
    assert list(found.cases[0].times.base.index) == [0, 1, 2, 4, 5, 6]
    assert time_of(found).word == "SAME" and aspect_of(found, "verdict").word == "BROKEN"


PROGRAM = "version git_hash compiler compiler_flags kokkos mpi nccl cuda driver".split()


def notes_on(base, new, **rules):
    """Of pairs of files with these sessions, on which there is no other note."""
    sides = ([file_of(measured(), **of) for _ in range(2)] for of in (base, new))
    return compare(*sides, **rules).notes


def test_another_program_is_noted():
    was, now = (dict.fromkeys(PROGRAM, which) for which in ("one", "two"))
    assert notes_on(was, was) == []
    assert notes_on(was, now) == [f"{name} = one -> two" for name in PROGRAM]
    debug = notes_on(was, dict(was, build_type="Debug"), allow=["build_type"])
    assert debug[0] == "build_type = Release -> Debug"


def test_a_later_session_is_noted():
    base, new = ([file_of(measured()) for _ in range(2)] for _ in range(2))
    new[1].file[0].sessions.append(SESSION | dict(git_hash="abc", libraries=["a"]))
    notes = ["git_hash = none -> abc", "libraries = none -> a"]
    assert compare(base, new).notes == notes
