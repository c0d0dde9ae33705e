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

HOST = dict(devices=["host, 2 threads"] * 3, nodes=[0] * 3, cpu=["one"] * 3, build_type="Release")
FAILED = dict(status="wrong", verdict="INVALID: wrong: the loss is not finite")


def measured(seconds=1, losses=1, repetitions=1, steps=6, **columns):
    """Runs of a case: the first step takes so many seconds, the others up to a percent more.
    `losses`: factors."""
    run = dict(
        steps=steps,
        repeats=repetitions,
        verdict="VALID",
        seconds=seconds * numpy.outer(numpy.linspace(1, 1.01, steps), [1, 0.8]),
        losses=(3.0 - 0.125 * numpy.arange(5)) * losses,
    )
    return [run | columns | dict(repetition=i) for i in range(repetitions)]


def file_of(*cases, **session):
    """The runs of a file, as load() has them."""
    runs = (run | dict(case=number) for number, case in enumerate(cases) for run in case)
    return samples.in_memory(*runs, sessions=[HOST | session])


def compare(base, new, **rules):
    return comparison.compare(base, new, Rules(**rules))


def compared(rules={}, session={}, base={}, **changed):
    """Two files of one case, four repetitions each; the new one has changes."""
    base, new = (measured(repetitions=4, **of) for of in (base, base | changed))
    return compare([file_of(base)], [file_of(new, **session)], **rules)


def in_turn(pairs, **rules):
    """Pairs of files; in the new one the cases are slower by these factors. Both of a pair see the
    same drift."""
    base = []
    new = []
    for pair, factors in enumerate(pairs):
        for side, powers in ((base, 0), (new, 1)):
            steps = [(1.5 + math.sin(pair)) * factor**powers for factor in factors]
            side.append(file_of(*(measured(step, seq=case) for case, step in enumerate(steps))))
    return compare(base, new, **rules)


def time_of(found):
    return found.cases[0].aspects["time"]


def words_of(found, *names):
    return [found.cases[0].aspects[name].word for name in names]


FIVE_OF_SIX = numpy.array([[1]] + [[3]] * 5)


@pytest.mark.parametrize(
    "changed, rules, name, word",
    [
        (dict(seconds=1.2), {}, "time", "SLOWER"),
        (dict(seconds=1.2), dict(threshold=0.3), "time", "SAME"),
        (dict(seconds=FIVE_OF_SIX), {}, "time", "SAME"),
        (dict(seconds=FIVE_OF_SIX), dict(quantile=0.5), "time", "SLOWER"),
        (dict(memory_measured=44000), {}, "memory", "SAME"),  # of 42323
        (dict(memory_measured=45000), {}, "memory", "MORE"),
        (dict(bytes_inside=649), {}, "bytes inside", "LESS"),
        (dict(losses=[math.nan, 1, 1, 1, 1]), {}, "first loss", "WRONG"),
    ],
)
def test_one_change_is_told_by_its_aspect_alone(changed, rules, name, word):
    found = compared(rules, **changed)
    assert words_of(found, name) == [word]
    others = {aspect.outcome for key, aspect in found.cases[0].aspects.items() if key != name}
    assert others == {"same"}
    assert found.outcome == ("same" if word in ("SAME", "LESS") else "worse")


def test_losses_agree_within_limits_of_the_type():
    for dtype, first, last in (("fp32", 1e-6, 1e-4), ("bf16", 1e-3, 0.01)):
        for off, word in ((0.95, "SAME"), (-1.05, "WRONG")):
            losses = 1 + off * numpy.array([first, 0, 0, 0, last])
            found = compared(base=dict(dtype=dtype), losses=losses)
            assert words_of(found, "first loss", "last loss") == [word] * 2, dtype


def test_a_drift_of_both_files_of_a_pair_does_not_matter():
    for pairs in (7, 8):
        time = time_of(in_turn([1.1 * 1.002 ** (2 * i - pairs + 1)] for i in range(pairs)))
        assert time.word == "SLOWER"
        estimates = time.ratio.estimate, time.new / time.base
        assert estimates == pytest.approx((1.1, 1.1), rel=1e-12)
    assert in_turn([[1 / 1.1]] * 7).word == "FASTER"


def test_files_without_partners_are_repetitions():
    base, new = ([file_of(measured(of)) for _ in range(n)] for n, of in ((5, 1), (4, 1.3)))
    assert time_of(compare(base, new)).word == "SLOWER"
    few = compare(base[:3], new)
    assert "too few repetitions (3 and 4) for" in few.text()
    assert few.word == "AMBIGUOUS"
    one = compare(base[:1], new[:1])
    assert one.notes[-1].startswith("there is one file of each")
    assert few.notes == []


