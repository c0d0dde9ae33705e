# SPDX-License-Identifier: BSD-3-Clause
"""Runs the examples of docs/results.md as they stand there, on a sample, and checks what they give.
Called with the page, a sample and the libraries that the examples may use."""

import re
import sys

import h5py

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
    assert found["schedule"] == "tawpipe" and found["units"] == "s"
    assert list(found["samples"]) == [0.75, 1.75, 2.75, 3.75]


def check_pandas(found, file):
    runs, valid = found["runs"], found["valid"]
    assert len(runs) == 7 and len(valid) == 6
    of_ddp = (runs.seq == 256) & (runs.schedule == "ddp")
    assert found["rates"].loc[256, "ddp"] == runs.tokens_per_s[of_ddp].item()
    assert (found["spread"]["median"].to_numpy() == valid.median_s.to_numpy()).all()


def check_xarray(found, file):
    measured = file["runs/0000/memory/measured"][:]
    assert int(found["worst"]) == measured.sum(axis=1).max()
    assert found["memory"].dims == ("rank", "kind") and found["memory"].attrs["units"] == "B"
    to, counted = (file[f"runs/0000/bytes/{name}"][:] for name in ("to", "counted"))
    assert int(found["to_rank_1"]) == counted[to == 1].sum() > 0 and found["as_planned"]


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
