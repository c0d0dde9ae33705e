# SPDX-License-Identifier: BSD-3-Clause
"""docs/results.md, a result file and the program say the same: the page has the tables that the
program prints, the file the datasets of these tables, and each value lies where they say.
Called with the page, the sample and minitaw."""

import re
import subprocess
import sys

import h5py
import numpy

PAGE, SAMPLE, MINITAW = sys.argv[1:]
RUN = "0002"  # of the sample, with a timeline
RANKS, STEPS = range(3), range(4)
MEMORY = ["weights", "gradients", "optimiser", "activations", "buffers", "tokens", "context"]
TRAFFIC = ["weights", "gradients", "activations", "embeddings", "context"]
LABELS = {"memory/planned": MEMORY, "memory/measured": MEMORY, "time/exposed_by_kind": TRAFFIC}
# What write_sample.cpp makes up, here by its rule once more.
VALUES = {
    "losses": [3, 2.875, 2.75, 2.625, 2.5],
    "idle_ticks": [0, 1, 2],
    "seconds": [[0.5 + s, 0.25 + s, 0.75 + s] for s in STEPS],
    "memory/planned": [[1000 * (r + 1) + k for k in range(7)] for r in RANKS],
    "memory/measured": [[2000 * (r + 1) + k for k in range(7)] for r in RANKS],
    "memory/other": [300 + r for r in RANKS],
    "memory/process_begin": [40000 + r for r in RANKS],
    "memory/process_peak": [50000 + r for r in RANKS],
    "time/compute": [0.5] * 3,
    "time/communication": [0.75] * 3,
    "time/exposed_by_kind": [[0.125, 0.0625 * r, 0.0625, 0.1875, 0] for r in RANKS],
    "time/idle": [0.375 - 0.0625 * r for r in RANKS],
    "time/hidden": [0.25 * r for r in RANKS],
    "bytes/from": [i // 15 for i in range(45)],
    "bytes/to": [i // 5 % 3 for i in range(45)],
    "bytes/kind": [i % 5 for i in range(45)],
    "bytes/planned": range(45),
    "bytes/counted": range(45),
    "timeline/rank": [0, 0, 2, 1, 2],
    "timeline/ready": [0, 0.125, 0, 0.0625, 0.75],
    "timeline/end": [0.5, 0.75, 0.75, 1.25, 1.0625],
}


def said_by_the_program():
    """{path: (axes, units)}; the page has each line."""
    words = [MINITAW, "help", "results"]
    tables = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    page = open(PAGE, encoding="utf-8").read()
    found = {}
    for line in tables.splitlines():
        assert line in page, f"minitaw help results has this line, {PAGE} not: {line}"
        if row := re.match(r"\| `/([^`]+)` \| \[?([^|]*?)\]? \| ([^|]+) \|", line):
            found[row[1].replace("NNNN", RUN if row[1].startswith("runs") else "0000")] = (
                row.groups()[1:]
            )
    on_page = re.findall(r"^\| `/[^`]+` \|", page, re.MULTILINE)
    assert len(on_page) == len(found), "the page has a dataset that the program does not name"
    return found


def datasets_of(file):
    """Those of one run and one session, and the columns."""
    found = {}

    def add(path, item):
        is_other = re.match(r"(runs|sessions)/\d+/", path) and not re.match(
            rf"(runs/{RUN}|sessions/0000)/", path
        )
        if isinstance(item, h5py.Dataset) and not is_other:
            found[path] = item

    file.visititems(add)
    return found


said = said_by_the_program()
with h5py.File(SAMPLE) as file:
    found = datasets_of(file)
    assert found.keys() == said.keys(), found.keys() ^ said.keys()
    for path, dataset in found.items():
        axes, units = said[path]
        attributes = dataset.attrs.get("axes", ""), dataset.attrs["units"]
        assert attributes == (axes, units), f"{path}: {attributes}, said {(axes, units)}"
        assert dataset.ndim == len(axes.split(", ")) * bool(axes), path
        assert dataset.attrs["doc"], path
    run = file[f"runs/{RUN}"]
    for name, values in VALUES.items():
        values = numpy.array(values)
        assert run[name].shape == values.shape, f"{name}: {run[name].shape}"
        assert numpy.allclose(run[name], values, rtol=0, atol=1e-12), f"{name}: {run[name][:]}"
    for name, labels in LABELS.items():
        assert [*run[name].attrs["labels"]] == labels, name
    assert [*run["bytes/kind"].attrs["codes"]] == TRAFFIC
    assert (file["runs/0006/bytes/counted"][:] == numpy.arange(45) + 100).all()
    assert [*file["runs/session"]] == [0, 0, 1, 1, 2, 2, 3]
    settings = [*file["runs"].attrs["settings"]]
    assert "schedule" in settings and "median_s" not in settings
print(f"{len(said)} datasets agree with the page")
