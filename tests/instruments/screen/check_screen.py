# SPDX-License-Identifier: BSD-3-Clause
"""minitaw screen: what it measures is kept and gone on with; a rank that stops is named; what it
says of values in a file is known by hand. Called with mpiexec, its flag for the number of ranks,
the program, a folder and the repository."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import h5py
import numpy
import programs
from programs import run_checks

MPIEXEC, NUMBER, PROGRAM = sys.argv[1:4]
FOLDER, REPOSITORY = map(pathlib.Path, sys.argv[4:])
sys.path.insert(0, str(REPOSITORY / "scripts"))
from minitaw import seal  # noqa: E402

NAN = numpy.nan
CLIQUES = {"MPIR_CVAR_NUM_CLIQUES": "3", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"}  # nodes of MPICH


def screen(*options, ranks=3, code, **variables):
    job = (MPIEXEC, NUMBER, ranks, PROGRAM, "screen", "--seconds", "0.01", *options)
    done = programs.call(*job, cwd=FOLDER, env=os.environ | variables)
    assert done.returncode in code, f"{options}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done


def stored(name, quantity):
    with h5py.File(FOLDER / name) as file:
        return file[f"screen/{quantity}"][()]


def check_file():
    said = screen("--rounds", 2, "--json", "-o", "a.h5", code=(0, 1, 3))
    found = json.loads(said.stdout)
    assert said.returncode == (1 if found["culprits"] else 3 if found["loaded_ranks"] else 0), found
    assert found["rounds"] == 2, found
    loads = stored("a.h5", "cores_taken_by_others")
    assert loads.shape == (2, 3, 1), loads
    assert loads.max() == found["load"], loads
    assert ((0 <= loads) & (loads <= 1.1)).all(), loads
    names = [quantity["name"] for quantity in found["quantities"]]
    assert names == ["matrix product", "triad", "rate inside the node"], names
    assert (found["nodes"], found["adapters"]) == ([3], 1), found
    first = {name: stored("a.h5", name.replace(" ", "_")) for name in names}
    assert first["triad"].shape == (2, 3, 1) and first["rate inside the node"].shape == (2, 3, 3)
    assert (
        numpy.isnan(first["rate inside the node"]) == numpy.eye(3, dtype=bool)
    ).all(), first  # no rank sends to itself
    assert all((values[~numpy.isnan(values)] > 0).all() for values in first.values()), first
    said = screen("--rounds", 3, "-o", "a.h5", code=(0, 1, 3))
    assert "a.h5 has 2 rounds already" in said.stdout, said.stdout
    assert said.stdout.count("VERDICT: ") == 1, said.stdout
    more = stored("a.h5", "triad")
    assert more.shape == (3, 3, 1)
    assert (more[:2] == first["triad"]).all()
    assert (more[2] != more[1]).all()


def check_options():
    (FOLDER / "deck.toml").write_text(
        'schedule = "fsdp"\nlayers = 3\nhidden = 64\nheads = 2\nvocab = 256\nseq = 32\n'
        "micro_batches = 3\n"
    )
    said = screen("deck.toml", "-o", "a.h5", code=[2])
    assert "a.h5 was measured with other settings" in said.stderr, said.stderr
    said = screen("deck.toml", "--set", "seq=48", "--rounds", 2, code=(0, 1, 3)).stdout
    assert "hidden = 64, heads = 2, kv_heads = 2, " in said, said
    assert "seq = 48," in said, said
    assert "--rounds" in screen("--rounds", 1, code=[2]).stderr


def usual(nodes, rounds):
    """What healthy nodes of so many ranks measure: [round, rank, partner]."""
    ranks = sum(nodes)
    node_of = [node for node, size in enumerate(nodes) for _ in range(size)]
    all_of = lambda value: numpy.full((rounds, ranks, 1), value)
    inside, between = numpy.full((rounds, ranks, max(nodes)), 2e9), numpy.full(
        (rounds, ranks, len(nodes)), NAN
    )
    for rank, node in enumerate(node_of):
        inside[:, rank, rank - node_of.index(node)] = inside[:, rank, nodes[node] :] = NAN
        if rank == node_of.index(node):  # the only one with an adapter
            between[:, rank] = [NAN if other == node else 1e9 for other in range(len(nodes))]
    values = {
        "matrix_product": all_of(8e9),
        "triad": all_of(1e9),
        "rate_inside_the_node": inside,
        "cores_taken_by_others": all_of(0.01),
    }
    return values | (
        {"rate_between_nodes": between, "latency_between_nodes": between * 1e-13}
        if len(nodes) > 1
        else {}
    )


def put(name, values, nodes="3"):
    """A file of these values, for ranks on these nodes."""
    path = FOLDER / name
    path.write_bytes((FOLDER / "a.h5").read_bytes()[seal.SEAL_BYTES :])
    with h5py.File(path, "r+") as file:
        group = file["screen"]
        settings = re.sub("nodes = [^,]*", f"nodes = {nodes}", group["settings"].asstr()[()])
        for quantity, array in {**values, "settings": settings}.items():
            if quantity in group:
                del group[quantity]
            group[quantity] = array
    image = path.read_bytes()
    path.write_bytes(seal.seal_of(seal.SCHEMA, image) + image)


def short(found):
    return [(c["kind"], c["ranks"], c["nodes"]) for c in found["culprits"]]


def three_culprits(rounds):
    """Rank 1 computes at half the rate in most rounds; rank 0 adds 15 % less, and what it sends to
    rank 2 takes twice as long."""
    values = usual([3], rounds)
    values["matrix_product"][[0, 2, 4], 1] = 4e9
    values["triad"][:, 0] = 0.85e9
    values["rate_inside_the_node"][:, 2, 0] = 1e9
    return values


def check_judgement():
    """In JSON."""
    put("b.h5", three_culprits(5))
    found = json.loads(screen("--rounds", 5, "--json", "-o", "b.h5", code=[1]).stdout)
    assert found["verdict"] == "FOUND: 3 culprits in 5 rounds" and found["rounds"] == 5, found
    assert short(found) == [
        ("rank", [1], ["node 0"]),
        ("rank", [0], ["node 0"]),
        ("link", [0, 2], ["node 0"]),
    ], found
    assert found["culprits"][0]["evidence"] == [
        {"quantity": "matrix product", "units": "FLOP/s", "value": 4e9, "usual": 8e9, "rounds": 3}
    ], found
    assert found["quantities"][0] == {
        "name": "matrix product",
        "units": "FLOP/s",
        "lowest": 4e9,
        "median": 8e9,
        "highest": 8e9,
        "expected": None,
        "detectable": {"part": 0.1, "link": None},
    }, found
    assert found["quantities"][2]["detectable"] == {"part": 0.2, "link": 0.2}, found
    assert found["load"] == 0.01, found


def check_text():
    """A table of quantities, the culprits and the verdict; hosts are named only if asked for."""
    values = three_culprits(5)
    put("b.h5", values)
    host = socket.gethostname()
    options = ("--rounds", 2, "--hosts", "--least", 14, "-o", "b.h5")
    said = screen(*options, code=[1]).stdout.splitlines()
    assert stored("b.h5", "triad").shape == (5, 3, 1), "the file has more rounds, and keeps them"
    assert (stored("b.h5", "matrix_product") == values["matrix_product"]).all()

    rows = [re.split("  +", line.strip()) for line in said if line.startswith("  ")]
    rows = [row for row in rows if "usual" not in " ".join(row)]
    assert rows[:3] == [
        ["matrix product", "4 GFLOP/s", "8 GFLOP/s", "8 GFLOP/s", "14 % less"],
        ["triad", "850 MB/s", "1 GB/s", "1 GB/s", "14 % less"],
        ["rate inside the node", "1 GB/s", "2 GB/s", "2 GB/s", "14 % less"],
    ], said
    assert ["cores taken by others", "1 %", "1 %", "1 %"] in rows, said

    assert said[said.index(f"CULPRIT: rank 1 ({host})") :] == [
        f"CULPRIT: rank 1 ({host})",
        "  matrix product: 4 GFLOP/s where 8 GFLOP/s is usual (50 % less) in 3 rounds",
        f"CULPRIT: rank 0 ({host})",
        "  triad: 850 MB/s where 1 GB/s is usual (15 % less) in 5 rounds",
        f"CULPRIT: link between rank 0 ({host}) and rank 2 ({host})",
        "  rate inside the node, to rank 2: 1 GB/s where 2 GB/s is usual (50 % less) in 5 rounds",
        "VERDICT: FOUND: 3 culprits in 5 rounds",
    ], said

    said = screen("--rounds", 5, "-o", "b.h5", code=[1]).stdout
    assert "CULPRIT" in said and f"({host})" not in said, said


def check_kept():
    """The file has what was printed, and the page of a report shows it."""
    put("b.h5", three_culprits(5))
    screen("--rounds", 5, "-o", "b.h5", code=[1])
    culprits = stored("b.h5", "culprits")
    assert len(culprits) == 3, culprits
    assert culprits[1] == (
        b"rank 0 (node 0); triad: 850 MB/s where 1 GB/s is usual (15 % less) in 5 rounds"
    ), culprits
    assert stored("b.h5", "verdict") == b"FOUND: 3 culprits in 5 rounds"
    report = [REPOSITORY / "scripts/report", FOLDER / "b.h5", "-o", FOLDER / "b.html"]
    subprocess.run(report, check=True, capture_output=True)
    page = (FOLDER / "b.html").read_text()
    assert "Screening" in page and "rate inside the node" in page


def check_clean():
    """Slow in two of four rounds, or by too little."""
    values = usual([3], 4)
    values["matrix_product"][:2, 2] = 4e9
    values["triad"][:, 0] = 0.85e9
    put("c.h5", values)
    said = screen("--rounds", 4, "--least", 16, "-o", "c.h5", code=[0]).stdout
    assert "VERDICT: CLEAN: no part is slower than its peers in 4 rounds\n" in said, said
    assert "CULPRIT" not in said, said


def check_nodes():
    """What passes the adapter of node 1 is slow, the way between nodes 0 and 2 is long; then node 0
    is slow as a whole."""
    if "HYDRA" not in programs.call(MPIEXEC, "--version").stdout:
        return  # MPICH's can tell ranks of one machine that they are on several
    values = usual([2, 2, 1], 2)
    rates, latencies = values["rate_between_nodes"], values["latency_between_nodes"]
    rates[:, 2], rates[:, [0, 4], 1] = [0.4e9, NAN, 0.4e9], 0.5e9
    latencies[:, 0, 2] = latencies[:, 4, 0] = 1e-3
    adapter, link, node = (
        ("adapter", [2], ["node 1"]),
        ("link", [0, 4], ["node 0", "node 2"]),
        ("node", [0, 1], ["node 0"]),
    )
    for slow, culprits in ([], [adapter, link]), (
        [0, 1],
        [node, adapter, link],
    ):  # slow kernels make no link long
        values["matrix_product"][:, slow] = 4e9
        put("d.h5", values, "2+2+1")
        options = ("--rounds", 2, "--json", "-o", "d.h5")
        said = screen(*options, ranks=5, code=[1], **CLIQUES)
        assert short(json.loads(said.stdout)) == culprits, said
        with h5py.File(FOLDER / "d.h5") as file:
            assert list(file["screen/node_of_rank"][:]) == [0, 0, 1, 1, 2]
            assert slow or list(file["screen/culprits"].asstr()[:]) == [
                "adapter of node 1 (rank 2); rate between nodes, out: 4 Gbit/s where 8 Gbit/s is "
                "usual (50 % less) in 2 rounds; "
                "rate between nodes, in: 3.2 Gbit/s where 8 Gbit/s is usual (60 % less) in 2 "
                "rounds",
                "link between rank 0 (node 0) and rank 4 (node 2); latency between nodes, to rank "
                "4: 1 ms where 100.0 us is usual (10.0 times) in 2 rounds; latency between nodes, "
                "to rank 0: 1 ms where 100.0 us is usual (10.0 times) in 2 rounds",
            ]


def check_load():
    """Others take most of the cores of ranks 1 and 2 in two of three rounds, in which rank 1 is
    slow."""
    values = usual([3], 3)
    values["cores_taken_by_others"][:2, 1:] = 0.6
    values["triad"][:2, 1] = 0.4e9
    put("e.h5", values)
    said = screen("--rounds", 3, "-o", "e.h5", code=[3]).stdout
    assert (
        "VERDICT: INCONCLUSIVE: other programs took up to 60 % of the cores of 3 ranks in 3 "
        "rounds\n" in said
    ), said
    assert "CULPRIT" not in said, said
    found = json.loads(screen("--rounds", 3, "--json", "-o", "e.h5", code=[3]).stdout)
    assert found["load"] == 0.6, found
    assert found["loaded_ranks"] == [0, 1, 2], found
    assert found["culprits"] == [], found
    values["cores_taken_by_others"][1] = 0.05
    put("e.h5", values)
    assert "VERDICT: CLEAN" in screen("--rounds", 3, "-o", "e.h5", code=[0]).stdout


MACHINE = """
nodes = 1
ranks_per_node = 3
[device]
memory_rate = "{}"
[device.fp32]
products = [["1 MFLOP", "1 GFLOP/s"], ["100 GFLOP", "1 GFLOP/s"]]
attention = "9 GFLOP/s"
[inside]
rate = "9 GB/s"
"""


def check_expected():
    """Rates 8 and 1 G, and what a machine file says: of 1 and 1.3 the last one is not reached."""
    put("f.h5", usual([3], 2))
    machine = FOLDER / "machine.toml"
    options = ("--rounds", 2, "--expect", machine, "-o", "f.h5")
    machine.write_text(MACHINE.format("1.3 GB/s"))
    said = screen(*options, code=[1]).stdout
    assert (
        "CULPRIT: ranks 0-2\n  triad: 1 GB/s where 1.3 GB/s is expected (23 % less) in 2 rounds\n"
    ) in said, said
    assert re.search("matrix product +8 GFLOP/s +8 GFLOP/s +8 GFLOP/s .* 1 GFLOP/s\n", said), said
    found = json.loads(screen(*options, "--json", code=[1]).stdout)
    (culprit,) = found["culprits"]
    assert (culprit["kind"], culprit["ranks"]) == ("rank", [0, 1, 2]), culprit
    assert culprit["evidence"][0]["expected"] == 1.3e9, culprit
    assert [q["expected"] for q in found["quantities"]] == [1e9, 1.3e9, None], found
    machine.write_text(MACHINE.format("1.2 GB/s"))
    assert "VERDICT: CLEAN: no part is slower than its peers or than expected in 2 rounds\n" in (
        screen(*options, code=[0]).stdout
    )
    assert "cannot be read" in screen("--rounds", 2, "--expect", "none.toml", code=[2]).stderr


def check_stopped_rank():
    """Rank 1 stops as soon as there is a file, before anything is measured."""
    options = "--rounds 100 --seconds 0.01 --watchdog 5 -o stop.h5"
    job = [PROGRAM, "screen", *options.split()]
    stops = '(until [ -e stop.h5 ]; do sleep 0.05; done; kill -STOP $$) & exec "$@"'
    said = programs.call(
        MPIEXEC, NUMBER, "1", *job, ":", NUMBER, "1", "sh", "-c", stops, "sh", *job, cwd=FOLDER
    ).stderr
    assert "rank 1 (node 0) does not answer\n" in said, f"({said})"
    assert said.count("does not answer") == 1, f"({said})"


shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
run_checks(globals())