def test_looks_share_the_risk_of_same_too():
    few = "too few pairs of files (6) for a confidence of 0.995: 9 are needed"
    assert few in in_turn([[1]] * 6, looks=10).text()


@pytest.mark.parametrize(
    "pairs, looks, word",
    [(7, 1, "AMBIGUOUS"), (8, 1, "SLOWER"), (9, 4, "AMBIGUOUS"), (10, 4, "SLOWER")],
)
def test_many_cases_and_looks_take_more_pairs(pairs, looks, word):
    """That n pairs are all slower by chance has a probability of 2^-n: of 0.025 a case alone needs
    six, one of three, which share half of that, eight; with four looks ten. All together are only
    4.8 % slower."""
    found = in_turn([[1, 1, 1.15]] * pairs, looks=looks)
    assert [one.aspects["time"].word for one in found.cases] == ["SAME", "SAME", word]
    assert found.word == ("REGRESSION" if word == "SLOWER" else "AMBIGUOUS")
    if pairs == 7:
        assert "one of all intervals may miss by chance; measure more, 8" in found.text()


def test_cases_can_be_slower_together():
    """Each interval reaches below the threshold."""
    found = in_turn([1.02 if pair // 3 == case else 1.3 for case in range(3)] for pair in range(9))
    assert [one.aspects["time"].word for one in found.cases] == ["AMBIGUOUS"] * 3
    assert found.together.ratio.estimate == pytest.approx((1.3 * 1.3 * 1.02) ** (1 / 3))
    assert found.text().startswith("REGRESSION: all 3 cases together: step time: new / base = 1.")
    assert "# all cases together: SLOWER" in as_text(found, "a", "b")
    assert re.search('name="all cases together".*failures="1"', as_junit(found))


FACTORS = numpy.linspace(1.6, 3, 24)


@pytest.mark.parametrize(
    "factors, word, also",
    [
        (FACTORS, "REGRESSION", "all 24 cases together: step time: new / base = 2.2"),
        (1 / FACTORS, "FASTER", "all 24 cases together: step time: new / base = 0.4"),
        (numpy.ones(24), "SAME", "no step time of 24 cases is longer by more than 0.6 %"),
        (numpy.array([0.8] * 23 + [1.02]), "FASTER", "all 24 cases together"),
        (numpy.array([0.8] * 23 + [1.2]), "AMBIGUOUS", "such as case 23"),
        (numpy.array([1] * 23 + [3]), "AMBIGUOUS", "slower by more than 5 % if it stood alone"),
    ],
)
def test_five_repetitions_of_many_cases_decide(factors, word, also):
    """2 of the 252 orders of five and five are as far apart as these: less than half of the risk, more
    than a 24th of it."""
    sides = []
    for powers in (0, 1):
        steps = enumerate(numpy.atleast_1d(factors) ** powers)
        drift = 1 + 0.002 * numpy.arange(5)
        cases = [
            [run | dict(seconds=run["seconds"] * drift[i]) for i, run in enumerate(runs)]
            for runs in (measured(step, repetitions=5, seq=case) for case, step in steps)
        ]
        sides.append([file_of(*cases)])
    found = compare(*sides)
    assert found.word == word
    assert also in found.text()
    assert ("together" in found.text()) == ("together" in also)


def test_what_was_not_measured_is_not_the_same():
    pairs = [[1.001**i] for i in range(7)]
    said = "AMBIGUOUS: not measured: communication"
    assert in_turn(pairs, not_measured=["communication"]).text() == said
    slower = in_turn([[1.2]] * 7, not_measured=["communication"])
    assert slower.text().startswith("REGRESSION: 1 of 1 case, first case 0 ")
    assert slower.text().endswith("; not measured: communication")
    assert 'name="not measured: communication"' in as_junit(slower)


def test_a_sweep_that_was_stopped_is_told():
    whole, part = (file_of(measured(repetitions=4)) for _ in range(2))
    part.file[0].verdict = "INVALID: unfinished cases: 3 (stopped by SIGTERM)"
    assert compare([whole], [part]).notes[0] == f"a.h5: {part.file[0].verdict}"


def test_same_says_the_largest_slowdown_that_is_left():
    """The upper end of the widest interval, here the largest of six ratios."""
    pairs = [[1, ratio] for ratio in (0.99, 1.0, 1.01, 1.02, 1.03, 1.04)]
    said = "SAME: no step time of 2 cases is longer by more than 4.0 % (case 1), 95 % sure"
    assert in_turn(pairs).text() == said
    off = in_turn(pairs, threshold=math.inf)
    assert off.text() == "SAME: in what was compared; no step times were"
    assert time_of(off).word == "OFF"


def test_more_steps_are_no_advantage():
    """The first six of each repetition count."""
    seconds = numpy.array([[1]] * 6 + [[0.5]] * 6)
    many = measured(seconds, repetitions=6, steps=12)
    found = compare([file_of(measured(repetitions=6))], [file_of(many)])
    assert time_of(found).word == "SAME"
    assert any("steps = 6 -> 12" in note for note in found.notes)


def test_cases_are_matched_by_their_settings():
    def files(*lengths):
        return [file_of(*(measured(repetitions=4, seq=length) for length in lengths))]

    both = compare(files(64, 32), files(256, 64))
    assert [one.case.seq for one in both.cases] == [64]
    assert both.word == "SAME"
    (old,), (new,) = both.only_base, both.only_new
    assert "32 tokens" in old
    assert "256 tokens" in new
    assert {f"only in the base: {old}", f"only in the new one: {new}"} <= {*both.notes}
    lacks = f"REGRESSION: 1 of the base's cases missing in the new one, first {old}"
    assert compare(files(64, 32), files(64), missing="fail").text() == lacks
    assert compare(files(64), files(64, 32), missing="fail").word == "SAME"
    says(refusal_of(compare, files(64), files(32)), "no case in common", "seq is 64")


CARDS = [f"device {i}, NVIDIA H100, 79.1 GiB, GPU-{i}" for i in range(6)]
COLUMNS = dict(dtype="bf16", grad_dtype="fp16", recompute="none", seed=7, learning_rate=0.5,
               clip_norm=0.5, attention_used="cudnn", transport_used="nccl")  # fmt: skip
MACHINE = dict(devices=["host, 1 threads", *CARDS[:2]], cpu=["one", "one", "another"],
               nodes=[0, 0, 1], build_type="Debug", links=["rate=100mbit"])  # fmt: skip
MATTERS = """dtype grad_dtype recompute seed learning_rate clip_norm attention transport device
processor nodes build_type threads links"""


def test_what_matters_may_differ_only_if_it_is_allowed():
    def differing(allow):
        return compared({"allow": allow}, MACHINE, **COLUMNS)

    names = MATTERS.split()
    for name in names:
        refusal = refusal_of(differing, [one for one in names if one != name])
        assert f"--allow {name} " in refusal
    found = differing(names)
    assert found.word == "SAME"
    assert {note.split(" = ")[0] for note in found.notes if "as allowed" in note} == {*names}


def test_machines_explain_no_other_loss():
    session = dict(devices=["host, 1 threads"] * 3)
    found = compared({"allow": ["threads"]}, session, losses=2)
    assert words_of(found, "first loss") == ["WRONG"]


def test_which_of_equal_devices_it_was_does_not_matter():
    """Nor what ranks have that the case has not."""
    sides = CARDS[:3], [*CARDS[2:5], "host, 1 threads"]
    base, new = ([file_of(measured(repetitions=4), devices=some)] for some in sides)
    assert compare(base, new).word == "SAME"


def test_what_a_process_holds_beside_the_step_is_noise_up_to_32_mib():
    for before, after, word in ((100, 130, "SAME"), (100, 133, "MORE"), (1060, 1000, "LESS")):
        peaks = (dict.fromkeys(["process_peak", "device_used"], of << 20) for of in (before, after))
        found = compare(*([file_of(measured(**peak))] for peak in peaks))
        assert words_of(found, "process peak", "device memory") == [word] * 2


def test_validity_is_compared():
    bad, good = ([file_of(measured(**of))] for of in (FAILED, {}))
    repaired = compare(bad, good)
    assert words_of(repaired, "verdict") == ["REPAIRED"]
    assert repaired.outcome == "same"
    assert "valid" in refusal_of(compare, bad, bad)


def test_a_run_that_failed_takes_its_pair_along():
    base = [file_of(measured()) for _ in range(7)]
    new = [file_of(measured(**(FAILED if i == 3 else {}))) for i in range(7)]
    found = compare(base, new)
    assert list(found.cases[0].times.base.index) == [0, 1, 2, 4, 5, 6]
    assert words_of(found, "time", "verdict") == ["SAME", "BROKEN"]
    assert found.outcome == "worse"


def test_another_program_is_noted():
    """Of any session of any file."""
    names = "version git_hash build_type compiler compiler_flags kokkos mpi nccl driver".split()
    base, new = ([file_of(measured()) for _ in range(2)] for _ in range(2))
    new[1].file[0].sessions.append(dict.fromkeys(names, "two") | dict(libraries=["a"]))
    notes = [f"{name} = none -> two" for name in names] + ["libraries = none -> a"]
    notes[2] = "build_type = Release -> Release and two"
    assert compare(base, new).notes == notes
