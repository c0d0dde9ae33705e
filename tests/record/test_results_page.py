# SPDX-License-Identifier: BSD-3-Clause
"""docs/results.md, a result file and the program say the same: the page has the lists that the
program prints, the file the datasets of these lists, and each value lies where they say. And the
examples of the page run as they stand there."""

import re

import h5py
import numpy
import pytest
from programs import MEMORY_KINDS, REPOSITORY, SAMPLE, minitaw, output_of

PAGE = (REPOSITORY / "docs/results.md").read_text(encoding="utf-8")
RUN = "0002"  # of the sample, with a timeline
RANKS, STEPS = range(3), range(4)
TRAFFIC = ["weights", "gradients", "activations", "embeddings", "context"]
# What write_sample.cpp makes up, here by its rule once more.
VALUES = {
    "clocks": [[100, 1784367000.25, 7], [110.5, 1784367010.75, 17.5]],
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


DATASET = re.compile(r"`([^`]+)`(?: \[([^]]+)\])?(?: \(([^)]+)\))?")


def said_by_the_program():
    """{path: (axes, units)}; the page has each list."""
    found = {}
    parts = output_of(minitaw("help", "results")).rstrip().split("\n\n")
    for title, text in zip(parts[::2], parts[1::2]):
        assert f"\n\n{text}\n\n" in PAGE
        group = title.partition(":")[0].removeprefix("/")
        axis = "run" if group == "runs" else ""
        group = group.replace("NNNN", RUN if group.startswith("runs") else "0000")
        for line in text.splitlines():
            named = DATASET.match(line, 2)
            settings = DATASET.findall(line.partition(": ")[2])
            for name, axes, units in [named.groups("")] if named else settings:
                found[f"{group}/{name}"] = axes or axis, units or "1"
    return found


def test_page_program_and_file_name_the_same_datasets():
    said, found = said_by_the_program(), {}
    others = re.compile(rf"runs/(?!{RUN})\d|sessions/(?!0000)\d")

    def add(path, item):
        if isinstance(item, h5py.Dataset) and not others.match(path):
            axes = item.attrs.get("axes", "")
            assert item.ndim == len(axes.split(", ")) * bool(axes) and item.attrs["doc"], path
            found[path] = axes, item.attrs["units"]

    with h5py.File(SAMPLE) as file:
        file.visititems(add)
    assert found == said


def test_values_lie_where_the_page_says():
    with h5py.File(SAMPLE) as file:
        run = file[f"runs/{RUN}"]
        for name, values in VALUES.items():
            assert run[name][:] == pytest.approx(numpy.array(values), rel=0, abs=1e-12), name
        assert [*run["memory/planned"].attrs["labels"]] == MEMORY_KINDS
        assert [*run["time/exposed_by_kind"].attrs["labels"]] == TRAFFIC
        assert [*run["bytes/kind"].attrs["codes"]] == TRAFFIC
        bytes_of_failed = file["runs/0006/bytes"]
        assert (bytes_of_failed["planned"][0], bytes_of_failed["counted"][0]) == (100, 101)
        assert [*file["runs/session"]] == [0, 0, 1, 1, 2, 2, 3]
        settings = [*file["runs"].attrs["settings"]]
    assert "schedule" in settings and "median_s" not in settings


# The examples.


def with_h5py(found, file):
    assert found["schedule"] == "tawpipe" and found["units"] == "s"
    assert list(found["samples"]) == [0.75, 1.75, 2.75, 3.75]


def with_pandas(found, file):
    runs, valid = found["runs"], found["valid"]
    assert len(runs) == 7 and len(valid) == 6
    of_ddp = (runs.seq == 256) & (runs.schedule == "ddp")
    assert found["rates"].loc[256, "ddp"] == runs.tokens_per_s[of_ddp].item()
    assert (found["spread"]["median"].to_numpy() == valid.median_s.to_numpy()).all()


EXAMPLES = {
    re.findall(r"^import (\w+)$", block, re.MULTILINE)[-1]: block
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
}
CHECKS = {"h5py": with_h5py, "pandas": with_pandas}


@pytest.mark.parametrize("library", CHECKS)
def test_the_examples_of_the_page_run(library):
    assert list(EXAMPLES) == list(CHECKS)
    pytest.importorskip(library)
    block, found = EXAMPLES[library], {}
    assert block.count('"FILE.h5"') == 1
    exec(block.replace('"FILE.h5"', repr(str(SAMPLE))), found)
    with h5py.File(SAMPLE) as file:
        CHECKS[library](found, file)
