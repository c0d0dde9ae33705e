# SPDX-License-Identifier: BSD-3-Clause
"""What the comparison says of cases that differ in one thing each: times, memory, bytes, losses,
settings, machines. And that its intervals end where the tables of the distributions say; from that
it follows what they cover, whatever the distribution.
"""

import copy
import json
import math
import os
import random
import xml.etree.ElementTree as xml

import numpy
from support import SAMPLE, refusal_of, refused, run_checks
from minitaw.aspects import Rules, judge
from minitaw.compare import threshold
from minitaw.comparison import compare
from minitaw.comparison_text import as_json, as_text
from minitaw.intervals import Interval, median_interval, shift_interval
from minitaw.junit import as_junit
from minitaw.matching import label_of
from minitaw.record import Result, load

SEED = int(os.environ.get("MINITAW_SEED", 20111741))
RANDOM = random.Random(SEED)
SEEN = load(SAMPLE)
SESSION = {
    "devices": ["host, 2 threads"] * 3,
    "hosts": ["node 0"] * 3,
    "nodes": [0] * 3,
    "cpu": ["one"] * 3,
    "build_type": "Release",
}
STEPS = 6


def measured(seconds, repetitions=1, **settings):
    """A case with steps of about `seconds`, a little different in each, in as many repetitions as
    wanted."""
    case = copy.copy(SEEN.cases[0])
    case.row = case.row | {"steps": STEPS, "repeats": repetitions} | settings
    count = STEPS * repetitions
    samples = numpy.array(
        [[seconds * (1 + 0.01 * RANDOM.random()) for _ in range(3)] for _ in range(count)]
    )
    case.data = case.data | {
        "seconds": samples,
        "repetition": numpy.arange(count) // STEPS,
        "position": numpy.arange(repetitions),
        "losses": case.data["losses"].copy(),
    }
    case.__dict__.pop("samples", None)  # computed once
    return case


def file_of(*cases, **session):
    file = Result(SEEN.path, units=SEEN.units, settings=SEEN.settings, sessions=[SESSION | session])
    for number, case in enumerate(cases):
        case.file = file
        case.row = case.row | {"case": number, "session": 0}
        file.cases.append(case)
    return file


def compared_once(change, rules=None, dtype="fp32", **session):
    """Two files of one case, six repetitions each; `change` is done to the new one."""
    base, new = measured(1, 6, dtype=dtype), measured(1, 6, dtype=dtype)
    change(new)
    return compare([file_of(base)], [file_of(new, **session)], rules or Rules())


def compared_in_turn(pairs, change):
    """Many pairs of files of one case; both of a pair see the same drift."""
    base, new = [], []
    for i in range(pairs):
        drift = 1 + 0.5 * abs(math.sin(i))
        base.append(file_of(measured(drift)))
        new.append(file_of(measured(drift)))
        change(new[-1].cases[0])
    return compare(base, new, Rules())


def times(column, factor):
    """Of a column of the summary."""

    def change(case):
        case.row[column] = round(case.row[column] * factor)

    return change


def scaled(name, where, factor):
    """Those elements of a dataset that where(array) tells."""

    def change(case):
        case.data[name][where(case.data[name])] *= factor

    return change


def slower(factor):
    """On the slowest rank of each step."""
    return scaled(
        "seconds", lambda seconds: (numpy.arange(len(seconds)), seconds.argmax(axis=1)), factor
    )


def loss(at, factor):
    return scaled("losses", lambda _: at, factor)


def fail(case):
    case.row.update(status="wrong", verdict="INVALID: wrong: the loss is not finite")


def unchanged(case):
    pass


def check_same():
    for found in (compared_once(unchanged), compared_in_turn(7, unchanged)):
        assert found.word == "SAME", found.notes
        assert found.outcome == "same", found.notes
        assert len(found.notes) == (found.cases[0].times.unit == "repetitions"), found.notes
        assert {aspect.outcome for aspect in found.cases[0].aspects.values()} == {"same"}
    other = file_of(measured(1, 6))
    other.settings = other.settings[::-1]  # as programs of another day may name them
    assert compare([file_of(measured(1, 6))], [other], Rules()).word == "SAME"


