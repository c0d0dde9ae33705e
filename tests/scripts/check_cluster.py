# SPDX-License-Identifier: BSD-3-Clause
"""scripts/cluster: the nodes are the groups, what crosses between them is what was planned, the
record says what the links were shaped to, and nothing is left of it however it ends. Called with
the repository, a folder to write to and the program. Ends with 77 where no namespaces can be
had."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import h5py
import programs

REPOSITORY, FOLDER, MINITAW = map(pathlib.Path, sys.argv[1:])
CLUSTER = [REPOSITORY / "scripts/cluster"]
sys.path.insert(0, str(REPOSITORY / "scripts/lib"))
import cluster  # noqa: E402

TWO = ["--nodes", "2", "--ranks-per-node", "2"]
SKIPPED = 77
DECK = (
    'schedule = "tawpipe"\nlayers = 5\nhidden = 128\nheads = 2\nvocab = 256\nseq = 32\n'
    "micro_batches = 4\nwarmup = 1\n"
)


def call(*options, program, code=0, **environment):
    done = programs.call(*CLUSTER, *options, "--", *program, env=os.environ | environment)
    assert (
        done.returncode == code
    ), f"{options}: exit {done.returncode}, not {code}: {done.stdout}{done.stderr}"
    return done


def adapters():
    """Of the machine itself."""
    return sorted(os.listdir("/sys/class/net"))


def marked(mark):
    """Processes that were started with this variable: by a cluster and whatever it has started, in
    whichever namespace."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # not ours to see, or gone
            found += [path] * (mark.encode() in path.read_bytes())
    return found


def measured(steps, *options):
    """A run of so many steps: what it said, what its record holds, and what the kernel counted on
    the adapters."""
    record, counters = FOLDER / f"{steps}.h5", FOLDER / f"{steps}.json"
    said = call(
        *TWO,
        "--rate",
        "1gbit",
        "--counters",
        counters,
        *options,
        program=[MINITAW, "run", FOLDER / "deck.toml", "--set", f"steps={steps}", "-o", record],
    )
    with h5py.File(record) as file:
        found = {
            name: list(
                file[name].asstr()[:]
                if name in ("runs/status", "sessions/0000/links")
                else file[name][:]
            )
            for name in (
                "runs/status",
                "runs/bytes_between",
                "sessions/0000/links",
                "sessions/0000/nodes",
            )
        }
    return said, found, json.loads(counters.read_text(encoding="utf-8"))["nodes"]


def nodes_are_groups_and_adapters_carry_what_is_planned():
    """What MPI and the launcher say in the beginning and the end cancels between runs of 3 and 13
    steps. Of a step remain, beside the bytes of the plan, the headers of packets (the kernel counts
    one of 66 bytes for up to 64 KiB), acknowledgements, MPI's own, and times and losses.
    """
    few, record, before = measured(3, "--latency", "2ms")
    assert "= 2+2" in few.stdout, few.stdout
    assert record["sessions/0000/nodes"] == [0, 0, 1, 1], few.stdout
    assert record["runs/status"] == ["ok"], few.stdout
    assert record["sessions/0000/links"] == [
        "nodes=2",
        "ranks_per_node=2",
        "rate=1000mbit",
        "latency=2ms",
        "mtu=9000",
    ], record
    shown = programs.call(MINITAW, "show", FOLDER / "3.h5", check=True).stdout
    for text in (few.stdout, shown):
        assert "RESULT: VALID" in text, text
        assert "shaped, nodes=2 ranks_per_node=2 rate=1000mbit latency=2ms" in text, text
    _, _, after = measured(13)
    plan = programs.call(
        MINITAW, "plan", FOLDER / "deck.toml", "--set", "groups=2+2", "--json", check=True
    )
    groups = json.loads(plan.stdout)["cases"][0]["groups"]
    assert (
        groups[0]["bytes_out"] > 1.2 * groups[1]["bytes_out"] > 4e6
    ), "the case is to tell nodes and directions apart"
    for node, (early, late, planned) in enumerate(zip(before, after, groups, strict=True)):
        for way, counted in (("bytes_out", "sent_bytes"), ("bytes_in", "received_bytes")):
            step = (late[counted] - early[counted]) / 10
            assert (
                1 <= step / planned[way] < 1.02
            ), f"node {node}: {step:.0f} bytes a step, {way} of the plan: {planned[way]}"


