# SPDX-License-Identifier: BSD-3-Clause
"""What the comparison says of cases that differ in one thing each: times, memory, bytes, losses,
settings, machines. And that its intervals end where the tables of the distributions say; from that
it follows what they cover, whatever the distribution.
"""

import json
import math
import os
import xml.etree.ElementTree as xml
from dataclasses import dataclass

import files
import numpy
import pandas
from support import SAMPLE, refusal_of, run_checks
from minitaw import comparison, record
from minitaw.aspects import Rules, judge
from minitaw.compare import threshold
from minitaw.comparison_text import as_json, as_text
from minitaw.intervals import Interval, Times
from minitaw.junit import as_junit

SEED = int(os.environ.get("MINITAW_SEED", 20111741))
RANDOM = numpy.random.default_rng(SEED)
SEEN = record.load(SAMPLE)
SETTINGS = SEEN.file[0].settings
SESSION = {
    "devices": ["host, 2 threads"] * 3,
    "nodes": [0] * 3,
    "cpu": ["one"] * 3,
    "build_type": "Release",
}
STEPS = 6


@dataclass
class Case:
    columns: dict
    seconds: numpy.ndarray  # [repetition, step, rank]
    losses: numpy.ndarray

    def rows(self):
        """Of each repetition: columns and arrays."""
        for repetition, seconds in enumerate(self.seconds):
            arrays = {"seconds": seconds, "losses": self.losses}
            yield self.columns | {"repetition": repetition}, arrays


def measured(seconds=1, repetitions=1, **columns):
    """Steps of about so many seconds, a little different in each."""
    first = SEEN.iloc[0].to_dict() | {"steps": STEPS, "repeats": repetitions, "verdict": "VALID"}
    samples = seconds * (1 + 0.01 * RANDOM.random((repetitions, STEPS, 3)))
    return Case(first | columns, samples, 3.0 - 0.125 * numpy.arange(5))


def file_of(*cases, settings=SETTINGS, **session):
    """The runs of a file, as load() has them."""
    rows = [
        (columns | {"case": number}, arrays)
        for number, case in enumerate(cases)
        for columns, arrays in case.rows()
    ]
    return files.in_memory(rows, settings=settings, sessions=[SESSION | session])


def compare(base, new, **rules):
    return comparison.compare(base, new, Rules(**rules))


def compared_once(change, rules={}, dtype="fp32", **session):
    """Two files of one case, six repetitions each; `change` is done to the new one."""
    base, new = measured(1, 6, dtype=dtype), measured(1, 6, dtype=dtype)
    change(new)
    return compare([file_of(base)], [file_of(new, **session)], **rules)


def compared_in_turn(pairs, change):
    """Many pairs of files of one case; both of a pair see the same drift."""
    base, new = [], []
    for drift in 1 + 0.5 * abs(numpy.sin(range(pairs))):
        base.append(file_of(measured(drift)))
        changed = measured(drift)
        change(changed)
        new.append(file_of(changed))
    return compare(base, new)


def columns(**changed):
    return lambda case: case.columns.update(changed)


def times(column, factor):
    return columns(**{column: round(SEEN[column][0] * factor)})


def slower(factor):
    def change(case):
        case.seconds *= factor

    return change


def loss(at, factor):
    def change(case):
        case.losses[at] *= factor

    return change


fail = columns(status="wrong", verdict="INVALID: wrong: the loss is not finite")
unchanged = columns()


def aspect_of(found, name):
    return found.cases[0].aspects[name]


def time_of(found):
    return aspect_of(found, "time")


def check_same():
    for found in (compared_once(unchanged), compared_in_turn(7, unchanged)):
        assert (found.word, found.outcome) == ("SAME", "same"), found.notes
        assert len(found.notes) == (not found.cases[0].times.are_paired), found.notes
        assert {aspect.outcome for aspect in found.cases[0].aspects.values()} == {"same"}
    # as programs of another day may name them
    other = file_of(measured(1, 6), settings=SETTINGS[::-1])
    assert compare([file_of(measured(1, 6))], [other]).word == "SAME"


