# SPDX-License-Identifier: BSD-3-Clause
"""Every record in results/ opens, whichever program wrote it: `minitaw show` and scripts agree on
its verdict, its bundle is sound, and a comparison finds all of its cases. Called with the
repository, the sample, a folder and the program.
"""

import json
import sys
import tarfile

from support import FOLDER, REPOSITORY, SAMPLE, accepted, run_checks
import files
import h5py
import programs
from minitaw import layout, record, seal

PROGRAM = sys.argv[4]
# What earlier programs did: their gradients had the type of the sample's weights, fp32, and were
# not clipped.
DONE = {
    "grad_dtype": "fp32",
    "clip_norm": 0,
    "bytes_source": "unknown",
    "slowest_rank": -1,
    "process_begin": 0,
}


def unpacked():
    """All records, each with the folder that it is from."""
    for archive in sorted((REPOSITORY / "results").glob("*/*/*.tar.*")):
        target = FOLDER / archive.parent.name
        with tarfile.open(archive) as packed:
            packed.extractall(target, filter="data")
        yield from sorted(target.rglob("*.h5"))


RECORDS = list(unpacked())


def check_bundles():
    bundles = sorted((REPOSITORY / "results").glob("*/*/bundle.tar.gz"))
    assert len(bundles) >= 4, bundles
    for path in bundles:
        said = accepted("bundle", "--check", path)
        assert said.splitlines()[-1].startswith("RESULT: VALID"), (path, said)


def check_records():
    """Cases, verdict and rates by `show` are those by scripts."""
    assert len(RECORDS) >= 51, len(RECORDS)
    for path in RECORDS:
        result = record.load(path)
        done = programs.call(PROGRAM, "show", "--json", path)
        assert done.returncode == 0 and done.stderr == "", (path, done.stderr)
        rows = json.loads(done.stdout)
        assert result.verdict.startswith("VALID") and len(rows) == len(result.cases) > 0, path
        for row, case in zip(rows, result.cases):
            shown = {name: float("nan") if value is None else value for name, value in row.items()}
            assert list(shown) == list(case.row), path
            differ = [
                name for name in shown if shown[name] != case[name] and shown[name] == shown[name]
            ]
            assert not differ, (path, case["case"], differ)


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


def check_what_is_missing():
    """A file without the columns that came later, and without their datasets, is read as if its
    program had done what it did."""
    path = FOLDER / "older.h5"
    path.write_bytes(SAMPLE.read_bytes()[seal.SEAL_BYTES :])
    later = {
        name: entry
        for name, entry in layout.layout().columns.items()
        if entry.missing != "required"
    }
    with h5py.File(path, "r+") as file:
        for name in later:
            del file["summary"][name]
            for case in file["cases"].values():
                case["settings"].pop(name, None)
        for case in file["cases"].values():
            for name, entry in layout.layout().of_case.items():
                if (
                    entry.missing != "required"
                    and name in case
                    and not name.startswith("timeline/")
                ):
                    del case[name]
        for name in ("columns", "verdict", "figures_of_merit"):
            del file["summary"].attrs[name]
    files.write_seal(path)
    older, same = record.load(path), record.load(SAMPLE)
    shown = json.loads(programs.call(PROGRAM, "show", "--json", path).stdout)
    assert {"grad_dtype", "clip_norm", "process_begin", "slowest_rank", "mfu"} < set(later)
    for case, new, row in zip(older.cases, same.cases, shown, strict=True):
        assert {name: case[name] for name in DONE} == {name: row[name] for name in DONE} == DONE
        assert case["mfu"] != case["mfu"]
        assert row["mfu"] is None
        assert case["energy_source"] == row["energy_source"] != ""
        assert all(
            repr(case[name]) == repr(new[name]) for name in case.row if name not in later
        ), case["case"]
    assert older.verdict.partition(":")[0] == same.verdict.partition(":")[0] == "INVALID"
    assert [merit.split()[0] for merit in older.merits] == [
        merit.split()[0] for merit in same.merits
    ]
    found = json.loads(accepted("compare", path, SAMPLE, "--json"))
    assert len(found["cases"]) == len(same.cases), found["comparison"]
    assert not found["only_base"] + found["only_new"], found["comparison"]


run_checks(globals())
