# SPDX-License-Identifier: BSD-3-Clause
"""minitaw screen on a cluster: what is shaped between two nodes is measured between these two, by
its rate and its latency. Called with the repository, a folder to write to and the program. Ends
with 77 where no namespaces can be had. What is said of such values: miniapp_screen, screen_judge.
"""

import json
import pathlib
import sys

import h5py
import numpy
import programs

REPOSITORY, FOLDER, MINITAW = map(pathlib.Path, sys.argv[1:])
CLUSTER = [
    REPOSITORY / "scripts/cluster",
    "--nodes",
    "3",
    "--ranks-per-node",
    "2",
    "--rate",
    "100mbit",
    "--slow-pair",
    "0-2=5mbit",
]
SKIPPED = 77


def call(*words):
    return programs.call(*CLUSTER, "--", *words)


FOLDER.mkdir(parents=True, exist_ok=True)
file = FOLDER / "a.h5"
file.unlink(missing_ok=True)
if "namespaces" in call("true").stderr:
    sys.exit(SKIPPED)
done = call(MINITAW, "screen", "--seconds", "0.02", "--rounds", "2", "-o", file)
assert done.returncode in (0, 1, 3), done
assert "VERDICT: " in done.stdout, done
assert "links         = shaped, nodes=3 " in done.stdout, done
with h5py.File(file) as kept:
    rates, latencies = (kept[f"screen/{name}_between_nodes"][()] for name in ("rate", "latency"))
for values in (rates, latencies):  # a node's first rank measures, with each other node
    assert numpy.isnan(values[:, 1::2]).all(), values
    assert (numpy.isnan(values[:, ::2]) == numpy.eye(3, dtype=bool)).all(), values
slow, others = rates[:, [0, 4], [2, 0]], rates[:, [0, 2, 2, 4], [1, 0, 2, 1]]
# 5 Mbit/s are 0.625 MB/s, 100 Mbit/s 12.5; a burst passes at once. A busy machine leaves at least a
# sixth of the others' rates.
assert (0 < slow).all(), rates
assert slow.max() < 0.8e6, rates
assert others.max() < 19e6, rates
assert (others.max(axis=0) > 3 * slow.max()).all(), rates
assert (0 < latencies[:, ::2][~numpy.isnan(latencies[:, ::2])]).all(), latencies

TWO = ("--nodes", "2", "--ranks-per-node", "1", "--rate", "100mbit", "--latency", "20ms")
words = ("screen", "--json", "--rounds", "2", "--seconds", "0.2")
done = programs.call(CLUSTER[0], *TWO, "--", MINITAW, *words)
found = {quantity["name"]: quantity for quantity in json.loads(done.stdout)["quantities"]}
assert 0.020 <= found["latency between nodes"]["lowest"] < 0.030, found
assert 6e6 < found["rate between nodes"]["median"] < 19e6, found
