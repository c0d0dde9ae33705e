# SPDX-License-Identifier: BSD-3-Clause
"""What a run tells and keeps names no host, user or folder, unless the user asked for it or wrote
it: a machine with a made-up name (fake_host.cpp, preloaded), an environment full of names, and a
search through all bytes that come out."""

import os
import pathlib

import h5py
from programs import BUILD, SMALL, on_ranks, told

FAKE_HOST = BUILD / "tests/miniapp/libfake_host.so"
HOST, USER = "leak017", "leakjoe"
DECK = SMALL + 'schedule = "tawpipe"\nvocab = 64\nseq = 9\nmicro_batches = 4\n'
SECRETIVE = {
    "SLURM_JOB_NODELIST": f"{HOST},leak[018-019]",
    "SLURM_SUBMIT_DIR": f"/home/{USER}/x",
    "SLURM_JOB_USER": USER,
    "OMPI_MCA_orte_hnp_uri": f"1.0;tcp://10.1.2.3:4/{USER}",
    "NCCL_TOPO_FILE": f"/home/{USER}/topo.xml",
    "FI_DOMAIN": f"{HOST}_mlx",
    "HOSTNAME": HOST,
    "NCCL_KEY": "leaksecret",
}
PLAIN = {"SLURM_NTASKS": "2", "NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1"}


def run(*options, deck="leaks.toml", note=""):
    """What a run prints, the bytes of its file, and texts of the session in it."""
    pathlib.Path(deck).write_text(DECK + note)
    variables = {"LD_PRELOAD": FAKE_HOST, "LOGNAME": USER, **SECRETIVE, **PLAIN}
    # the library is preloaded before that of the sanitizer
    variables["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    pairs = [f"{key}={value}" for key, value in variables.items()]
    done = on_ranks(2, "run", deck, "-o", "a.h5", *options, variables=pairs)
    assert done.returncode == 0, told(done)
    names = "hosts", "kernel", "environment", "cpu", "libraries", "deck", "command"
    with h5py.File("a.h5") as file:
        found = {name: file[f"sessions/0000/{name}"].asstr()[()] for name in names}
    return done.stdout + done.stderr, pathlib.Path("a.h5").read_bytes(), found


def test_nothing_leaks():
    said, kept, found = run()
    for word in (HOST, USER, "leak018", "leaksecret", "10.1.2.3", "cluster.example"):
        assert word not in said.lower() and word.encode() not in kept.lower()
    assert [*found["hosts"]] == ["node 0"] * 2 and found["kernel"] == "Linux 6.1-node 0 x86_64"
    variables = {*found["environment"]}
    assert {"SLURM_NTASKS=2", "NCCL_ALGO=Ring", "FI_DOMAIN=(not kept)"} <= variables
    assert not {*SECRETIVE} - {"FI_DOMAIN"} & {text.partition("=")[0] for text in variables}
    assert len(found["cpu"]) == 2 and "core" in found["cpu"][0]
    assert {"BLAS", "HDF5"} <= {text.split()[0] for text in found["libraries"]}


def test_hosts_are_kept_where_they_are_asked_for():
    said, _, found = run("--hosts")
    assert f"node 0 ({HOST}.cluster.example), cores " in said
    assert [*found["hosts"]] == [f"{HOST}.cluster.example"] * 2
    assert f"FI_DOMAIN={HOST}_mlx" in found["environment"]


def test_what_the_user_wrote_is_kept():
    _, _, found = run(deck=f"{HOST}.toml", note=f"# for {HOST}\n")
    assert f"# for {HOST}" in found["deck"] and f"run {HOST}.toml " in found["command"]