def check_one_change():
    """What is said of which aspect, if one thing differs."""
    others = scaled(
        "seconds", lambda seconds: (numpy.arange(len(seconds)), seconds.argmin(axis=1)), 0.5
    )
    five_in_six = scaled("seconds", lambda seconds: numpy.arange(len(seconds)) % 6 != 0, 3)
    for change, rules, name, word in (
        (slower(1.2), {}, "time", "SLOWER"),
        (slower(1.2), {"threshold": 0.3}, "time", "SAME"),
        (others, {}, "time", "SAME"),
        (five_in_six, {}, "time", "SAME"),
        (five_in_six, {"quantile": 0.5}, "time", "SLOWER"),
        (fail, {}, "time", ""),
        (fail, {}, "verdict", "BROKEN"),
        (times("memory_measured", 1.04), {}, "memory", "SAME"),
        (times("memory_measured", 1.06), {}, "memory", "MORE"),
        (times("memory_measured", 1.04), {"memory_threshold": 0.01}, "memory", "MORE"),
        (times("bytes_between", 1.1), {}, "bytes between", "MORE"),
        (times("bytes_inside", 0.9), {}, "bytes inside", "LESS"),
        (loss(0, 1 + 5e-7), {}, "first loss", "SAME"),
        (loss(0, 1 + 2e-6), {}, "first loss", "WRONG"),
        (loss(-1, 1 + 5e-5), {}, "last loss", "SAME"),
        (loss(-1, 1 - 2e-4), {}, "last loss", "WRONG"),
        (loss(0, math.nan), {}, "first loss", "WRONG"),
    ):
        found = compared_once(change, Rules(**rules))
        assert found.cases[0].aspects[name].word == word, (name, word, found.cases[0].aspects[name])
        assert found.outcome == (
            "worse" if word in ("", "SLOWER", "BROKEN", "MORE", "WRONG") else "same"
        ), (name, word, found.text())
    for at, factor, name, word in (
        (0, 1 + 9.5e-4, "first loss", "SAME"),
        (0, 1 + 1.05e-3, "first loss", "WRONG"),
        (-1, 1 + 9.5e-3, "last loss", "SAME"),
        (-1, 1 - 1.05e-2, "last loss", "WRONG"),
    ):
        assert compared_once(loss(at, factor), dtype="bf16").cases[0].aspects[name].word == word, (
            name,
            factor,
        )


def check_slower():
    found = compared_once(slower(1.2))
    time = found.cases[0].aspects["time"]
    assert found.text().startswith("REGRESSION: 1 of 1 case, first case 0 (tawpipe")
    assert "step time" in found.text()
    assert abs(time.ratio.estimate - 1.2) < 0.02
    assert abs(time.base - 1) < 0.02
    assert abs(time.new - 1.2) < 0.02
    for pairs in (7, 8):
        time = compared_in_turn(pairs, slower(1.1)).cases[0].aspects["time"]
        assert time.word == "SLOWER", "a drift that both share does not matter"
        assert (
            abs(time.new / time.base / time.ratio.estimate - 1) < 1e-12
        ), "the times beside the ratio are those of the pair in the middle"
    assert compared_in_turn(7, scaled("seconds", lambda _: ..., 1 / 1.1)).word == "FASTER"


def check_units():
    """Files that are not in pairs are repetitions; too few measurements are ambiguous; one
    repetition comes with a warning."""
    found = compare(
        [file_of(measured(1)) for _ in range(5)],
        [file_of(measured(1.3)) for _ in range(4)],
        Rules(),
    )
    assert found.cases[0].times.unit == "repetitions"
    assert found.cases[0].aspects["time"].word == "SLOWER"
    pairs = compared_in_turn(5, slower(2))
    assert pairs.outcome == "ambiguous"
    assert "5 pairs of files are too few" in pairs.cases[0].aspects["time"].reason
    few = compare([file_of(measured(1, 3))], [file_of(measured(2, 4))], Rules())
    assert "3 and 4 repetitions are too few" in few.cases[0].aspects["time"].reason
    assert (
        compare([file_of(measured(1))], [file_of(measured(1, 4))], Rules()).cases[0].times.unit
        == "samples"
    )
    for seconds in (1, 0.5, 2):
        found = compare([file_of(measured(1))], [file_of(measured(seconds))], Rules())
        assert found.word == "AMBIGUOUS" and any(
            "one repetition" in note for note in found.notes
        ), "two runs may differ, or agree, by chance"
    assert "there is one file of each" in compared_once(unchanged).notes[-1]