def fast_ranks(case):
    """All but the slowest of each step are twice as fast."""
    slowest = case.seconds.argmax(axis=2)[..., None]
    case.seconds[numpy.arange(3) != slowest] /= 2


def five_in_six(case):
    case.seconds[:, 1:] *= 3


def check_one_change():
    """What is said of which aspect, if one thing differs."""
    for change, rules, name, word in (
        (slower(1.2), {}, "time", "SLOWER"),
        (slower(1.2), {"threshold": 0.3}, "time", "SAME"),
        (fast_ranks, {}, "time", "SAME"),
        (five_in_six, {}, "time", "SAME"),
        (five_in_six, {"quantile": 0.5}, "time", "SLOWER"),
        (fail, {}, "time", ""),
        (fail, {}, "verdict", "BROKEN"),
        (times("memory_measured", 1.04), {}, "memory", "SAME"),
        (times("memory_measured", 1.06), {}, "memory", "MORE"),
        (times("memory_measured", 1.04), {"memory_threshold": 0.01}, "memory", "MORE"),
        (times("bytes_between", 1.1), {}, "bytes between", "MORE"),
        (times("bytes_inside", 0.9), {}, "bytes inside", "LESS"),
        (loss(0, math.nan), {}, "first loss", "WRONG"),
    ):
        found = compared_once(change, rules)
        assert aspect_of(found, name).word == word, (name, word, aspect_of(found, name))
        is_worse = word in ("", "SLOWER", "BROKEN", "MORE", "WRONG")
        assert found.outcome == ("worse" if is_worse else "same"), (name, word, found.text())


def check_losses():
    """Within limits of the type; of the last step a higher one."""
    for dtype, first, last in (("fp32", 1e-6, 1e-4), ("bf16", 1e-3, 1e-2)):
        for at, name, limit in ((0, "first loss", first), (-1, "last loss", last)):
            for off, word in ((0.95, "SAME"), (1.05, "WRONG"), (-1.05, "WRONG")):
                found = compared_once(loss(at, 1 + off * limit), dtype=dtype)
                assert aspect_of(found, name).word == word, (dtype, name, off)


def files_with(count, *cases):
    """So many files, each of cases with these arguments of measured()."""
    return [file_of(*(measured(**case) for case in cases)) for _ in range(count)]


def check_units():
    """A drift that both files of a pair share does not matter. Files that are not in pairs are
    repetitions; too few measurements are ambiguous."""
    for pairs in (7, 8):
        time = time_of(compared_in_turn(pairs, slower(1.1)))
        shown = time.new / time.base
        assert time.word == "SLOWER" and abs(time.ratio.estimate - 1.1) < 0.01, time
        assert abs(shown / time.ratio.estimate - 1) < 1e-12, "those of the pair in the middle"
    assert compared_in_turn(7, slower(1 / 1.1)).word == "FASTER"
    found = compare(files_with(5, {}), files_with(4, {"seconds": 1.3}))
    assert not found.cases[0].times.are_paired and time_of(found).word == "SLOWER"
    assert "too few pairs of files (5) for" in time_of(compared_in_turn(5, slower(2))).reason
    for base, new, said in ((3, 4, "(3 and 4)"), (1, 1, "(1)")):
        found = compare([file_of(measured(1, base))], [file_of(measured(2, new))])
        assert f"too few repetitions {said} for" in time_of(found).reason, found.text()
        assert found.word == "AMBIGUOUS", "two runs may differ, or agree, by chance"


def check_threshold():
    way = "{}, by less or by more than the threshold of 5 %; measure more"
    for low, high, word, why in (
        (0.96, 1.04, "SAME", ""),
        (1.051, 1.2, "SLOWER", "step time"),
        (0.8, 0.951, "FASTER", "step time"),
        (0.96, 1.06, "AMBIGUOUS", "unknown"),
        (1, 1.06, "AMBIGUOUS", "unknown"),
        (1.018, 1.121, "AMBIGUOUS", way.format("slower")),
        (0.8, 0.953, "AMBIGUOUS", way.format("faster")),
    ):
        interval = Interval(low, (low + high) / 2, high)
        found = judge(interval, interval, Rules())
        assert found[0] == word and why in found[1], (low, high, found)
    assert threshold("5%") == threshold("0.05") == 0.05


