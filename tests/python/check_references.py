# SPDX-License-Identifier: BSD-3-Clause
"""Every record in results/ opens: `minitaw show` and scripts agree on it, and a comparison finds
all of its cases. Called with the repository, the sample, a folder and the program.
"""

import csv
import io
import json
import math
import sys

from support import FOLDER, REPOSITORY, accepted, run_checks
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


def value_of(text, like):
    """Of a field of CSV."""
    if isinstance(like, float):
        return float(text or "nan")
    return type(like)(text)


def check_records():
    """Cases, verdict and all figures by `show` are those by scripts."""
    assert RECORDS
    for path in RECORDS:
        result = record.load(path)
        done = programs.call(PROGRAM, "show", "--json", path)
        assert done.returncode == 0 and done.stderr == "", (path, done.stderr)
        rows = json.loads(done.stdout)
        titles, *lines = csv.reader(
            io.StringIO(programs.call(PROGRAM, "show", "--csv", path).stdout)
        )
        assert [title.partition(" [")[0] for title in titles] == list(result.units)
        assert result.verdict.startswith("VALID") and len(rows) == len(result.cases) > 0, path
        for row, line, case in zip(rows, lines, result.cases, strict=True):
            assert list(row) == list(case.row), path
            for (name, value), text in zip(row.items(), line, strict=True):
                shown = math.nan if value is None else value
                for found in (shown, value_of(text, shown)):
                    both_nan = found != found and case[name] != case[name]
                    assert both_nan or found == case[name], (path, case["case"], name)


def check_comparisons():
    for path in RECORDS:
        found = json.loads(accepted("compare", path, path, "--json", "--threshold", "off"))
        words = {
            aspect["word"]
            for case in found["cases"]
            for name, aspect in case["aspects"].items()
            if name != "time"
        }
        assert len(found["cases"]) == len(record.load(path).cases), path
        assert not found["only_base"] + found["only_new"], path
        assert words <= {"SAME", "VALID", ""} and found["outcome"] in ("same", "ambiguous"), (
            path,
            words,
            found["comparison"],
        )


run_checks(globals())