def check_many_samples():
    case = measured(1)
    case.data["seconds"] = numpy.tile(case.data["seconds"], (3000, 1))
    case.data["repetition"] = numpy.zeros(len(case.data["seconds"]), dtype=int)
    file = file_of(case)
    found = compare([file], [file], Rules())
    thousand, every = found.cases[0].times.base, case.samples
    assert len(thousand) == 1000
    assert math.exp(thousand[0]) == every.min()
    assert abs(math.exp(thousand[-1]) / every.max() - 1) < 1e-12
    assert abs(found.cases[0].aspects["time"].ratio.estimate - 1) < 0.005


def check_threshold():
    for low, high, word, why in (
        (0.96, 1.04, "SAME", ""),
        (1.02, 1.049, "SAME", ""),
        (1.051, 1.2, "SLOWER", "step time"),
        (0.8, 0.951, "FASTER", "step time"),
        (0.96, 1.06, "AMBIGUOUS", "unknown"),
        (0.5, 2, "AMBIGUOUS", "unknown"),
        (1, 1.06, "AMBIGUOUS", "unknown"),
        (
            1.018,
            1.121,
            "AMBIGUOUS",
            ": slower, by less or by more than the threshold of 5 %; measure more",
        ),
        (
            0.8,
            0.953,
            "AMBIGUOUS",
            ": faster, by less or by more than the threshold of 5 %; measure more",
        ),
    ):
        interval = Interval(low, (low + high) / 2, high)
        found = judge(interval, interval, Rules())
        assert found[0] == word and why in found[1] and "take" not in found[1], (low, high, found)


def pairs_of(*factors, cases=2, **rules):
    """As many pairs; the last one of the cases is slower by these factors."""

    def file(last):
        return file_of(
            *(measured(1, seq=128 << i) for i in range(cases - 1)), measured(last, seq=1 << 20)
        )

    return compare([file(1) for _ in factors], [file(f) for f in factors], Rules(**rules))


def check_many_cases():
    """One of twenty intervals misses by chance. That n pairs are all slower by chance has a
    probability of 2^-n: of 0.025 a case alone needs six, one of 13 intervals (12 cases, and all
    together) ten; with four looks 12.
    """
    for pairs, options, word in (
        (6, {"cases": 1}, "SLOWER"),
        (9, {"cases": 12}, "AMBIGUOUS"),
        (10, {"cases": 12}, "SLOWER"),
        (11, {"cases": 12, "looks": 4}, "AMBIGUOUS"),
        (12, {"cases": 12, "looks": 4}, "SLOWER"),
    ):
        found = pairs_of(*[1.2] * pairs, **options)
        time = found.cases[-1].aspects["time"]
        assert time.word == word and abs(time.ratio.estimate - 1.2) < 0.02, (pairs, options, time)
        assert found.word == ("REGRESSION" if word == "SLOWER" else "AMBIGUOUS"), found.text()
    found = pairs_of(*[1.2] * 9, cases=12)
    assert (
        "slower by more than 5 % if it stood alone, but one of 13 intervals may miss by chance; "
        "measure more, 10 of each" in found.text()
    )
    assert "for all 13 intervals at once" in as_text(found, "a", "b")
    assert {c.aspects["time"].word for c in found.cases[:-1]} == {"SAME"}
    few = pairs_of(*[1] * 6, looks=10).cases[0].aspects["time"]
    assert few.word == "AMBIGUOUS", few
    assert "6 pairs of files are too few for a confidence of 0.995: 9 are needed" in few.reason, few
    assert pairs_of(*[1] * 9, looks=10).word == "SAME", "each case alone says so"


