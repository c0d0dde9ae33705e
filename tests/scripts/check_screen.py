# SPDX-License-Identifier: BSD-3-Clause
"""minitaw screen: what it measures is kept and gone on with, and on a cluster with a fault it names what is at fault. Called with the
repository, a folder to write to, the program, mpiexec and its flag for the number of ranks. Ends with 77 where no namespaces can be had."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import h5py
import numpy

REPOSITORY, FOLDER, MINITAW = map(pathlib.Path, sys.argv[1:4])
MPIEXEC = sys.argv[4:6]
CLUSTER = [REPOSITORY / "scripts/cluster", "--nodes", "3", "--ranks-per-node", "2", "--rate", "100mbit"]
SKIPPED = 77
PATIENCE = "8"  # s, of a stage

def call(*words, codes=(0, 1)):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=200, check=False, cwd=FOLDER)
    assert done.returncode in codes, f"{words}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done

def screen(*options, codes=(0, 1)):
    return call(*MPIEXEC, 3, MINITAW, "screen", "--seconds", "0.01", *options, codes=codes)

def stored(name, quantity):
    with h5py.File(FOLDER / name) as file:
        return file[f"screen/{quantity}"][()]

def check_file():
    said = screen("--rounds", "2", "--json", "-o", "a.h5")
    found = json.loads(said.stdout)
    assert said.returncode == (1 if found["culprits"] else 0) and found["rounds"] == 2, found
    names = {quantity["name"]: quantity for quantity in found["quantities"]}
    assert {"matrix product", "attention", "triad", "rate inside the node"} <= set(names), names
    first = {name: stored("a.h5", name.replace(" ", "_").replace("-", "_")) for name in names}
    assert first["triad"].shape == (2, 3, 1) and first["rate inside the node"].shape == (2, 3, 3)
    links = first["rate inside the node"]
    assert (numpy.isnan(links) == numpy.eye(3, dtype=bool)).all(), links  # nobody sends to itself
    for name, values in first.items():  # what is printed is what is kept
        known = numpy.sort(values[~numpy.isnan(values)])
        assert (known > 0).all() and names[name]["lowest"] == known[0] and names[name]["highest"] == known[-1], name
        assert numpy.isclose(names[name]["median"], numpy.median(known)), name
    said = screen("--rounds", "3", "-o", "a.h5")
    assert "a.h5 has 2 rounds already" in said.stdout and said.stdout.count("VERDICT: ") == 1, said.stdout
    more = stored("a.h5", "triad")
    assert more.shape == (3, 3, 1) and (more[:2] == first["triad"]).all()
    (FOLDER / "deck.toml").write_text('schedule = "fsdp"\nlayers = 3\nhidden = 64\nheads = 2\nvocab = 256\nseq = 32\nmicro_batches = 3\n')
    said = screen("deck.toml", "-o", "a.h5", codes=[2])
    assert "a.h5 was measured with other settings" in said.stderr, said.stderr
    assert "hidden = 64" in screen("deck.toml", "--set", "seq=48").stdout
    assert "--rounds" in screen("--rounds", "1", codes=[2]).stderr
    found = json.loads(screen("deck.toml", "--replay", "--json", codes=[0]).stdout)
    assert found["verdict"].startswith("SAME") and found["runs"] == 2 and found["actions"] > 100 and found["findings"] == [], found
    call(REPOSITORY / "scripts/report", FOLDER / "a.h5", "-o", FOLDER / "a.html", codes=[0])
    page = (FOLDER / "a.html").read_text()
    assert "Screening" in page and "rate inside the node" in page

def stop_rank(rank, after):
    """Stops the process of a rank of the job that writes no file, so long after it has begun."""
    for _ in range(600):
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                if words[0] == str(MINITAW).encode() and f"PMI_RANK={rank}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    time.sleep(after)
                    return os.kill(int(process.name), signal.SIGSTOP)
            except OSError:
                pass
        time.sleep(0.1)

def check_faults():
    found = json.loads(call(*CLUSTER, "--slow", "1=25mbit", "--", MINITAW, "screen", "--json", codes=[1]).stdout)
    assert ["adapter", [2], ["node 1"]] in [[c["kind"], c["ranks"], c["nodes"]] for c in found["culprits"]], found
    found = json.loads(call(*CLUSTER, "--slow-pair", "0-2=20mbit", "--", MINITAW, "screen", "--json", codes=[1]).stdout)
    assert ["link", [0, 4], ["node 0", "node 2"]] in [[c["kind"], c["ranks"], c["nodes"]] for c in found["culprits"]], found
    endless = ["--", MINITAW, "screen", "--rounds", "100", "--watchdog", PATIENCE]
    stopping = threading.Thread(target=stop_rank, args=(3, 4))
    stopping.start()
    said = call(*CLUSTER, *endless, codes=range(1, 256)).stderr
    stopping.join()
    assert "rank 3 (node 1) does not answer" in said and said.count("does not answer") == 1, f"({said})"
    said = call(*CLUSTER, "--cut", "2@6", *endless, codes=range(1, 256)).stderr
    assert "node 2 (ranks 4, 5) does not answer" in said and said.count("does not answer") == 1, said

FOLDER.mkdir(parents=True, exist_ok=True)
(FOLDER / "a.h5").unlink(missing_ok=True)
check_file()
if "namespaces" in call(*CLUSTER, "--", "true", codes=(0, 2)).stderr:
    sys.exit(SKIPPED)
check_faults()
