# SPDX-License-Identifier: BSD-3-Clause
"""What a run tells and keeps names no host, user or folder, unless the user asked for it or wrote
it: a machine with a made-up name (fake_host.cpp, preloaded), an environment full of names, and a
search through all bytes that come out. Called with mpiexec, its -n flag, the program, the library
to preload and a folder to write to."""

import os
import pathlib
import shutil
import sys

import h5py
import programs

MPIEXEC, NUMBER, PROGRAM, FAKE_HOST, FOLDER = sys.argv[1:]
FOLDER = pathlib.Path(FOLDER)
HOST, USER = "leak017", "leakjoe"

TEXT = (
    'schedule = "tawpipe"\nlayers = 4\nhidden = 16\nheads = 2\nffn = 24\nvocab = 64\nseq = 9\n'
    "micro_batches = 4\nsteps = 3\nwarmup = 1\n"
)
SECRETIVE = {
    "SLURM_JOB_NODELIST": f"{HOST},leak[018-019]",
    "SLURMD_NODENAME": HOST,
    "SLURM_SUBMIT_DIR": f"/home/{USER}/x",
    "SLURM_JOB_USER": USER,
    "SLURM_TOPOLOGY_ADDR": f"switch.{HOST}",
    "SLURM_JOB_ACCOUNT": "leakaccount",
    "OMPI_MCA_orte_hnp_uri": f"1.0;tcp://10.1.2.3:4/{USER}",
    "NCCL_TOPO_FILE": f"/home/{USER}/topo.xml",
    "MPICH_INTERFACE_HOSTNAME": f"{HOST}-ib0",
    "FI_DOMAIN": f"{HOST}_mlx",
    "HOSTNAME": HOST,
    "NCCL_KEY": "leaksecret",
}
PLAIN = {"SLURM_NTASKS": "2", "NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1"}


def run(name, *arguments, deck="leaks.toml"):
    preload = [
        f"{key}={value}"
        for key, value in {"LD_PRELOAD": FAKE_HOST, "LOGNAME": USER, **SECRETIVE, **PLAIN}.items()
    ]
    command = [MPIEXEC, NUMBER, "2", "env", *preload, PROGRAM, "run", deck, "-o", name, *arguments]
    options = (
        os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    )  # the library is preloaded before it
    done = programs.call(*command, cwd=FOLDER, env={**os.environ, "ASAN_OPTIONS": options})
    assert done.returncode == 0, done.stdout + done.stderr
    with h5py.File(FOLDER / name) as file:
        found = {
            key: item.asstr()[()] if item.attrs["units"] == "text" else item[()]
            for key, item in file["sessions/0000"].items()
            if isinstance(item, h5py.Dataset)
        }
    return done.stdout + done.stderr, (FOLDER / name).read_bytes(), found


def check_nothing_leaks_and_the_map():
    """And every rank has its line and its processor."""
    said, kept, found = run("hidden.h5")
    for word in (HOST, USER, "leak018", "leakaccount", "leaksecret", "10.1.2.3", "cluster.example"):
        assert word not in said.lower(), f"{word} is printed: {said}"
        assert word.encode() not in kept.lower(), f"{word} is in the file"
    assert list(found["hosts"]) == ["node 0"] * 2 and list(found["nodes"]) == [0, 0]
    assert found["kernel"] == "Linux 6.1-node 0 x86_64", found["kernel"]
    variables = dict(variable.split("=", 1) for variable in found["environment"])
    assert variables["SLURM_NTASKS"] == "2"
    assert variables["NCCL_ALGO"] == "Ring"
    assert variables["FI_DOMAIN"] == "(not kept)"
    assert not set(SECRETIVE) - {"FI_DOMAIN"} & set(variables), variables
    for rank in range(2):
        line = f"# rank {rank}: node 0, cores {found['cores'][rank]}, {found['devices'][rank]}\n"
        assert line in said, f"{line} is not in {said}"
    assert len(found["cpu"]) == 2 and "core" in found["cpu"][0], found["cpu"]
    names = {text.split()[0] for text in found["libraries"]}
    assert {"BLAS", "HDF5"} <= names, names
    assert all(len(text.split()) > 1 for text in found["libraries"]), found["libraries"]


def check_hosts_that_are_asked_for():
    said, _, found = run("shown.h5", "--hosts")
    assert f"node 0 ({HOST}.cluster.example), cores " in said, said
    assert list(found["hosts"]) == [f"{HOST}.cluster.example"] * 2
    assert f"FI_DOMAIN={HOST}_mlx" in found["environment"]


def check_what_the_user_wrote():
    deck = f"{HOST}.toml"
    (FOLDER / deck).write_text(TEXT + f"# for {HOST}\n", encoding="utf-8")
    _, _, found = run("written.h5", deck=deck)
    assert f"# for {HOST}" in found["deck"], found
    assert f"run {deck} " in found["command"], found


shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
(FOLDER / "leaks.toml").write_text(TEXT, encoding="utf-8")
for check in (
    check_nothing_leaks_and_the_map,
    check_hosts_that_are_asked_for,
    check_what_the_user_wrote,
):
    check()