def check_together():
    """Cases whose intervals reach below the threshold can be slower together, as with a loop
    planted in every transfer."""
    factors = [
        [1.02, 1.02, 1.02, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3],
        [1.3, 1.3, 1.3, 1.02, 1.02, 1.02, 1.3, 1.3, 1.3],
        [1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.02, 1.02, 1.02],
    ]
    base = [file_of(*(measured(1, seq=64 << i) for i in range(3))) for _ in range(9)]
    new = [
        file_of(*(measured(of[pair], seq=64 << i) for i, of in enumerate(factors)))
        for pair in range(9)
    ]
    found = compare(base, new, Rules())
    assert [c.aspects["time"].word for c in found.cases] == ["AMBIGUOUS"] * 3
    assert found.together.word == "SLOWER"
    assert found.outcome == "worse", found.text()
    assert found.text().startswith(
        "REGRESSION: all 3 cases together: step time: new / base = 1.199"
    ), found.text()
    assert "slower, by less or by more" in as_text(found, "a", "b")
    assert "# all cases together: SLOWER: new / base = 1.199" in as_text(found, "a", "b")
    assert json.loads(as_json(found, "a", "b"))["together"]["word"] == "SLOWER"
    *_, suite = xml.fromstring(as_junit(found, False).split("\n", 1)[1])
    assert (suite.get("name"), suite.get("failures"), suite.get("tests")) == (
        "all cases together",
        "1",
        "1",
    ), suite.attrib


def check_excluded():
    """SAME says what it excludes: the upper end of the widest interval, here the largest of six
    ratios."""
    ratios = [0.99, 1.0, 1.01, 1.02, 1.03, 1.04]
    base, new = (
        [file_of(measured(1, seq=64), measured(1, seq=128)) for _ in ratios] for _ in range(2)
    )
    for side, factors in ((base, [1] * 6), (new, ratios)):
        for file, factor in zip(side, factors):
            file.cases[0].data["seconds"] = numpy.ones((STEPS, 3))
            file.cases[1].data["seconds"] = numpy.full((STEPS, 3), factor)
    found = compare(base, new, Rules())
    assert (
        found.text()
        == "SAME: no step time of 2 cases is longer by more than 4.0 % (case 1), 95 % sure"
    ), found.text()
    for case in (file.cases[0] for file in new):
        case.row["seq"] = 1
    assert (
        compare(base, new, Rules()).text()
        == "SAME: no step time of 1 case is longer by more than 4.0 %, 95 % sure"
    )
    off = compare(base, new, Rules(threshold=math.inf))
    assert off.text() == "SAME: in what was compared; no step times were"
    assert {c.aspects["time"].word for c in off.cases} == {"OFF"}
    assert "threshold off, memory 5 %" in as_text(off, "a", "b")
    assert json.loads(as_json(off, "a", "b"))["threshold"] is None


def check_more_steps():
    """More steps are no advantage: the first six of each repetition count."""
    few, many = measured(1, 6), measured(1, 6)
    many.data["seconds"] = numpy.concatenate([many.data["seconds"], numpy.full((36, 3), 0.5)])
    many.data["repetition"] = numpy.concatenate([many.data["repetition"], many.data["repetition"]])
    many.row["steps"] = 12
    found = compare([file_of(few)], [file_of(many)], Rules())
    assert found.cases[0].aspects["time"].word == "SAME"
    assert any("steps = 6 -> 12" in note for note in found.notes)


def check_matching():
    a, b, c, d = (
        measured(1, 4),
        measured(2, 4, schedule="ddp"),
        measured(3, 4, schedule="ddp", seq=256),
        measured(2, 4, schedule="ddp"),
    )
    found = compare([file_of(a, b)], [file_of(c, d)], Rules())
    assert [one.case["schedule"] for one in found.cases] == ["ddp"]
    assert found.cases[0].aspects["time"].word == "SAME"
    assert "tawpipe" in found.only_base[0] and "256 tokens" in found.only_new[0]
    assert [note for note in found.notes if note.startswith("only")] == [
        f"only in the base: {found.only_base[0]}",
        f"only in the new one: {found.only_new[0]}",
    ]
    for sides, said in (
        (
            (file_of(a, b), file_of(d)),
            f"REGRESSION: 1 of the base's cases missing in the new one, first {label_of(a)}",
        ),
        ((file_of(b), file_of(a, d)), "SAME"),
    ):
        for missing in ("list", "fail"):
            assert (
                compare(sides[:1], sides[1:], Rules(missing=missing))
                .text()
                .startswith(said if missing == "fail" else "SAME")
            ), said
    failed = measured(2, 4, schedule="ddp")
    fail(failed)
    both = compare([file_of(a, b)], [file_of(failed)], Rules(missing="fail")).text()
    assert both.startswith("REGRESSION: 1 of 1 case, first case 1 (ddp"), both
    assert "; 1 of the base's cases missing in the new one" in both, both
    said = refusal_of(
        compare, [file_of(measured(1, 4))], [file_of(measured(3, 4, schedule="ddp"))], Rules()
    )
    assert "no case in common" in said and "schedule is tawpipe" in said