def topo_names_nodes_and_what_links_were_shaped_to():
    cluster_of = [*TWO, "--rate", "100mbit", "--latency", "20ms"]
    said = call(*cluster_of, program=[MINITAW, "topo"]).stdout
    assert "# groups        = 2+2\n# adapters      = 1 for each node\n" in said, said
    assert re.findall(r"# rank [0-3]: (node [01]), ", said) == ["node 0"] * 2 + ["node 1"] * 2, said
    links = "shaped, nodes=2 ranks_per_node=2 rate=100mbit latency=20ms mtu=9000"
    assert f"# links         = {links}\n" in said, said


def nothing_is_left_by_signals():
    """With the last process the kernel removes namespaces and adapters."""
    before = adapters()
    for number in (signal.SIGTERM, signal.SIGKILL):
        mark = f"CHECK_CLUSTER={os.getpid()}.{number}"
        script = subprocess.Popen(
            [
                "env",
                mark,
                *CLUSTER,
                *TWO,
                "--rate",
                "100mbit",
                "--",
                "sh",
                "-c",
                "echo here; exec sleep 1000",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert [script.stdout.readline() for _ in range(4)] == ["here\n"] * 4
        assert adapters() == before
        assert len(marked(mark)) > 8
        script.send_signal(number)
        assert script.wait(60) != 0
        until = time.time() + 60
        while marked(mark):
            assert time.time() < until, f"left: {marked(mark)}"
            time.sleep(0.1)
    assert adapters() == before


def a_node_can_be_cut():
    cut = FOLDER / "cut"  # all wait until node 1 finds its adapter down
    wait = (
        f"until [ -e {cut} ]; do [ $(hostname) != node1 ] || ! ip -br link show eth0 | grep -q "
        f"DOWN || touch {cut}; sleep 0.1; done"
    )
    said = call(
        *TWO,
        "--rate",
        "100mbit",
        "--cut",
        "1@0.2",
        program=["sh", "-c", f"{wait}; echo $(hostname) $(ip -br link show eth0)"],
    )
    states = sorted((line.split()[0], line.split()[2]) for line in said.stdout.splitlines())
    assert states == [("node0", "UP")] * 2 + [("node1", "DOWN")] * 2, said.stdout


def a_cut_link_ends_the_case_and_the_next_one_follows():
    record = FOLDER / "cut.h5"
    job = [MINITAW, "run", FOLDER / "deck.toml", "--watchdog", "4", "-o", record]
    job += [
        word
        for setting in ("schedule=tawpipe,fsdp", "steps=3", "micro_batches=8")
        for word in ("--set", setting)
    ]
    # A step takes many seconds at this rate, nearly all of them in messages. Rank 2 cuts its node
    # off in the first one, as --cut would: not at a time, before which MPI may not have connected
    # on a crowded machine, but where the node has sent a part of what a step sends.
    cut = (
        "until [ $(awk '/eth0/ {print $10}' /proc/net/dev) -gt 200000 ]; do sleep 0.1; done; ip "
        "link set eth0 down"
    )
    said = call(
        *TWO,
        "--rate",
        "2mbit",
        program=["sh", "-c", f'[ $PMI_RANK != 2 ] || ({cut}) & exec "$@"', "sh", *job],
        code=1,
    )
    reports = dict(
        re.findall(
            r"^minitaw: rank (\d): (?:no lane has moved for [\d.]+ s|in a step)\n((?:  .*\n)+)",
            said.stderr,
            re.MULTILINE,
        )
    )
    assert reports.keys() >= {"0", "1"}, said.stderr  # the node that is cut off may report as well
    message = r"(inputs|gradients)_(recv|send) in tick -?\d+ (send|recv) [WG]\d+ \w+ (->|<-) r[0-3]"
    stuck = [rank for rank, report in reports.items() if re.search(message, report)]
    assert stuck, said.stderr
    with h5py.File(record) as file:
        assert list(file["runs/status"].asstr()[:]) == ["timeout"]
        reason = file["runs/reason"].asstr()[0]
        assert reason == "ranks 2-3 (node 1) do not answer", reason
        assert f"minitaw: {reason}\nminitaw: rank 0: " in said.stderr, said.stderr
    said = call(*TWO, "--rate", "1gbit", program=job, code=1)
    assert "stays as it ended, timeout" in said.stdout, said.stdout
    with h5py.File(record) as file:
        assert list(file["runs/status"].asstr()[:]) == ["timeout", "ok"], said.stdout


def bad_calls_are_refused():
    good = [*TWO, "--rate", "1mbit"]
    for words, sentence in (
        (["--nodes", "0", "--ranks-per-node", "2", "--rate", "1mbit", "--", "x"], "from 1 to 200"),
        ([*TWO, "--rate", "1mbits", "--", "x"], "'1mbits' is no rate"),
        ([*TWO, "--rate", "0mbit", "--", "x"], "is no rate"),
        ([*TWO, "--", "x"], "--rate"),
        ([*good, "--latency", "2", "--", "x"], "is no time"),
        ([*good, "--cut", "2@1", "--", "x"], "no such nodes: 2"),
        ([*good, "--cut", "x", "--", "x"], "not of the form 1@20"),
        ([*good, "--bogus", "--", "x"], "--bogus"),
        (good, "no program"),
        ([*good, "--"], "no program"),
        ([*good, "true"], "true"),
    ):
        try:
            raise AssertionError(f"{words}: {cluster.parse(words)}")
        except cluster.BadInput as error:
            assert sentence in str(error), (words, error)
    assert (
        call(*good, program=["/nosuch"], code=2).stderr
        == "minitaw: there is no program '/nosuch' to run on the nodes\n"
    )
    assert (
        call(*good, "--cut", "2@1", program=["true"], code=2).stderr
        == "minitaw: --cut: there are no such nodes: 2 are counted from 0\n"
    )


def exit_codes_are_passed_on():
    counters = FOLDER / "exit.json"
    options = "--nodes 2 --ranks-per-node 1 --rate 1gbit --counters".split()
    call(*options, counters, program=["sh", "-c", "exit 3"], code=3)
    assert len(json.loads(counters.read_text(encoding="utf-8"))["nodes"]) == 2
    call(*TWO, "--rate", "1gbit", program=[MINITAW, "run", FOLDER / "none.toml"], code=2)


def nodes_share_the_cores():
    """Equally where that is possible; else all have all, and as many threads as there are cores."""
    for nodes, cores, expected in (
        (1, 2, [[0, 1]]),
        (2, 2, [[0], [1]]),
        (4, 2, [[0], [1], [0], [1]]),
        (2, 4, [[0, 1], [2, 3]]),
        (3, 2, [[0, 1]] * 3),
        (2, 3, [[0, 1, 2]] * 2),
    ):
        assert cluster.cores_of(nodes, list(range(cores))) == expected, (nodes, cores)
    have = len(os.sched_getaffinity(0))
    said = call(
        "--nodes",
        str(have + 1),
        "--ranks-per-node",
        "1",
        "--rate",
        "1gbit",
        program=["sh", "-c", "echo threads $OMP_NUM_THREADS"],
        OMP_NUM_THREADS="",
    ).stdout
    assert have == 1 or said.count("threads 1\n") == have + 1, said


def namespaces_can_be_had():
    done = programs.call(
        *CLUSTER, "--nodes", "1", "--ranks-per-node", "1", "--rate", "1gbit", "--", "true"
    )
    if done.returncode == 2:
        print(f"skipped: {done.stderr}")
    return done.returncode == 0


shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
(FOLDER / "deck.toml").write_text(DECK, encoding="utf-8")
if not namespaces_can_be_had():
    sys.exit(SKIPPED)
for check in (
    bad_calls_are_refused,
    nodes_share_the_cores,
    exit_codes_are_passed_on,
    nodes_are_groups_and_adapters_carry_what_is_planned,
    topo_names_nodes_and_what_links_were_shaped_to,
    a_node_can_be_cut,
    a_cut_link_ends_the_case_and_the_next_one_follows,
    nothing_is_left_by_signals,
):
    began = time.time()
    check()
    print(f"{check.__name__}: {time.time() - began:.1f} s", flush=True)
