# SPDX-License-Identifier: BSD-3-Clause
"""scripts/minitaw/record.py reads sound result files as tables. Others: check_hostile.py."""

import io

import files
import h5py
import numpy
from support import SAMPLE, programs, refusal_of, run_checks
from minitaw import record as subject
from minitaw import settings

IMAGE = files.image_of(SAMPLE)
RUNS = subject.load(SAMPLE)


def check_settings():
    """Each setting of a file has one meaning."""
    meanings = [*settings.MODEL, *settings.WORK, *settings.BATCH, *settings.VARIANT]
    meanings += [*settings.EFFORT, *settings.DERIVED]
    assert sorted(meanings) == sorted(RUNS.file[0].settings), meanings
    assert set(settings.TOLD) <= set(meanings) and set(settings.COUNTED) <= set(settings.TOLD)


def check_columns():
    """The file says itself which columns there are, in which order, with which units, and which of
    them are settings."""
    with h5py.File(io.BytesIO(IMAGE)) as stored:
        columns = [
            name for name in stored["runs"] if isinstance(stored["runs"][name], h5py.Dataset)
        ]
        units = [stored["runs"][name].attrs["units"] for name in columns]
        assert all(stored["runs"][name].attrs["doc"] for name in columns)
    file = RUNS.file[0]
    assert list(RUNS)[: len(columns)] == list(file.units) == columns
    assert list(file.units.values()) == units
    run = RUNS.iloc[4]
    assert run.median_s == 2.25 and list(subject.samples(run)) == [0.75, 1.75, 2.75, 3.75]
    assert len(subject.array(run, "losses")) == 5 and subject.array(run, "none").size == 0
    assert subject.labels(run, "memory/measured")[:2] == ["weights", "gradients"]
    assert run.valid and subject.session_of(run) is file.sessions[2]
    assert run.doubt.startswith("noisy: quartiles") and subject.tokens_of(run) == 12 * 512
    failed = RUNS.iloc[6]
    assert not failed.valid and subject.reason_of(failed) == "error: out of memory"
    assert file.verdict.startswith("INVALID: 1 of 7 ") and len(file.figures_of_merit) == 1


def check_transfers():
    """Bytes between groups and inside, by kind, as the formula of the sample gives them."""
    found = subject.transfers(RUNS.iloc[0]).groupby(["between", "kind"]).counted.sum()
    sent, group = numpy.arange(45).reshape(3, 3, 5), numpy.array([0, 1, 1])
    crosses = group[:, None] != group
    for is_between in (False, True):
        expected = sent[crosses == is_between].sum(axis=0)
        for kind, size in zip(subject.labels(RUNS.iloc[0], "time/exposed_by_kind"), expected):
            assert found[is_between, kind] == size, (is_between, kind)
    sums = found.groupby("between").sum()
    assert [sums[False], sums[True]] == [RUNS.bytes_inside[0], RUNS.bytes_between[0]]


def check_timeline():
    """Numbers that stand for names come as these, all else as it is."""
    with h5py.File(io.BytesIO(IMAGE)) as file:
        columns = file["runs/0000/timeline"]
        for name in columns:
            values = list(columns[name])
            if name in ("kind", "segment", "lane", "payload"):
                values = [columns[name].attrs["codes"][code] for code in values]
            assert list(subject.array(RUNS.iloc[0], f"timeline/{name}")) == values, name

    path = files.make(SAMPLE, "codes.h5", [(0, {}, {"timeline/kind": [99] * 5})])
    said = refusal_of(subject.array, subject.load(path).iloc[0], "timeline/kind")
    programs.says(said, "codes.h5", "damaged")


OF_THREE = {"case": 0, "repetition": 0, "repeats": 3, "samples": 4}


def check_cases():
    """A case is what its repetitions say together; of a run that was tried again the last counts."""
    rows = [
        (0, OF_THREE | {"tokens_per_s": 10.0}, {}),
        (6, OF_THREE | {"repetition": 1}, {}),
        (1, {"case": 1, "repeats": 2}, {}),
        (0, OF_THREE | {"repetition": 2, "tokens_per_s": 40.0}, {}),
        (0, OF_THREE | {"repetition": 1, "tokens_per_s": 20.0}, {}),
        (6, {"case": 2}, {}),
    ]
    runs = subject.load(files.make(SAMPLE, "cases.h5", rows))
    assert list(zip(runs.case, runs.repetition)) == [(0, 0), (0, 1), (1, 0), (0, 2), (2, 0)]
    assert list(runs.run) == [0, 4, 2, 3, 5]
    found = subject.cases(runs)
    assert list(found.label) == ["0", "1", "2"]
    assert list(found.valid) == [True, False, False]
    assert list(found.verdict[1:]) == [
        "INVALID: 1 of 2 repetitions",
        "INVALID: error: out of memory",
    ]
    first = found.iloc[0]
    assert (first.tokens_per_s, first.samples, len(first.runs)) == (20, 12, 3)
    assert first.doubt == RUNS.doubt[0] and "repetition" not in found
    broken = subject.load(files.make(SAMPLE, "broken.h5", [*rows, (6, rows[0][1], {})]))
    case = subject.cases(broken).iloc[0]
    assert (case.valid, case.tokens_per_s) == (False, 30), "the median of its valid runs"


def check_several_files():
    found = subject.load_all([SAMPLE, SAMPLE])
    letters = "".join(file.letter for file in found.file)
    assert list(found.index) == list(range(14)) and letters == "AAAAAAABBBBBBB"
    assert list(subject.cases(found).label)[5:9] == ["A5", "A6", "B0", "B1"]
    empty = files.make(SAMPLE, "empty.h5", [])
    programs.says(refusal_of(subject.load_all, [SAMPLE, empty]), "empty.h5 holds no run")


run_checks(globals())
