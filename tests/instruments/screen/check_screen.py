# SPDX-License-Identifier: BSD-3-Clause
"""minitaw screen: what it measures, how its options change that, and that a rank that stops is
named. Called with mpiexec, its flag for the number of ranks, the program and a folder. What is said
of known values: screen_judge."""

import json
import pathlib
import re
import shutil
import socket
import sys

import programs
from programs import run_checks

MPIEXEC, NUMBER, PROGRAM = sys.argv[1:4]
FOLDER = pathlib.Path(sys.argv[4])
ROUNDS = ("--rounds", 2)


def screen(*options, code=(0, 1, 3)):
    job = (MPIEXEC, NUMBER, 3, PROGRAM, "screen", "--seconds", "0.01", *options)
    done = programs.call(*job, cwd=FOLDER)
    assert done.returncode in code, f"{options}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done


def check_json():
    said = screen(*ROUNDS, "--json")
    found = json.loads(said.stdout)
    assert said.returncode == (1 if found["culprits"] else 3 if found["loaded_ranks"] else 0), found
    assert (found["rounds"], found["nodes"], found["adapters"]) == (2, [3], 1), found
    assert 0 <= found["load"] <= 1.1, found
    names = [quantity["name"] for quantity in found["quantities"]]
    assert names == ["matrix product", "triad", "rate inside the node"], names
    for quantity in found["quantities"]:
        assert 0 < quantity["lowest"] <= quantity["median"] <= quantity["highest"], quantity
        assert quantity["expected"] is None, quantity


def check_text():
    """The machine, a row for each quantity, and the verdict; hosts are named only if asked for."""
    said = screen(*ROUNDS).stdout
    assert said.startswith("# minitaw "), said
    rows = [re.split("  +", line.strip())[0] for line in said.splitlines() if line[:2] == "  "]
    assert [row for row in rows if ":" not in row] == [
        "matrix product",
        "triad",
        "rate inside the node",
        "cores taken by others",
    ], said
    assert said.count("VERDICT: ") == 1 and said.splitlines()[-1].startswith("VERDICT: "), said
    assert f"({socket.gethostname()})" not in said, said
    assert socket.gethostname() in screen(*ROUNDS, "--hosts").stdout


def check_least():
    found = json.loads(screen(*ROUNDS, "--least", 45, "--json").stdout)
    for quantity in found["quantities"]:
        assert quantity["detectable"] is None or quantity["detectable"] >= 0.45, quantity


MACHINE = """
nodes = 1
ranks_per_node = 3
[device]
memory_rate = "1300 TB/s"
[device.fp32]
products = [["1 MFLOP", "1 kFLOP/s"], ["100 GFLOP", "1 kFLOP/s"]]
attention = "9 GFLOP/s"
[inside]
rate = "9 GB/s"
"""


def check_expected():
    """No memory is as fast as a machine file says, all products are fast enough."""
    (FOLDER / "machine.toml").write_text(MACHINE)
    options = (*ROUNDS, "--expect", "machine.toml")
    found = json.loads(screen(*options, "--json").stdout)
    assert [q["expected"] for q in found["quantities"]] == [1e3, 1.3e15, None], found
    expected = [
        (culprit["ranks"], evidence["quantity"])
        for culprit in found["culprits"]
        for evidence in culprit["evidence"]
        if evidence.get("expected")
    ]
    slow = [rank for rank in range(3) if rank not in found["loaded_ranks"]]
    assert all(quantity == "triad" and set(ranks) <= set(slow) for ranks, quantity in expected)
    named = {rank for culprit in found["culprits"] for rank in culprit["ranks"]}
    assert set(slow) <= named, found
    assert re.search(r"triad .* 1\.3 PB/s\n", screen(*options).stdout)


def check_refusals():
    for options, says in (
        (("--rounds", 1), "--rounds"),
        (("--expect", "none.toml"), "none.toml cannot be read"),
        (("--least", 0), "--least"),
    ):
        said = screen(*options, code=[2]).stderr
        assert says in said, said


def check_stopped_rank():
    """Rank 1 stops as soon as rank 0 has said who computes where, before anything is measured."""
    options = "--rounds 100 --seconds 0.01 --watchdog 5"
    job = [PROGRAM, "screen", *options.split()]
    stops = '(until [ -s said.txt ]; do sleep 0.05; done; kill -STOP $$) & exec "$@"'
    words = [MPIEXEC, NUMBER, "1", *job, ":", NUMBER, "1", "sh", "-c", stops, "sh", *job]
    said = programs.call("sh", "-c", 'exec "$@" > said.txt', "sh", *words, cwd=FOLDER).stderr
    assert "rank 1 (node 0) does not answer\n" in said, f"({said})"
    assert said.count("does not answer") == 1, f"({said})"


shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
run_checks(globals())