def check_what_matters():
    for name, row in {
        "dtype": {"dtype": "bf16"},
        "recompute": {"recompute": "none"},
        "attention": {"attention_used": "cudnn"},
        "transport": {"transport_used": "nccl"},
        "seed": {"seed": 7},
        "learning_rate": {"learning_rate": 0.5},
        "grad_dtype": {"grad_dtype": "fp16"},
        "clip_norm": {"clip_norm": 0.5},
    }.items():

        def change(case, row=row):
            case.row.update(row)

        assert f"--allow {name}" in refusal_of(compared_once, change)
        found = compared_once(change, Rules(allow=[name]))
        assert found.cases[0].differs == [name]
        assert any("as allowed" in note for note in found.notes)
    machines = {
        "threads": {"devices": ["host, 1 threads"] * 3},
        "device": {"devices": ["device 0, NVIDIA H100, 79.1 GiB, GPU-1"] * 3},
        "nodes": {"nodes": [0, 0, 1]},
        "processor": {"cpu": ["one", "one", "another"]},
        "links": {"links": ["rate=100mbit"]},
        "build_type": {"build_type": "Debug"},
    }
    for name, session in machines.items():
        assert f"--allow {name}" in refusal_of(compared_once, unchanged, **session)
        assert compared_once(unchanged, Rules(allow=[name, "threads"]), **session).word == "SAME"
    more = {
        name: [*SESSION[name], other]
        for name, other in (("devices", "host, 1 threads"), ("nodes", 1), ("cpu", "another"))
    }
    found = compared_once(loss(0, 2), Rules(allow=["nodes"]), nodes=[0, 0, 1])
    assert found.cases[0].aspects["first loss"].word == "WRONG", "nodes explain no other loss"
    assert (
        compared_once(unchanged, **more).word == "SAME"
    ), "the fourth rank of the job is not in the case"
    devices = [
        [f"device {i}, NVIDIA H100, 79.1 GiB, GPU-{i}" for i in range(first, first + 3)]
        for first in (0, 3)
    ]
    files = [file_of(measured(1, 4), devices=some) for some in devices]
    assert (
        compare(files[:1], files[1:], Rules()).word == "SAME"
    ), "which of equal devices it was does not matter"


def check_process_peak():
    """What a process holds beside the step is noise up to 32 MiB."""
    for before, after, word in (
        (100, 130, "SAME"),
        (100, 133, "MORE"),
        (1000, 1040, "SAME"),
        (1000, 1060, "MORE"),
        (1060, 1000, "LESS"),
        (0, 99, ""),
    ):
        for column, name in (("process_peak", "process peak"), ("device_used", "device memory")):
            files = [file_of(measured(1, 4, **{column: peak << 20})) for peak in (before, after)]
            assert compare(files[:1], files[1:], Rules()).cases[0].aspects[name].word == word, (
                name,
                before,
                after,
            )


def check_memory_of_several_files():
    """One file that took more changes no median."""
    base, new = (
        [file_of(measured(1, memory_measured=size)) for size in sizes]
        for sizes in ((1000, 1010, 1020), (1005, 1010, 3000))
    )
    memory = compare(base, new, Rules()).cases[0].aspects["memory"]
    assert (memory.base, memory.new, memory.word) == (1010, 1010, "SAME"), memory


def check_losses_of_several_files():
    """Of the run with most steps."""
    short, whole, other = measured(1), measured(1), measured(1)
    short.data["losses"] = short.data["losses"][:1]
    other.data["losses"][-1] *= 2
    last = (
        compare([file_of(short), file_of(whole)], [file_of(other)], Rules())
        .cases[0]
        .aspects["last loss"]
    )
    assert last.word == "WRONG" and last.new == 2 * last.base, last


