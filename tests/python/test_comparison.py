# SPDX-License-Identifier: BSD-3-Clause
"""What a comparison says of cases that differ in one thing each: times, memory, bytes, losses,
settings, machines, programs."""

import math
import re

import numpy
import pytest
import samples
from minitaw import comparison
from minitaw.aspects import Rules
from minitaw.comparison_text import as_text
from minitaw.junit import as_junit
from programs import refusal_of, says

RANDOM = numpy.random.default_rng(20111741)
SESSION = dict(devices=["host, 2 threads"] * 3, nodes=[0] * 3, cpu=["one"] * 3)
SESSION["build_type"] = "Release"
FAILED = dict(status="wrong", verdict="INVALID: wrong: the loss is not finite")


def measured(seconds=1, repetitions=1, steps=6, **columns):
    """Runs of a case, columns and arrays of each: steps of about so many seconds, a little
    different in each."""
    columns = dict(steps=steps, repeats=repetitions, verdict="VALID") | columns
    for repetition in range(repetitions):
        times = seconds * (1 + 0.01 * RANDOM.random((steps, 3)))
        arrays = dict(seconds=times, losses=3.0 - 0.125 * numpy.arange(5))
        yield columns | dict(repetition=repetition), arrays


def file_of(*cases, **session):
    """The runs of a file, as load() has them."""
    runs = [(row | {"case": i}, arrays) for i, case in enumerate(cases) for row, arrays in case]
    return samples.in_memory(*runs, sessions=[SESSION | session])


def compare(base, new, **rules):
    return comparison.compare(base, new, Rules(**rules))


def compared(change, rules={}, dtype="fp32", **session):
    """Two files of one case, four repetitions each; `change` is done to the new one."""
    base, new = ([*measured(1, 4, dtype=dtype)] for _ in range(2))
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
            lengths = enumerate([drift] * (cases - 1) + [last])
            side.append(file_of(*(measured(seconds, seq=seq) for seq, seconds in lengths)))
    return compare(base, new, **rules)


def columns(**changed):
    return lambda row, arrays: row.update(changed)


def scaled(name, factor, at=slice(None)):
    """Of an array."""

    def change(row, arrays):
        arrays[name][at] *= factor

    return change


def aspect_of(found, name):
    return found.cases[0].aspects[name]


def time_of(found):
    return aspect_of(found, "time")


FIVE_OF_SIX = scaled("seconds", 3, slice(1, None))


@pytest.mark.parametrize(
    "change, rules, name, word",
    [
        (scaled("seconds", 1.2), {}, "time", "SLOWER"),
        (scaled("seconds", 1.2), dict(threshold=0.3), "time", "SAME"),
        (FIVE_OF_SIX, {}, "time", "SAME"),
        (FIVE_OF_SIX, dict(quantile=0.5), "time", "SLOWER"),
        (columns(memory_measured=44000), {}, "memory", "SAME"),  # of 42323
        (columns(memory_measured=44000), dict(memory_threshold=0.01), "memory", "MORE"),
        (columns(bytes_inside=649), {}, "bytes inside", "LESS"),
        (scaled("losses", math.nan, 0), {}, "first loss", "WRONG"),
    ],
)
def test_one_change_is_told_by_its_aspect_alone(change, rules, name, word):
    found = compared(change, rules)
    assert aspect_of(found, name).word == word
    others = {aspect.outcome for key, aspect in found.cases[0].aspects.items() if key != name}
    assert others == {"same"} and found.outcome == ("same" if word in ("SAME", "LESS") else "worse")


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
    "pairs, looks, word",
    [(7, 1, "AMBIGUOUS"), (8, 1, "SLOWER"), (9, 4, "AMBIGUOUS"), (10, 4, "SLOWER")],
)
def test_many_cases_and_looks_take_more_pairs(pairs, looks, word):
    """That n pairs are all slower by chance has a probability of 2^-n: of 0.025 a case alone needs
    six, one of four intervals (three cases, and all together) eight; with four looks ten."""
    found = in_turn(*[1.2] * pairs, cases=3, looks=looks)
    *others, last = (one.aspects["time"] for one in found.cases)
    assert last.word == word and {other.word for other in others} == {"SAME"}
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
        base.append(file_of(*(measured(seq=i) for i in range(3))))
        factors = enumerate(1.02 if pair // 3 == case else 1.3 for case in range(3))
        new.append(file_of(*(measured(of, seq=i) for i, of in factors)))
    found = compare(base, new)
    assert [one.aspects["time"].word for one in found.cases] == ["AMBIGUOUS"] * 3
    assert found.together.ratio.estimate == pytest.approx((1.3 * 1.3 * 1.02) ** (1 / 3), abs=0.005)
    assert found.text().startswith("REGRESSION: all 3 cases together: step time: new / base = 1.")
    assert "# all cases together: SLOWER" in as_text(found, "a", "b")
    assert re.search('name="all cases together".*failures="1"', as_junit(found, False))


def test_same_says_the_largest_slowdown_that_is_left():
    """The upper end of the widest interval, here the largest of six ratios."""

    def side(*ratios):
        for ratio in ratios:
            cases = [[*measured(seq=seq)] for seq in (64, 128)]
            for ((_, arrays),), seconds in zip(cases, (1, ratio)):
                arrays["seconds"][:] = seconds
            yield file_of(*cases)

    base, new = [*side(*[1] * 6)], [*side(0.99, 1.0, 1.01, 1.02, 1.03, 1.04)]
    said = "SAME: no step time of 2 cases is longer by more than 4.0 % (case 1), 95 % sure"
    assert compare(base, new).text() == said
    off = compare(base, new, threshold=math.inf)
    assert off.text() == "SAME: in what was compared; no step times were"
    assert time_of(off).word == "OFF"


def test_more_steps_are_no_advantage():
    """The first six of each repetition count."""
    many = [*measured(1, 6, steps=12)]
    for _, arrays in many:
        arrays["seconds"][6:] /= 2
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
        assert f"--allow {name} " in refusal_of(compared, columns(), **session)


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
    sides = CARDS[:3], [*CARDS[2:5], "host, 1 threads"]
    base, new = ([file_of(measured(1, 4), devices=some)] for some in sides)
    assert compare(base, new).word == "SAME"


def test_what_a_process_holds_beside_the_step_is_noise_up_to_32_mib():
    columns = "process_peak", "device_used"
    for before, after, word in ((100, 130, "SAME"), (100, 133, "MORE"), (1060, 1000, "LESS")):
        peaks = (dict.fromkeys(columns, peak << 20) for peak in (before, after))
        found = compare(*([file_of(measured(1, 4, **of))] for of in peaks))
        words = [aspect_of(found, name).word for name in ("process peak", "device memory")]
        assert words == [word] * 2


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
    assert time_of(found).word == "SAME" and found.outcome == "worse"
    assert aspect_of(found, "verdict").word == "BROKEN"


def test_another_program_is_noted():
    """Of any session of any file."""
    names = (
        "version git_hash build_type compiler compiler_flags kokkos mpi nccl cuda driver".split()
    )
    base, new = ([file_of(measured()) for _ in range(2)] for _ in range(2))
    new[1].file[0].sessions.append(dict.fromkeys(names, "two") | dict(libraries=["a"]))
    notes = [f"{name} = none -> two" for name in names] + ["libraries = none -> a"]
    notes[2] = "build_type = Release -> Release and two"
    assert compare(base, new).notes == notes
