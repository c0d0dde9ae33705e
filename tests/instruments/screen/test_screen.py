# SPDX-License-Identifier: BSD-3-Clause
"""minitaw screen on three ranks. What is said of known values: screen/test_screening.cpp."""

import json
import pathlib
import socket

import pytest
from programs import MINITAW, MPIEXEC, call, minitaw, on_ranks, refused, says, told

QUICK = "--rounds=2", "--seconds=0.01"
MACHINE = """
nodes = 1
ranks_per_node = 3
inside.rate = "9 GB/s"
device.memory_rate = "1300 TB/s"
device.fp32.products = [["1 MFLOP", "1 kFLOP/s"], ["100 GFLOP", "1 kFLOP/s"]]
"""


def test_json_has_what_is_measured_found_and_expected():
    """No memory is as fast as a machine file says, all products are fast enough."""
    pathlib.Path("machine.toml").write_text(MACHINE)
    done = on_ranks(3, "screen", *QUICK, "--json", "--expect=machine.toml", "--least=45")
    found = json.loads(done.stdout)
    assert done.returncode == (1 if found["culprits"] else 3), told(done)
    assert (found["rounds"], found["nodes"], found["adapters"]) == (2, [3], 1)
    assert 0 <= found["load"] <= 1.1
    assert socket.gethostname() not in done.stdout
    expected = {"matrix product": 1e3, "triad": 1.3e15, "rate inside the node": None}
    assert {each["name"]: each["expected"] for each in found["quantities"]} == expected
    for quantity in found["quantities"]:
        assert 0 < quantity["lowest"] <= quantity["median"] <= quantity["highest"]
        assert len(quantity["values"]) == 3
        assert quantity["detectable"] is None or quantity["detectable"] >= 0.45
    named = {rank for culprit in found["culprits"] for rank in culprit["ranks"]}
    assert named >= {0, 1, 2} - set(found["loaded_ranks"])
    for culprit in found["culprits"]:
        for evidence in culprit["evidence"]:
            assert evidence["quantity"] == "triad" or "expected" not in evidence


def test_text_ends_with_the_verdict_and_may_name_hosts():
    said = on_ranks(3, "screen", *QUICK, "--hosts").stdout
    says(said, socket.gethostname(), "\n  triad  ", "\n  cores taken by others  ")
    assert said.startswith("# minitaw ") and said.splitlines()[-1].startswith("VERDICT: ")


@pytest.mark.parametrize("option", ["--rounds=1", "--expect=none.toml", "--least=0"])
def test_what_makes_no_sense_is_refused(option):
    name, value = option.split("=")
    refused(minitaw("screen", *QUICK, option), value if value.endswith("toml") else name)


def test_a_rank_that_stops_is_named():
    """Rank 1 stops as soon as rank 0 has said who computes where, before anything is measured."""
    job = [MINITAW, "screen", "--rounds=100", "--seconds=0.01", "--watchdog=3"]
    stops = '(until [ -s said.txt ]; do sleep 0.05; done; kill -STOP $$) & exec "$@"'
    words = [MPIEXEC, "-n", 1, *job, ":", "-n", 1, "sh", "-c", stops, "sh", *job]
    said = call("sh", "-c", 'exec "$@" > said.txt', "sh", *words).stderr
    assert said.count("rank 1 (node 0) does not answer\n") == 1, said
