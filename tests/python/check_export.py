# SPDX-License-Identifier: BSD-3-Clause
"""scripts/export as other programs use it: CSV and JSON that pandas reads with their units, samples
in long form, output that cannot be written."""

import csv
import io
import json
import os
import subprocess
import sys

import files
import h5py
import numpy
import pandas
from support import FOLDER, REPOSITORY, SAMPLE, accepted, process, programs, run_checks


def output(*arguments):
    return accepted("export", SAMPLE, *arguments)


def without_units(table):
    return [title.partition(" [")[0] for title in table.columns]


def check_cases():
    table, same = pandas.read_csv(io.StringIO(output())), pandas.read_json(
        io.StringIO(output("--json"))
    )
    assert without_units(table) == list(same.columns) and len(table) == len(same) == 7
    assert '"median_s": null' in output("--json"), "NaN is no JSON"
    assert table["median_s [s]"][4] == same["median_s"][4] == 2.25
    assert table["median_s [s]"].isna()[6]
    with h5py.File(SAMPLE) as file:
        for name, column in file["summary"].items():
            units = column.attrs["units"]
            assert (name if units in ("1", "text") else f"{name} [{units}]") in table.columns


def check_samples():
    table, same = (
        pandas.read_csv(io.StringIO(output("--samples"))),
        pandas.read_json(io.StringIO(output("--json", "--samples"))),
    )
    assert without_units(table) == list(same.columns) and len(table) == len(same)
    with h5py.File(SAMPLE) as file:
        assert len(table) == sum(case["seconds"].size for case in file["cases"].values())
        for number, rows in table.groupby("case"):
            case = file[f"cases/{number:04}"]
            assert (
                rows["seconds [s]"].to_numpy().reshape(case["seconds"].shape) == case["seconds"][:]
            ).all()
            assert (
                rows["power [W]"].to_numpy().reshape(case["seconds"].shape)
                == case["device/power"][:]
            ).all()
            assert (rows["rank"].unique() == range(case["seconds"].shape[1])).all()
    medians = (
        table.groupby(["case", "repetition", "step"])["seconds [s]"].max().groupby("case").median()
    )
    summary = pandas.read_csv(io.StringIO(output())).set_index("case")["median_s [s]"].dropna()
    assert (medians == summary).all()
    first = json.loads(output("--samples", "--json"))[0]
    assert first["schedule"] == next(csv.DictReader(io.StringIO(output())))["schedule"]
    assert "identity" not in first


def check_repetitions():
    """Each has its position, its steps from 0 on, and the energy of each rank; all else is of a
    step."""
    of_step = {
        f"device/{name}": [
            [1000 * first + 10 * step + rank for rank in range(3)] for step in range(5)
        ]
        for first, name in enumerate(("clock", "memory_clock", "temperature", "power"))
    }
    made = files.make(
        SAMPLE,
        FOLDER / "repeated.h5",
        [
            (
                0,
                {},
                of_step
                | {
                    "seconds": numpy.ones((5, 3)),
                    "repetition": [0, 0, 1, 1, 1],
                    "position": [4, 2],
                    "device/energy": [[7, 8, 9], [70, 80, 90]],
                    "device/throttle": numpy.zeros((5, 3), int),
                },
            )
        ],
    )
    rows = (
        pandas.read_csv(io.StringIO(accepted("export", made, "--samples")))
        .iloc[:, -11:]
        .to_numpy()
        .tolist()
    )
    assert rows == [
        [
            repetition,
            position,
            step,
            rank,
            1,
            *(1000 * first + 10 * sample + rank for first in range(4)),
            0,
            joules[rank],
        ]
        for sample, (repetition, position, step, joules) in enumerate(
            [
                (0, 4, 0, (7, 8, 9)),
                (0, 4, 1, (7, 8, 9)),
                *((1, 2, step, (70, 80, 90)) for step in range(3)),
            ]
        )
        for rank in range(3)
    ], rows


def check_refusals():
    for arguments in ([], ["--json", "--samples"]):
        with open("/dev/full", "w") as full:
            done = process("export", SAMPLE, *arguments, stdout=full)
        programs.refused(done, "standard output", "No space left", name="export", begun=True)


def check_pipe():
    """A reader that has seen enough: the end is quiet."""
    called = subprocess.Popen(
        [sys.executable, REPOSITORY / "scripts/export", SAMPLE, "--json", "--samples"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    called.stdout.close()
    complaint = called.stderr.read()
    assert called.wait() in (0, -13) and complaint == b"", (called.returncode, complaint)


def check_help():
    """Every script explains itself."""
    for path in sorted((REPOSITORY / "scripts").iterdir()):
        if path.is_file() and os.access(path, os.X_OK):
            done = process(path.name, "--help", stdin=subprocess.DEVNULL)
            assert done.returncode == 0, (path, done)
            assert path.name in done.stdout, (path, done)
            assert len(done.stdout.splitlines()) > 1, (path, done)


run_checks(globals())
