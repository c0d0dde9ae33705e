# SPDX-License-Identifier: BSD-3-Clause
"""Reads a result file knowing nothing but docs/results.md: every dataset that the page names is
there with the shape and the units it says, and nothing else is."""

import re
import sys

import h5py
import numpy
import pandas
from programs import MEMORY_KINDS


def documented(page):
    """{path: (shape, units, setting)} from the tables of the page."""
    rows = {}
    for line in open(page, encoding="utf-8"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if re.match(r"`/[^`]+`$", cells[0]):
            rows[cells[0].strip("`")] = (cells[1], cells[2], cells[3] == "yes")
    return rows


def check_table(rows, table):
    """The table by which files are checked says of every dataset what the page says: path, units
    and axes."""
    said = {}
    for line in filter(lambda line: line.strip() and line[0] != "#", open(table, encoding="utf-8")):
        path, _, units, shape, _ = line.split()
        axes = shape.rstrip("!").split(",")
        said["/" + path.replace("setting/", "summary/")] = (
            units,
            "scalar" if shape == "-" else f"[{', '.join(axes)}]",
            path.startswith("setting/"),
        )
    page = {path: (units, shape, setting) for path, (shape, units, setting) in rows.items()}
    for path, (units, shape, setting) in page.items():
        if said[path][1] == "[*]":
            shape = "[*]" if shape.startswith("[") and "," not in shape else shape
        assert said[path] == (
            units,
            shape,
            setting,
        ), f"{path}: {said[path]} in the table, {(units, shape, setting)} on the page"
    assert said.keys() == page.keys(), said.keys() ^ page.keys()


MAY_BE_MISSING = "timeline"  # group of a case: of `run --timeline`


def expand(rows, file):
    """The page's paths with the numbers that this file has instead of NNNN."""
    full = {}
    for path, (shape, units, _) in rows.items():
        if path.startswith("/cases/"):
            for case in file["cases"]:
                here = path.replace("NNNN", case)
                group = path.split("/")[3]
                if group == MAY_BE_MISSING and group not in file["cases"][case]:
                    continue
                full[here] = (shape, units)
        elif path.startswith("/provenance/"):
            full[path] = (shape, units)
            for session in file["provenance/resumed"]:
                full[path.replace("/provenance", f"/provenance/resumed/{session}")] = (shape, units)
        else:
            full[path] = (shape, units)
    return full


def sizes(file, path):
    """Values of the letters of the page for the case that a path belongs to."""
    known = {"C": len(file["cases"])}
    case = re.match(r"/cases/(\d+)/", path)
    if case:
        columns = {name: column[int(case[1])] for name, column in file["summary"].items()}
        known |= {
            "P": columns["ranks"],
            "T": columns["steps"],
            "R": columns["repeats"],
            "W": columns["warmup"],
            "K": columns["steps"] * columns["repeats"],
        }
    return known


def check_shape(file, path, dataset, shape):
    if shape == "scalar":
        assert dataset.shape == (), f"{path}: shape {dataset.shape}, a scalar is documented"
        return
    axes = [axis.strip() for axis in shape.strip("[]").split(",")]
    assert len(dataset.shape) == len(axes), f"{path}: shape {dataset.shape}, documented {shape}"
    assert "axes" in dataset.attrs, f"{path}: no attribute axes"
    known = sizes(file, path)
    for length, axis in zip(dataset.shape, axes):
        names = re.findall(r"[A-Za-z]+", axis)
        if dataset.size == 0 or not all(name in known for name in names):
            continue  # nothing was measured, or the page gives no number for it
        expected = eval(
            axis, {}, {name: int(known[name]) for name in names}
        )  # the page is ours: "W + K"
        assert length == expected, f"{path}: {length} along {axis} = {expected}"
    if axes[-1].isdigit():
        assert len(dataset.attrs["labels"]) == int(axes[-1]), f"{path}: labels do not fit"


def check(page, name, table):
    rows = documented(page)
    assert len(rows) > 80, "the tables of the page were not found"
    check_table(rows, table)
    with h5py.File(name) as file:
        assert file.attrs["format"] == "minitaw" and file.attrs["schema"] == 4
        expected = expand(rows, file)
        found = {}
        file.visititems(
            lambda path, item: (
                found.update({"/" + path: item}) if isinstance(item, h5py.Dataset) else None
            )
        )
        assert (
            set(expected) - set(found) == set()
        ), f"documented, but missing: {sorted(set(expected) - set(found))}"
        assert (
            set(found) - set(expected) == set()
        ), f"not documented: {sorted(set(found) - set(expected))}"
        for path, (shape, units) in expected.items():
            assert (
                found[path].attrs["units"] == units
            ), f"{path}: units {found[path].attrs['units']}, documented {units}"
            check_shape(file, path, found[path], shape)
        check_contents(file)
        check_values(file)
    print(f"{len(expected)} datasets agree with the page")


def check_contents(file):
    """The recipe of the page makes a table of it whose figures follow from the samples."""
    table = pandas.DataFrame(
        {
            name: column.asstr()[:] if column.attrs["units"] == "text" else column[:]
            for name, column in file["summary"].items()
        }
    )
    assert len(table) == 7, table
    assert list(table.case) == list(range(7)), table
    assert list(table.session) == [0, 0, 1, 1, 2, 2, 3], table
    assert list(table.status) == ["ok"] * 6 + ["error"]
    for row in table[table.status == "ok"].itertuples():
        case = file[f"cases/{row.case:04}"]
        samples = case["seconds"][:].max(axis=1)
        assert row.median_s == pandas.Series(samples).median()
        assert row.q1_s == pandas.Series(samples).quantile(0.25)
        assert (
            row.memory_measured
            == (case["memory/measured"][:].sum(axis=1) + case["memory/other"][:]).max()
        )
        assert row.last_loss == case["losses"][-1]
        time = {name: part[()] for name, part in case["time"].items()}
        parts = time["compute"] + time["exposed_by_kind"].sum(axis=1) + time["idle"]
        assert (abs(parts - time["length"]) < 1e-12).all()
        assert abs(row.idle_share - time["idle"].mean() / time["length"]) < 1e-12
        assert abs(row.overlap - time["hidden"].sum() / time["communication"].sum()) < 1e-12
        assert ("timeline" in case) == (row.schedule == "tawpipe")
    assert table.median_s.isna().sum() == 1


RANKS = range(3)
STEPS = range(4)
KINDS = {
    "memory": MEMORY_KINDS,
    "bytes": ["weights", "gradients", "activations", "embeddings", "context"],
}
# Of case 2: what write_sample.cpp makes up, here by its rule once more.
VALUES = {
    "losses": [3, 2.875, 2.75, 2.625, 2.5],
    "repetition": [0] * 4,
    "position": [3],
    "idle_ticks": [0, 1, 2],
    "seconds": [[0.5 + s, 0.25 + s, 0.75 + s] for s in STEPS],
    "memory/planned": [[1000 * (r + 1) + k for k in range(7)] for r in RANKS],
    "memory/measured": [[2000 * (r + 1) + k for k in range(7)] for r in RANKS],
    "memory/other": [300 + r for r in RANKS],
    "memory/process_begin": [40000 + r for r in RANKS],
    "memory/process_peak": [50000 + r for r in RANKS],
    "time/step": 1,
    "time/length": 1.25,
    "time/compute": [0.5] * 3,
    "time/communication": [0.75] * 3,
    "time/exposed_by_kind": [[0.125, 0.0625 * r, 0.0625, 0.1875, 0] for r in RANKS],
    "time/idle": [0.375 - 0.0625 * r for r in RANKS],
    "time/hidden": [0.25 * r for r in RANKS],
    "bytes/planned": [[[5 * (3 * a + b) + k for k in range(5)] for b in RANKS] for a in RANKS],
}
TEXTS = {
    "matmul_algorithms": (
        "bf16 to bf16, m 8, n 8, k 8: algorithm 2 of 3, 4.1 % faster than the first"
    ),
    "window/begin": "2026-07-18T09:30:00.250Z",
    "window/end": "2026-07-18T09:30:10.750Z",
}


def check_values(file):
    """Every number and text of a case is where the page says."""
    case = file["cases/0002"]
    for name, text in TEXTS.items():
        (found,) = numpy.atleast_1d(case[name].asstr()[()])
        assert found == text, f"{name}: {found}"
    for name, values in VALUES.items():
        found = case[name][()]
        assert numpy.shape(found) == numpy.shape(values), f"{name}: {found}"
        assert numpy.allclose(found, values, rtol=0, atol=1e-12), f"{name}: {found}"
    assert (file["cases/0006/bytes/counted"][:] == file["cases/0006/bytes/planned"][:] + 100).all()
    for name in ("memory/planned", "memory/measured"):
        assert [*case[name].attrs["labels"]] == KINDS["memory"], name
    for name in ("time/exposed_by_kind", "bytes/planned", "bytes/counted"):
        assert [*case[name].attrs["labels"]] == KINDS["bytes"], name


check(*sys.argv[1:])
