# SPDX-License-Identifier: BSD-3-Clause
"""Runs the examples of docs/results.md as they stand there, on a sample, and checks what they give.
Called with the page, a sample and the libraries that the examples may use."""

import re
import sys

import h5py
from programs import MEMORY_KINDS

PAGE, SAMPLE, *LIBRARIES = sys.argv[1:]


def recipes():
    """{libraries that it imports: code} of every block in Python."""
    text = open(PAGE, encoding="utf-8").read()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return {tuple(re.findall(r"^import (\w+)$", block, re.MULTILINE)): block for block in blocks}


def run(block):
    """What the block leaves; it reads the sample instead of FILE.h5."""
    assert block.count('"FILE.h5"') == 1, block
    names = {}
    exec(compile(block.replace('"FILE.h5"', repr(SAMPLE)), PAGE, "exec"), names)
    return names


def check_h5py(found, file):
    case = file["cases/0000"]
    assert found["schedule"] == "tawpipe" and found["units"] == "s"
    assert (found["samples"] == case["seconds"][:].max(axis=1)).all() and len(found["samples"]) == 4
    assert list(found["memory"]) == MEMORY_KINDS
    assert found["memory"]["buffers"] == case["memory/measured"][:, 4].max() > 0


def check_pandas(found, file):
    table, medians = found["table"], found["medians"]
    assert len(table) == len(file["cases"]) and len(found["valid"]) == 6
    assert (medians.to_numpy() == table.median_s.dropna().to_numpy()).all() and len(medians) == 6
    assert (
        found["rates"].loc[256, "ddp"]
        == table[(table.seq == 256) & (table.schedule == "ddp")].tokens_per_s.iloc[0]
    )
    assert len(found["by_repetition"]) == sum(
        len(set(case["repetition"][:])) for case in file["cases"].values()
    )


def check_xarray(found, file):
    measured = file["cases/0000/memory/measured"][:]
    assert int(found["worst"]) == measured.sum(axis=1).max()
    assert found["memory"].measured.dims == ("rank", "kind")
    assert found["memory"].measured.attrs["units"] == "B" and "planned" in found["memory"]
    assert found["weights"].dims == ("from rank", "to rank") and found["as_planned"]
    assert (found["weights"].to_numpy() == file["cases/0000/bytes/counted"][:, :, 0]).all()


CHECKS = {("h5py",): check_h5py, ("h5py", "pandas"): check_pandas, ("h5py", "xarray"): check_xarray}
blocks = recipes()
assert set(blocks) == set(CHECKS), f"examples with {list(blocks)}, checks for {list(CHECKS)}"
with h5py.File(SAMPLE) as sample:
    for libraries, block in blocks.items():
        if set(libraries) <= {"h5py", "pandas", *LIBRARIES}:
            CHECKS[libraries](run(block), sample)
            print("ran the example with", " and ".join(libraries))
        else:
            print("left out the example with", " and ".join(libraries))
