# SPDX-License-Identifier: BSD-3-Clause
"""scripts/minitaw/record.py opens sound result files, and refuses all others in one sentence."""

import io
import random

import h5py
import numpy
import files
from support import SAMPLE, programs, refusal_of, run_checks
from minitaw import record as subject
from minitaw import layout, seal, settings

SEALED = SAMPLE.read_bytes()
IMAGE = SEALED[seal.SEAL_BYTES :]


def refused(content, says):
    said = refusal_of(subject.load, "copy.h5", content)
    assert "\n" not in said, said
    programs.says(said, "copy.h5", says)


def check_settings():
    """Each setting of layout.txt has one meaning."""
    meanings = [*settings.MODEL, *settings.WORK, *settings.BATCH, *settings.VARIANT]
    meanings += [*settings.EFFORT, *settings.DERIVED]
    assert sorted(meanings) == sorted(layout.layout().settings), meanings
    assert set(settings.TOLD) <= set(meanings) and set(settings.COUNTED) <= set(settings.TOLD)


def check_seals():
    assert seal.seal_of(4, IMAGE) + IMAGE == SEALED
    damaged, none, numbers = "is damaged: truncated", "not a miniTaw result", random.Random(5)
    for content, says in (
        (SEALED[:-1], damaged),
        (SEALED + b"\0", damaged),
        (SEALED[:600], damaged),
        (SEALED[:100], damaged),
        (SEALED[:511] + b" " + SEALED[512:], damaged),
        (b"M" + SEALED[1:], none),
        (IMAGE, none),
        (b"M" * 512 + IMAGE, none),
        (b"hello\n", none),
        (b"", none),
        (seal.seal_of(5, IMAGE) + IMAGE, "schema version 5"),
        (seal.seal_of(3, IMAGE) + IMAGE, "schema version 3"),
        (seal.SEAL_WORDS + b"77 in a form of its own", "schema version 77"),
        (seal.seal_of(4, b""), "cannot open"),
    ):
        refused(content, says)
    for _ in range(300):
        changed, at = bytearray(SEALED), numbers.randrange(len(SEALED))
        changed[at] ^= 1 << numbers.randrange(8)
        refused(bytes(changed), "copy.h5")
    foreign = io.BytesIO()
    with h5py.File(foreign, "w") as file:
        file["x"] = [1, 2, 3]
    refused(foreign.getvalue(), none)


def check_columns():
    """The file says itself which columns there are, in which order, with which units, and which of
    them are settings."""
    result = subject.load(SAMPLE)
    assert list(result.units)[:3] == ["case", "session", "status"]
    assert result.units["seq"] == "token"
    assert "schedule" in result.settings and "median_s" not in result.settings
    case = result.cases[4]
    assert case["median_s"] == 2.25
    assert list(case.samples) == [0.75, 1.75, 2.75, 3.75]
    assert len(case.get("losses")) == 5
    assert case.valid and not result.cases[6].valid and case.session is result.sessions[2]


def check_traffic():
    """Bytes between groups and inside, by kind, against the matrix of the file, link by link."""
    for case in filter(lambda case: case.valid, subject.load(SAMPLE).cases):
        counted = case.get("bytes/counted")
        group = [
            number
            for number, size in enumerate(case["groups"].split("+"))
            for _ in range(int(size))
        ]
        expected = [[0] * 5, [0] * 5]
        for (start, end, kind), count in numpy.ndenumerate(counted):
            expected[group[start] == group[end]][kind] += count
        assert [list(kinds) for kinds in case.traffic()] == expected, (case["case"], expected)
    (failed,) = subject.load(
        files.make(SAMPLE, "failed.h5", [(6, {}, {"bytes/counted": numpy.zeros((0, 0, 5), int)})])
    ).cases
    assert [list(kinds) for kinds in failed.traffic()] == [[0] * 5] * 2


def check_timeline():
    """Numbers that stand for names come as these, all else as it is."""
    result = subject.load(SAMPLE)
    with h5py.File(io.BytesIO(IMAGE)) as file:
        columns = file["cases/0000/timeline"]
        found = subject.read_timeline(result.cases[0])
        assert set(found) == set(columns)
        assert found["end"] == list(columns["end"])
        assert found["rank"] == list(columns["rank"])
        for name in ("kind", "lane", "payload"):
            assert found[name] == [
                columns[name].attrs["codes"][code] for code in columns[name]
            ], name


def check_verdict():
    """The file's verdict is that of its rows."""
    result = subject.load(SAMPLE)
    bad = [case for case in result.cases if not case["verdict"].startswith("VALID")]
    assert bad, result.verdict
    assert result.verdict.startswith(
        f"INVALID: {len(bad)} of {len(result.cases)} cases, first case {bad[0]['case']} ("
    ), result.verdict
    assert (
        subject.fastest([subject.Case(result, bad[0].row | {"tokens_per_s": 1e9}), *result.cases])
        is result.cases[4]
    )
    for case in filter(lambda case: case.valid, result.cases):
        assert case.tokens == case["seq"] * case["micro_batch"] * case["micro_batches"], case[
            "case"
        ]
    quiet = subject.quietest(result.cases)
    assert quiet is None or not quiet.doubt, quiet["case"]


run_checks(globals())
