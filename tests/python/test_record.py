# SPDX-License-Identifier: BSD-3-Clause
"""Sound result files as tables. Others: test_hostile.py."""

import io
import pathlib

import numpy
import pandas
import pytest
import samples
from minitaw import archive, record, sealed, settings
from programs import REPOSITORY, SAMPLE, minitaw, output_of, refusal_of, says

RUNS = record.load(SAMPLE)


def test_each_setting_of_a_file_has_one_meaning():
    meanings = [*settings.MODEL, *settings.WORK, *settings.BATCH, *settings.VARIANT]
    meanings += [*settings.EFFORT, *settings.DERIVED]
    assert sorted(meanings) == sorted(RUNS.file[0].settings)
    assert set(settings.TOLD) <= set(meanings)


def test_columns_and_units_are_those_of_the_file():
    with sealed.opened(SAMPLE) as stored:
        columns = record.columns_of(stored["runs"])
        units = {name: column.attrs["units"] for name, column in columns.items()}
    assert list(RUNS)[: len(units)] == list(units)
    assert list(RUNS.file[0].units.items()) == list(units.items())


def test_figures_of_a_run():
    run, failed, file = RUNS.iloc[4], RUNS.iloc[6], RUNS.file[0]
    assert run.median_s == 2.25 and list(record.samples(run)) == [0.75, 1.75, 2.75, 3.75]
    assert len(record.array(run, "losses")) == 5 and record.array(run, "none").size == 0
    assert record.labels(run, "memory/measured")[:2] == ["weights", "gradients"]
    assert run.valid and record.session_of(run) is file.sessions[2]
    assert run.doubt.startswith("noisy: quartiles") and record.tokens_of(run) == 12 * 512
    assert not failed.valid and record.reason_of(failed) == "error: out of memory"
    assert file.verdict.startswith("INVALID: 1 of 7 ") and len(file.figures_of_merit) == 1


def test_transfers_are_inside_of_groups_or_between():
    """By kind, as the formula of the sample gives them."""
    found = record.transfers(RUNS.iloc[0]).groupby(["between", "kind"]).counted.sum()
    sent, group = numpy.arange(45).reshape(3, 3, 5), numpy.array([0, 1, 1])
    crosses = group[:, None] != group
    for between in (False, True):
        kinds = record.labels(RUNS.iloc[0], "time/exposed_by_kind")
        expected = dict(zip(kinds, sent[crosses == between].sum(axis=0)))
        assert found[between].to_dict() == expected
    sums = found.groupby("between").sum()
    assert [sums[False], sums[True]] == [RUNS.bytes_inside[0], RUNS.bytes_between[0]]


def test_codes_come_as_names():
    timeline = {
        name: list(record.array(RUNS.iloc[0], f"timeline/{name}")) for name in ("kind", "end")
    }
    assert timeline["kind"] == ["F", "send", "recv", "broadcast", "update"]
    assert timeline["end"] == [0.5, 0.75, 0.75, 1.25, 1.0625]
    path = samples.make(SAMPLE, "codes.h5", [(0, {}, {"timeline/kind": [99] * 5})])
    refusal = refusal_of(record.array, record.load(path).iloc[0], "timeline/kind")
    says(refusal, "codes.h5", "damaged")


def test_a_case_is_what_its_repetitions_say():
    """Of a run that was tried again the last counts."""
    of_three = {"case": 0, "repetition": 0, "repeats": 3, "samples": 4}
    rows = [
        (0, of_three | {"tokens_per_s": 10.0}, {}),
        (6, of_three | {"repetition": 1}, {}),
        (1, {"case": 1, "repeats": 2}, {}),
        (0, of_three | {"repetition": 2, "tokens_per_s": 40.0}, {}),
        (0, of_three | {"repetition": 1, "tokens_per_s": 20.0}, {}),
        (6, {"case": 2}, {}),
    ]
    runs = record.load(samples.make(SAMPLE, "cases.h5", rows))
    assert list(zip(runs.case, runs.repetition)) == [(0, 0), (0, 1), (1, 0), (0, 2), (2, 0)]
    assert list(runs.run) == [0, 4, 2, 3, 5]
    found = record.cases(runs)
    verdicts = ["INVALID: 1 of 2 repetitions", "INVALID: error: out of memory"]
    assert list(found.valid) == [True, False, False] and list(found.verdict[1:]) == verdicts
    first = found.iloc[0]
    assert (first.tokens_per_s, first.samples, len(first.runs)) == (20, 12, 3)
    assert first.doubt == RUNS.doubt[0]
    broken = record.load(samples.make(SAMPLE, "broken.h5", [*rows, (6, of_three, {})]))
    case = record.cases(broken).iloc[0]
    assert (case.valid, case.tokens_per_s) == (False, 30)  # the median of its valid runs


def test_several_files_have_letters():
    found = record.load_all([SAMPLE, SAMPLE])
    assert "".join(file.letter for file in found.file) == "AAAAAAABBBBBBB"
    assert list(record.cases(found).label)[5:9] == ["A5", "A6", "B0", "B1"]
    empty = samples.make(SAMPLE, "empty.h5", [])
    says(refusal_of(record.load_all, [SAMPLE, empty]), "empty.h5 holds no run")


def test_committed_records_open():
    """Columns and figures of all runs by `show` are those by scripts."""
    records = [(path.name, path.read_bytes()) for path in (REPOSITORY / "results").rglob("*.h5")]
    for path in (REPOSITORY / "results").rglob("*.tar.gz"):
        records += archive.unpack(path).items()
    assert records
    for name, content in records:
        pathlib.Path(name).write_bytes(content)
        runs = record.load(name)
        assert runs.file[0].verdict.startswith("VALID"), name
        text = io.StringIO(output_of(minitaw("show", "--csv", name)))
        shown = pandas.read_csv(text, keep_default_na=False, float_precision="round_trip")
        shown.columns = [title.partition(" [")[0] for title in shown]
        assert list(shown) == list(runs.file[0].units), name
        for column in shown:
            kind = runs[column].dtype
            values = shown[column].replace("", "nan") if kind == float else shown[column]
            expected = runs[column].astype(kind).tolist()
            assert values.astype(kind).tolist() == pytest.approx(
                expected, rel=0, nan_ok=True
            ), column