def pairs_of(*factors, cases=2, **rules):
    """As many pairs; the last one of the cases is slower by these factors."""

    def file(last):
        others = (measured(seq=128 << i) for i in range(cases - 1))
        return file_of(*others, measured(last, seq=1 << 20))

    return compare([file(1) for _ in factors], [file(f) for f in factors], **rules)


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
        *others, last = (one.aspects["time"] for one in found.cases)
        assert last.word == word and abs(last.ratio.estimate - 1.2) < 0.02, (pairs, options, last)
        assert {other.word for other in others} <= {"SAME"}
        assert found.word == ("REGRESSION" if word == "SLOWER" else "AMBIGUOUS"), found.text()
        if pairs == 9:
            why = "if it stood alone, but one of 13 intervals may miss by chance; measure more, 10"
            assert why in found.text()
            assert "for all 13 intervals at once" in as_text(found, "a", "b")
    few = time_of(pairs_of(*[1] * 6, looks=10)).reason
    assert "too few pairs of files (6) for a confidence of 0.995: 9 are needed" in few, few
    assert pairs_of(*[1] * 9, looks=10).word == "SAME", "each case alone says so"


def check_together():
    """Cases whose intervals reach below the threshold can be slower together, as with a loop
    planted in every transfer."""
    factors = numpy.full((9, 3), 1.3)
    factors[numpy.arange(9), numpy.arange(9) // 3] = 1.02
    base, new = (
        [file_of(*(measured(of, seq=64 << i) for i, of in enumerate(pair))) for pair in side]
        for side in (numpy.ones((9, 3)), factors)
    )
    found = compare(base, new)
    assert [one.aspects["time"].word for one in found.cases] == ["AMBIGUOUS"] * 3
    assert found.together.word == "SLOWER" and found.outcome == "worse", found.text()
    assert abs(found.together.ratio.estimate - 1.199) < 0.005
    begin = "REGRESSION: all 3 cases together: step time: new / base = 1."
    assert found.text().startswith(begin), found.text()
    assert "# all cases together: SLOWER: new / base = 1." in as_text(found, "a", "b")
    assert json.loads(as_json(found, "a", "b"))["together"]["word"] == "SLOWER"
    *_, suite = xml.fromstring(as_junit(found, False).split("\n", 1)[1])
    counts = suite.get("name"), suite.get("failures"), suite.get("tests")
    assert counts == ("all cases together", "1", "1"), suite.attrib


def check_excluded():
    """SAME says what it excludes: the upper end of the widest interval, here the largest of six
    ratios."""

    def side(ratios, seq=64):
        for ratio in ratios:
            cases = measured(seq=seq), measured(seq=128)
            cases[0].seconds[:], cases[1].seconds[:] = 1, ratio
            yield file_of(*cases)

    ratios = [0.99, 1.0, 1.01, 1.02, 1.03, 1.04]
    base, new, other = list(side([1] * 6)), list(side(ratios)), list(side(ratios, seq=1))
    said = "SAME: no step time of {} is longer by more than 4.0 %{}, 95 % sure"
    assert compare(base, new).text() == said.format("2 cases", " (case 1)")
    assert compare(base, other).text() == said.format("1 case", "")
    off = compare(base, new, threshold=math.inf)
    assert off.text() == "SAME: in what was compared; no step times were"
    assert {one.aspects["time"].word for one in off.cases} == {"OFF"}
    assert "# threshold off, memory 5 %, confidence 95 %" in as_text(off, "a", "b")
    assert json.loads(as_json(off, "a", "b"))["threshold"] is None


def check_more_steps():
    """More steps are no advantage: the first six of each repetition count."""
    few, many = measured(1, 6), measured(1, 6, steps=12)
    many.seconds = numpy.concatenate([many.seconds, numpy.full((6, 6, 3), 0.5)], axis=1)
    found = compare([file_of(few)], [file_of(many)])
    assert time_of(found).word == "SAME"
    assert any("steps = 6 -> 12" in note for note in found.notes)


def check_matching():
    a, b = measured(1, 4), measured(2, 4, schedule="ddp")
    c, d = measured(3, 4, schedule="ddp", seq=256), measured(2, 4, schedule="ddp")
    found = compare([file_of(a, b)], [file_of(c, d)])
    assert [one.case.schedule for one in found.cases] == ["ddp"]
    assert time_of(found).word == "SAME"
    (old,), (new,) = found.only_base, found.only_new
    assert "tawpipe" in old and "256 tokens" in new
    assert {f"only in the base: {old}", f"only in the new one: {new}"} <= {*found.notes}
    lacks = f"1 of the base's cases missing in the new one, first {old}"
    for base, new, said in (
        (file_of(a, b), file_of(d), f"REGRESSION: {lacks}"),
        (file_of(b), file_of(a, d), "SAME"),
    ):
        assert compare([base], [new]).word == "SAME"
        assert compare([base], [new], missing="fail").text().startswith(said), said
    fail(d)
    both = compare([file_of(a, b)], [file_of(d)], missing="fail").text()
    assert both.startswith("REGRESSION: 1 of 1 case, first case 1 (ddp"), both
    assert both.endswith(f"the loss is not finite in a.h5; {lacks}"), both
    said = refusal_of(compare, [file_of(a)], [file_of(c)])
    assert "no case in common" in said and "schedule is tawpipe" in said


CARD = "device {0}, NVIDIA H100, 79.1 GiB, GPU-{0}"


def check_what_matters():
    threads = {"devices": ["host, 1 threads"] * 3}
    for name, change, session in (
        ("dtype", {"dtype": "bf16"}, {}),
        ("recompute", {"recompute": "none"}, {}),
        ("attention", {"attention_used": "cudnn"}, {}),
        ("transport", {"transport_used": "nccl"}, {}),
        ("seed", {"seed": 7}, {}),
        ("learning_rate", {"learning_rate": 0.5}, {}),
        ("grad_dtype", {"grad_dtype": "fp16"}, {}),
        ("clip_norm", {"clip_norm": 0.5}, {}),
        ("threads", {}, threads),
        ("device", {}, {"devices": [CARD.format(0)] * 3}),
        ("nodes", {}, {"nodes": [0, 0, 1]}),
        ("processor", {}, {"cpu": ["one", "one", "another"]}),
        ("links", {}, {"links": ["rate=100mbit"]}),
        ("build_type", {}, {"build_type": "Debug"}),
    ):
        assert f"--allow {name}" in refusal_of(compared_once, columns(**change), **session)
        found = compared_once(columns(**change), {"allow": [name, "threads"]}, **session)
        assert found.word == "SAME", (name, found.text())
    found = compared_once(loss(0, 2), {"allow": ["threads"]}, **threads)
    assert aspect_of(found, "first loss").word == "WRONG", "machines explain no other loss"
    others = {"devices": "host, 1 threads", "nodes": 1, "cpu": "another"}
    more = {name: [*SESSION[name], other] for name, other in others.items()}
    assert compared_once(unchanged, **more).word == "SAME", "the fourth rank is not in the case"
    base, new = (
        file_of(measured(1, 4), devices=[CARD.format(first + i) for i in range(3)])
        for first in (0, 3)
    )
    assert compare([base], [new]).word == "SAME", "which of equal devices it was does not matter"


def check_process_peak():
    """What a process holds beside the step is noise up to 32 MiB."""
    for before, after, word in (
        (100, 130, "SAME"),
        (100, 133, "MORE"),
        (1000, 1040, "SAME"),
        (1060, 1000, "LESS"),
        (0, 99, ""),
    ):
        for column, name in (("process_peak", "process peak"), ("device_used", "device memory")):
            sides = [[file_of(measured(1, 4, **{column: peak << 20}))] for peak in (before, after)]
            assert aspect_of(compare(*sides), name).word == word, (name, before, after)


def check_several_files():
    """One file that took more memory changes no median; losses are those of the run with most
    steps."""
    base, new = (
        [file_of(measured(memory_measured=size)) for size in sizes]
        for sizes in ((1000, 1010, 1020), (1005, 1010, 3000))
    )
    memory = aspect_of(compare(base, new), "memory")
    assert (memory.base, memory.new, memory.word) == (1010, 1010, "SAME"), memory
    short, whole, other = measured(), measured(), measured()
    short.losses = short.losses[:1]
    other.losses[-1] *= 2
    last = aspect_of(compare([file_of(short), file_of(whole)], [file_of(other)]), "last loss")
    assert last.word == "WRONG" and last.new == 2 * last.base, last


def check_validity():
    failed = measured(1, 6)
    fail(failed)
    bad, good = [file_of(failed)], [file_of(measured(1, 6))]
    repaired = compare(bad, good)
    assert aspect_of(repaired, "verdict").word == "REPAIRED" and repaired.outcome == "same"
    assert "valid" in refusal_of(compare, bad, bad)
    short = compare(good, [good[0][:5]])
    assert "INVALID: 5 of 6 repetitions" in aspect_of(short, "verdict").reason, short.text()
    new = [measured() for _ in range(7)]
    fail(new[3])
    found = compare(files_with(7, {}), list(map(file_of, new)))
    pairs = list(found.cases[0].times.base.index)
    assert pairs == [0, 1, 2, 4, 5, 6], "a run that failed takes its pair along"
    assert time_of(found).word == "SAME"
    assert aspect_of(found, "verdict").word == "BROKEN"


def check_mean():
    base = files_with(6, {"schedule": "ddp"}, {"seconds": 2})
    new = files_with(6, {"seconds": 1.1, "schedule": "ddp"}, {"seconds": 2.2 * 1.1})
    mean = compare(base, new).together.ratio
    assert abs(mean.estimate - 1.1 * math.sqrt(1.1)) < 0.02
    assert mean.low <= mean.estimate <= mean.high
    # The second case came later, into some of the files.
    base += files_with(3, {"schedule": "ddp"})
    new += files_with(3, {"seconds": 9, "schedule": "ddp"})
    found = compare(base, new)
    assert [len(one.times.base) for one in found.cases] == [9, 6], "pairs that both have"
    assert found.together.ratio == mean, "pairs that both have"


def check_figures():
    """Four repetitions, whose fastest steps are 1, 1.01, 1.02, 1.03 s and twice that and more: the
    interval reaches from the least to the largest ratio. Table and JSON have these, and what the
    runs of each side say."""
    known = {
        "memory": ("memory_measured", 1000, "B"),
        "process peak": ("process_peak", 2 << 30, "B"),
        "device memory": ("device_used", 3 << 30, "B"),
        "bytes inside": ("bytes_inside", 70, "B/step"),
        "bytes between": ("bytes_between", 3 << 20, "B/step"),
    }
    fastest = ([1, 1.01, 1.02, 1.03], [2, 2.04, 2.05, 2.1])
    sides = []
    for side, seconds in enumerate(fastest):
        case = measured(1, 4, **{column: value + side for column, value, _ in known.values()})
        steps = numpy.outer(seconds, range(1, STEPS + 1))
        case.seconds = steps[..., None] * [1, 0.9, 0.8]
        sides.append([file_of(case)])
    found = compare(*sides)
    said = json.loads(as_json(found, "a", "b"))
    (case,), aspects = said["cases"], said["cases"][0]["aspects"]
    for part, expected in (
        (said, {"threshold": 0.05, "confidence": 0.95, "verdict": found.text(), "together": None}),
        (case, {"measured_by": "repetitions", "measurements_base": 4, "measurements_new": 4}),
    ):
        assert part | expected == part, part
    for name, (_, value, units) in known.items():
        expected = {"units": units, "base": value, "new": value + 1}
        assert aspects[name] | expected == aspects[name], (name, aspects)
    assert aspects["bytes between"]["reason"] == "bytes between 3 MiB -> 3 MiB"
    for name, expected in (("first loss", 3), ("last loss", 2.5)):
        assert aspects[name]["base"] == aspects[name]["new"] == expected

    ratios = sorted(new / base for base in fastest[0] for new in fastest[1])
    expected = {"low": ratios[0], "estimate": math.sqrt(ratios[7] * ratios[8]), "high": ratios[-1]}
    medians = math.sqrt(1.01 * 1.02), math.sqrt(2.04 * 2.05)
    time = aspects["time"]
    assert time["units"] == "s", time
    for name, value in expected.items():
        assert abs(time["ratio"][name] - value) < 1e-9, (time, expected)
    for side, value in zip(("base", "new"), medians):
        assert abs(time[side] - value) < 1e-9, time
    row = " ".join(as_text(found, "a", "b").splitlines()[-5].split())
    ratio = "{estimate:.3f} {low:.3f} {high:.3f}".format(**expected)
    words = "SLOWER SAME MORE SAME VALID"
    assert row == f"0 tawpipe 3x1 1+2 128 2 6 1.015 2.045 {ratio} {words}", row
    (suite,) = xml.fromstring(as_junit(found, False).split("\n", 1)[1])
    assert abs(float(suite.get("time")) - medians[1]) < 1e-8


def check_notes():
    def side(name):
        changed = {"libraries": ["a", name], "environment": ["X=1", f"Y={name}"]}
        return [file_of(measured()), file_of(measured(), compiler=name, **changed)]

    base, new = map(side, "bc")
    new[1].file[0].sessions.append(SESSION | {"git_hash": "abc"})
    notes = "; ".join(compare(base, new).notes)
    changes = "git_hash = none -> abc; compiler = b -> c; libraries = b -> c"
    assert notes == f"{changes}; environment = Y=b -> Y=c", notes


def ends_of(are_paired, base, new, confidence):
    """The interval between these logarithms: of which value, from the low end and from the high."""
    times = Times(are_paired, pandas.Series(base, dtype=float), pandas.Series(new, dtype=float))
    found = times.ratio(confidence)
    return found and tuple(round(math.log(end), 9) for end in found)


def check_median_ranks():
    """As the tables of the binomial distribution have them: how many values k may lie outside at
    each end while P(fewer than k of n coins show heads) <= (1 - confidence) / 2."""
    sizes = [5, 6, 8, 9, 17, 30, 100]
    for confidence, *ranks in (
        (0.90, 1, 1, 2, 2, 5, 11, 42),
        (0.95, 0, 1, 1, 2, 5, 10, 40),
        (0.99, 0, 0, 1, 1, 3, 8, 37),
    ):
        for n, rank in zip(sizes, ranks):
            found = ends_of(True, [0] * n, RANDOM.permutation(range(1, n + 1)) / 100, confidence)
            ends = rank / 100, (n + 1) / 200, (n + 1 - rank) / 100
            assert found == (ends if rank else None), (n, confidence, found)


def check_shift_ranks():
    """As the exact tables of Mann and Whitney have them; the differences of these samples are
    0 .. n m - 1, of which the normal distribution says for 50 and 50:
    1250 - 1.645 (1.960, 2.576) sqrt(2500 101 / 12), less than one off."""
    for n, m, *ranks in (
        (3, 3, 0, 0, 0),
        (4, 4, 2, 1, 0),
        (5, 6, 6, 4, 2),
        (7, 16, 31, 27, 19),
        (50, 50, 1011, 966, 876),
    ):
        for confidence, rank in zip((0.9, 0.95, 0.99), ranks):
            base, new = -numpy.arange(n) / 1e4, n * numpy.arange(m) / 1e4
            found = ends_of(False, base, new, confidence)
            ends = rank and ((rank - 1) / 1e4, (n * m - rank) / 1e4)
            assert (found and (found[0], found[2])) == (ends or None), (n, m, confidence, found)


print(f"MINITAW_SEED={SEED}")
run_checks(globals())
