# SPDX-License-Identifier: BSD-3-Clause
"""Sound result files as tables. Others: test_hostile.py."""

import io
import pathlib

import pandas
from minitaw import archive, record, settings
from programs import REPOSITORY, SAMPLE, minitaw, output_of, refusal_of, says
from samples import SEEN, made


def test_each_setting_of_a_file_has_one_meaning():
    meanings = [*settings.MODEL, *settings.WORK, *settings.BATCH, *settings.VARIANT]
    meanings += [*settings.EFFORT, *settings.DERIVED]
    assert sorted(meanings) == sorted(SEEN.file[0].settings)
    assert set(settings.TOLD) <= set(meanings)


def test_figures_of_a_run():
    run, failed = SEEN.iloc[4], SEEN.iloc[6]
    assert run.median_s == 2.25
    assert list(record.samples(run)) == [0.75, 1.75, 2.75, 3.75]
    assert run.valid
    assert record.session_of(run) is run.file.sessions[2]
    assert run.doubt.startswith("noisy: quartiles")
    assert record.tokens_of(run) == 12 * 512
    assert not failed.valid
    assert record.reason_of(failed) == "error: out of memory"
    assert record.array(run, "none").size == 0


def test_a_code_without_a_name_is_damage():
    strange = record.load(made("codes.h5", {"timeline/kind": [99] * 5})).iloc[0]
    says(refusal_of(record.array, strange, "timeline/kind"), "codes.h5", "damaged")


def test_a_case_is_what_its_repetitions_say():
    """Of a run that was tried again the last counts, and a later session may ask for more."""

    def of_three(repetition, **changed):
        return dict(case=0, repetition=repetition, repeats=3, samples=4) | changed

    runs = [of_three(0, tokens_per_s=10.0), of_three(1, base=6), dict(case=1, repeats=1)]
    runs += [of_three(2, tokens_per_s=40.0), of_three(1, tokens_per_s=20.0), dict(base=6, case=2)]
    runs += [of_three(1, case=1)]
    table = record.load(made("cases.h5", *runs))
    assert list(table.case) == [0, 0, 1, 0, 2, 1]
    assert list(table.repetition) == [0, 1, 0, 2, 0, 1]
    assert list(table.run) == [0, 4, 2, 3, 5, 6]
    first, *others = record.rows_of(record.cases(table))
    assert first.valid
    assert (first.tokens_per_s, first.samples, len(first.runs)) == (20, 12, 3)
    verdicts = ["INVALID: 2 of 3 repetitions", "INVALID: error: out of memory"]
    assert [case.verdict for case in others] == verdicts
    case = record.cases(record.load(made("broken.h5", *runs, of_three(0, base=6)))).iloc[0]
    assert (case.valid, case.tokens_per_s) == (False, 30)  # the median of its valid runs


def test_an_empty_file_is_refused():
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