def check_validity():
    assert "the loss is not finite" in compared_once(fail).text()
    failed = measured(1, 6)
    fail(failed)
    bad = file_of(failed)
    repaired = compare([bad], [file_of(measured(1, 6))], Rules())
    assert repaired.cases[0].aspects["verdict"].word == "REPAIRED" and repaired.outcome == "same"
    assert "valid" in refusal_of(compare, [bad], [bad], Rules())
    base, new = [file_of(measured(1)) for _ in range(7)], [measured(1) for _ in range(7)]
    fail(new[3])
    found = compare(base, [file_of(case) for case in new], Rules())
    assert found.cases[0].times.file == [0, 1, 2, 4, 5, 6], "a run that failed takes its pair along"
    assert found.cases[0].aspects["time"].word == "SAME"
    assert found.cases[0].aspects["verdict"].word == "BROKEN"


def check_mean():
    base = [file_of(measured(1, schedule="ddp"), measured(2)) for _ in range(6)]
    new = [file_of(measured(1.1, schedule="ddp"), measured(2.2 * 1.1)) for _ in range(6)]
    assert (
        compare(base[:1], new[:1], Rules()).together is None
    ), "samples of different cases do not belong together"
    mean = compare(base, new, Rules()).together.ratio
    assert abs(mean.estimate - 1.1 * math.sqrt(1.1)) < 0.02
    assert mean.low <= mean.estimate <= mean.high
    for side in (base, new):  # the second case came later, into some of the files
        side += [file_of(measured(1 if side is base else 9, schedule="ddp")) for _ in range(3)]
    found = compare(base, new, Rules())
    assert [len(c.times.base) for c in found.cases] == [9, 6], "pairs that both have"
    assert found.together.ratio == mean, "pairs that both have"


def check_figures():
    """Four repetitions, whose fastest steps are 1, 1.01, 1.02, 1.03 s and twice that and more: the
    interval reaches from the least to the largest ratio. Table and JSON have these, and what the
    summary of each side says."""
    columns = {
        "memory": ("memory_measured", 1000, "B"),
        "process peak": ("process_peak", 2 << 30, "B"),
        "device memory": ("device_used", 3 << 30, "B"),
        "bytes inside": ("bytes_inside", 70, "B/step"),
        "bytes between": ("bytes_between", 90, "B/step"),
    }
    fastest = ([1, 1.01, 1.02, 1.03], [2, 2.04, 2.05, 2.1])
    sides = []
    for side, seconds in enumerate(fastest):
        case = measured(1, 4, **{column: value + side for column, value, _ in columns.values()})
        steps = numpy.outer(seconds, range(1, STEPS + 1)).reshape(-1, 1)
        case.data["seconds"] = steps * [1, 0.9, 0.8]
        sides.append(file_of(case))
    found = compare(sides[:1], sides[1:], Rules())
    said = json.loads(as_json(found, "a", "b"))
    assert said["threshold"] == 0.05 and said["confidence"] == 0.95 and "allow" not in said, said
    assert said["together"] is None, "there is one case"

    (case,) = said["cases"]
    measured_by = [case[name] for name in ("measured_by", "measurements_base", "measurements_new")]
    assert measured_by == ["repetitions", 4, 4], case
    for name, (_, value, units) in columns.items():
        aspect = case["aspects"][name]
        figures = [aspect[key] for key in ("units", "base", "new")]
        assert figures == [units, value, value + 1], (name, aspect)
    losses = SEEN.cases[0].data["losses"]
    assert losses[0] != losses[-1]
    for name, loss in (("first loss", losses[0]), ("last loss", losses[-1])):
        assert case["aspects"][name]["base"] == case["aspects"][name]["new"] == loss

    ratios = sorted(new / base for base in fastest[0] for new in fastest[1])
    expected = {"low": ratios[0], "estimate": math.sqrt(ratios[7] * ratios[8]), "high": ratios[-1]}
    medians = math.sqrt(1.01 * 1.02), math.sqrt(2.04 * 2.05)
    time = case["aspects"]["time"]
    assert time["units"] == "s", time
    for name, value in expected.items():
        assert abs(time["ratio"][name] - value) < 1e-9, (time, expected)
    for side, value in zip(("base", "new"), medians):
        assert abs(time[side] - value) < 1e-9, time
    row = as_text(found, "a", "b").splitlines()[-5].split()
    figures = [f"{expected[name]:.3f}" for name in ("estimate", "low", "high")]
    settings = ["0", "tawpipe", "3x1", "1+2", "128", "2", "6"]
    words = ["SLOWER", "SAME", "MORE", "SAME", "VALID"]
    assert row == [*settings, "1.015", "2.045", *figures, *words], row
    (suite,) = xml.fromstring(as_junit(found, False).split("\n", 1)[1])
    assert abs(float(suite.get("time")) - medians[1]) < 1e-8


