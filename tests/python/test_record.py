# SPDX-License-Identifier: BSD-3-Clause
"""Sound result files as tables. Others: test_hostile.py."""

import io
import pathlib

import pandas
from minitaw import archive, record, sealed, settings
from programs import REPOSITORY, SAMPLE, minitaw, output_of, refusal_of, says
from samples import SEEN, made


def test_each_setting_of_a_file_has_one_meaning():
    meanings = [*settings.MODEL, *settings.WORK, *settings.BATCH, *settings.VARIANT]
    meanings += [*settings.EFFORT, *settings.DERIVED]
    assert sorted(meanings) == sorted(SEEN.file[0].settings)
    assert set(settings.TOLD) <= set(meanings)


def test_columns_and_units_are_those_of_the_file():
    with sealed.opened(SAMPLE) as stored:
        columns = record.columns_of(stored["runs"])
        units = [(name, column.attrs["units"]) for name, column in columns.items()]
    assert list(SEEN.file[0].units.items()) == units
    assert list(SEEN)[: len(units)] == [name for name, _ in units]


def test_figures_of_a_run():
    run, failed, file = SEEN.iloc[4], SEEN.iloc[6], SEEN.file[0]
    assert run.median_s == 2.25 and list(record.samples(run)) == [0.75, 1.75, 2.75, 3.75]
    assert len(record.array(run, "losses")) == 5 and record.array(run, "none").size == 0
    assert record.labels(run, "memory/measured")[:2] == ["weights", "gradients"]
    assert run.valid and record.session_of(run) is file.sessions[2]
    assert run.doubt.startswith("noisy: quartiles") and record.tokens_of(run) == 12 * 512
    assert not failed.valid and record.reason_of(failed) == "error: out of memory"
    assert file.verdict.startswith("INVALID: 1 of 7 ") and len(file.figures_of_merit) == 1


def test_transfers_are_inside_of_groups_or_between():
    """By kind; the pairs of the sample send 0 to 4, 5 to 9, ... 40 to 44."""
    found = record.transfers(SEEN.iloc[0]).groupby(["between", "kind"]).counted.sum()
    kinds = record.labels(SEEN.iloc[0], "time/exposed_by_kind")
    assert found[True].to_dict() == dict(zip(kinds, [60, 64, 68, 72, 76]))
    assert found[False].to_dict() == dict(zip(kinds, [120, 125, 130, 135, 140]))
    assert (SEEN.bytes_inside[0], SEEN.bytes_between[0]) == (650, 340)


def test_codes_come_as_names():
    kinds = ["F", "send", "recv", "broadcast", "update"]
    assert list(record.array(SEEN.iloc[0], "timeline/kind")) == kinds
    strange = record.load(made("codes.h5", (0, {}, {"timeline/kind": [99] * 5}))).iloc[0]
    says(refusal_of(record.array, strange, "timeline/kind"), "codes.h5", "damaged")


def test_a_case_is_what_its_repetitions_say():
    """Of a run that was tried again the last counts."""

    def of_three(repetition, rate):
        row = dict(case=0, repetition=repetition, repeats=3, samples=4)
        return (0, row | dict(tokens_per_s=rate), {}) if rate else (6, row, {})

    runs = [of_three(0, 10.0), of_three(1, None), (1, dict(case=1, repeats=2), {})]
    runs += [of_three(2, 40.0), of_three(1, 20.0), (6, dict(case=2), {})]
    table = record.load(made("cases.h5", *runs))
    assert list(zip(table.case, table.repetition)) == [(0, 0), (0, 1), (1, 0), (0, 2), (2, 0)]
    assert list(table.run) == [0, 4, 2, 3, 5]
    first, *others = record.rows_of(record.cases(table))
    assert first.valid and (first.tokens_per_s, first.samples, len(first.runs)) == (20, 12, 3)
    verdicts = ["INVALID: 1 of 2 repetitions", "INVALID: error: out of memory"]
    assert [case.verdict for case in others] == verdicts
    case = record.cases(record.load(made("broken.h5", *runs, of_three(0, None)))).iloc[0]
    assert (case.valid, case.tokens_per_s) == (False, 30)  # the median of its valid runs


def test_a_later_session_may_ask_for_more_repetitions():
    runs = [(0, dict(case=0, repetition=n, repeats=asked), {}) for n, asked in enumerate((1, 3))]
    (case,) = record.rows_of(record.cases(record.load(made("more.h5", *runs))))
    assert case.verdict == "INVALID: 2 of 3 repetitions"


def test_several_files_have_letters():
    found = record.load_all([SAMPLE, SAMPLE])
    assert "".join(file.letter for file in found.file) == "AAAAAAABBBBBBB"
    assert list(record.cases(found).label)[5:9] == ["A5", "A6", "B0", "B1"]
    says(refusal_of(record.load_all, [SAMPLE, made("empty.h5")]), "empty.h5 holds no run")


def test_committed_records_open():
    """Columns and figures of all runs by `show` are those by scripts."""
    records = {path.name: path.read_bytes() for path in (REPOSITORY / "results").rglob("*.h5")}
    for path in (REPOSITORY / "results").rglob("*.tar.gz"):
        records |= archive.unpack(path)
    assert records
    for name, content in records.items():
        pathlib.Path(name).write_bytes(content)
        runs = record.load(name)
        assert runs.file[0].verdict.startswith("VALID"), name
        text = io.StringIO(output_of(minitaw("show", "--csv", name)))
        kinds = [runs[column].dtype for column in runs.file[0].units]
        shown = pandas.read_csv(text, keep_default_na=False, na_values={}, dtype=str)
        assert [title.partition(" [")[0] for title in shown] == list(runs.file[0].units), name
        for title, column, kind in zip(shown, runs, kinds):
            values = shown[title].replace("", "nan") if kind == float else shown[title]
            assert values.astype(kind).equals(runs[column]), (name, column)
