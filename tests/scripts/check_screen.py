# SPDX-License-Identifier: BSD-3-Clause
"""minitaw screen on a cluster: what is shaped between two nodes is measured between these two, by
its rate and its latency. Called with the repository and the program. Ends with 77 where no
namespaces can be had. Which value is whose: screen_probe. What is said of such values:
screen_judge."""

import json
import pathlib
import sys

import programs

REPOSITORY, MINITAW = map(pathlib.Path, sys.argv[1:])
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


def quantities_of(found):
    return {quantity["name"]: quantity for quantity in found["quantities"]}


if "namespaces" in call("true").stderr:
    sys.exit(SKIPPED)
done = call(MINITAW, "screen", "--seconds", "0.02", "--rounds", "2")
assert done.returncode in (0, 1, 3), done
assert "VERDICT: " in done.stdout, done
assert "links         = shaped, nodes=3 " in done.stdout, done
done = call(MINITAW, "screen", "--seconds", "0.02", "--rounds", "2", "--json")
found = json.loads(done.stdout)
assert list(found)[:4] == [*programs.JSON_HEAD, "verdict"], found
rates = quantities_of(found)["rate between nodes"]
# 5 Mbit/s are 0.625 MB/s, 100 Mbit/s 12.5; a burst passes at once. A busy machine leaves at least a
# sixth of the others' rates.
assert 0 < rates["lowest"] < 0.8e6, rates
assert rates["median"] > 3 * rates["lowest"], rates
assert rates["highest"] < 19e6, rates
assert 0 < quantities_of(found)["latency between nodes"]["lowest"], found
named = {
    (culprit["kind"], *culprit["ranks"])
    for culprit in found["culprits"]
    if any(e["quantity"].startswith("rate between nodes") for e in culprit["evidence"])
}
# Beside other programs the noise may be too large for a name.
assert ("link", 0, 4) in named or found["loaded_ranks"], found

TWO = ("--nodes", "2", "--ranks-per-node", "1", "--rate", "100mbit", "--latency", "20ms")
words = ("screen", "--json", "--rounds", "2", "--seconds", "0.2")
done = programs.call(CLUSTER[0], *TWO, "--", MINITAW, *words)
found = quantities_of(json.loads(done.stdout))
assert 0.020 <= found["latency between nodes"]["lowest"] < 0.030, found
assert 6e6 < found["rate between nodes"]["median"] < 19e6, found