def check_notes():
    base, new = (
        [
            file_of(measured(1)),
            file_of(
                measured(1), compiler=name, libraries=["a", name], environment=["X=1", f"Y={name}"]
            ),
        ]
        for name in "bc"
    )
    new[1].sessions.append(SESSION | {"git_hash": "abc"})
    notes = compare(base, new, Rules()).notes
    assert notes == [
        "git_hash = none -> abc",
        "compiler = b -> c",
        "libraries = b -> c",
        "environment = Y=b -> Y=c",
    ], notes


def check_units_of_text():
    """MiB in reasons, both thresholds in the heading."""
    rules = Rules(memory_threshold=0.01)
    text = as_text(
        compared_once(lambda case: case.row.update(memory_measured=3 << 20), rules), "a", "b"
    )
    assert "memory 0.04036 MiB -> 3 MiB" in text, text
    assert "# threshold 5 %, memory 1 %, confidence 95 %" in text, text
    assert threshold("5%") == threshold("0.05") == 0.05


def check_median_ranks():
    """As scipy.stats.binom.cdf has them: how many values k may lie outside at each end while cdf(k
    - 1, n, 1/2) <= (1 - confidence) / 2."""
    sizes = [5, 6, 7, 8, 9, 12, 15, 17, 20, 25, 30, 100, 1500]
    expected = {
        0.90: [1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 11, 42, 718],
        0.95: [0, 1, 1, 1, 2, 3, 4, 5, 6, 8, 10, 40, 712],
        0.99: [0, 0, 0, 1, 1, 2, 3, 3, 4, 6, 8, 37, 700],
    }
    for confidence, ranks in expected.items():
        for n, rank in zip(sizes, ranks):
            interval = median_interval(RANDOM.sample(range(1, n + 1), n), confidence)
            assert (interval is not None) == (rank > 0), (n, confidence)
            assert not interval or interval == (rank, (n + 1) / 2, n + 1 - rank), (
                n,
                confidence,
                interval,
            )
    assert median_interval([1, 2, 3, 4, 5, 6], 1 - 2 / 2**6) == (
        1,
        3.5,
        6,
    ), "as probable as is allowed"


def check_shift_ranks():
    """As scipy.stats.mannwhitneyu(method="exact") has them; the differences of these samples are 0
    .. n m - 1. Few have no interval."""
    for n, m, *ranks in (
        (3, 3, None, 0, 0),
        (4, 4, 2, 1, 0),
        (5, 6, 6, 4, 2),
        (3, 9, 4, 3, 1),
        (7, 16, 31, 27, 19),
        (20, 20, 139, 128, 106),
        (30, 30, 338, 317, 275),
    ):  # by the normal distribution: 450 - 1.645 (1.960, 2.576) sqrt(900 61 / 12)
        for confidence, rank in zip((0.9, 0.95, 0.99), ranks):
            interval = shift_interval([-i for i in range(n)], [n * j for j in range(m)], confidence)
            assert rank is None or (interval is not None) == (rank > 0), (n, m, confidence)
            assert not rank or (interval.low, interval.high) == (rank - 1, n * m - rank), (
                n,
                m,
                confidence,
                interval,
            )
    assert median_interval([], 0.95) is None and shift_interval([], [1], 0.95) is None
    assert shift_interval([1, 2, 3], [1, 2, 3], 0.95) is None


print(f"MINITAW_SEED={SEED}")
run_checks(globals())
refused("compare", "missing.h5", "missing.h5", says="missing.h5")
