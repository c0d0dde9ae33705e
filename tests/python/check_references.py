# SPDX-License-Identifier: BSD-3-Clause
"""Every record in results/ opens: `minitaw show` and scripts agree on it. Called with the repository,
the sample, a folder and the program."""

import io
import sys

import pandas
from support import FOLDER, REPOSITORY, run_checks
import programs
from minitaw import archive, record

PROGRAM = sys.argv[4]


def records():
    """All of them, those in archives unpacked."""
    yield from sorted((REPOSITORY / "results").rglob("*.h5"))
    for path in sorted((REPOSITORY / "results").rglob("*.tar.gz")):
        for name, content in archive.unpack(path).items():
            target = FOLDER / f"{path.parent.name}-{name}"
            target.write_bytes(content)
            yield target


RECORDS = list(records())


def check_records():
    """Columns and figures of all runs by `show` are those by scripts."""
    assert RECORDS
    for path in RECORDS:
        runs = record.load(path)
        assert runs.file[0].verdict.startswith("VALID"), path
        text = programs.output_of(programs.call(PROGRAM, "show", "--csv", path))
        shown = pandas.read_csv(
            io.StringIO(text), keep_default_na=False, float_precision="round_trip"
        )
        shown.columns = [title.partition(" [")[0] for title in shown]
        assert list(shown) == list(runs.file[0].units), path
        for name in shown:
            known = runs[name].tolist()
            values = shown[name].replace("", None) if runs[name].dtype == float else shown[name]
            for value, expected in zip(values.tolist(), known, strict=True):
                same = type(expected)(value) == expected if value is not None else False
                assert same or expected != expected, (path, name, value, expected)


run_checks(globals())
