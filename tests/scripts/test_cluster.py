# SPDX-License-Identifier: BSD-3-Clause
"""scripts/cluster: the nodes are the groups, what crosses between them is what was planned,
`screen` finds what links were shaped to, and nothing is left however it ends."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import cluster
import pytest
from programs import (
    MINITAW,
    REPOSITORY,
    minitaw,
    on_ranks,
    output_of,
    process,
    refusal_of,
    refused,
    says,
)

TWO = "--nodes 2 --ranks-per-node 2 --rate 1gbit".split()
DECK = """
schedule = "tawpipe"
layers = 5
hidden = 128
heads = 2
vocab = 256
seq = 32
micro_batches = 4
warmup = 1
"""


@pytest.fixture(scope="module", autouse=True)
def namespaces():
    done = process("cluster", "--nodes=1", "--ranks-per-node=1", "--rate=1gbit", "--", "true")
    if "namespaces" in done.stderr:
        pytest.skip("no namespaces here")


def measured(steps):
    """A run of so many steps: what it said, and what the kernel counted on the adapters."""
    pathlib.Path("deck.toml").write_text(DECK)
    run = [MINITAW, "run", "deck.toml", f"--set=steps={steps}", "-o", f"{steps}.h5"]
    said = output_of(process("cluster", *TWO, "--counters=counted.json", "--", *run))
    return said, json.loads(pathlib.Path("counted.json").read_text())["nodes"]


def test_nodes_are_groups_and_adapters_carry_what_is_planned():
    """What MPI says in the beginning and the end cancels between runs of 3 and 13 steps. Of a step
    remain, beside the bytes of the plan, headers of packets, acknowledgements and MPI's own."""
    said, before = measured(3)
    shaped = "shaped, nodes=2 ranks_per_node=2 rate=1000mbit latency=0ms mtu=9000"
    says(said, "RESULT: VALID", "= 2+2", shaped, "rank 1: node 0", "rank 2: node 1")
    says(output_of(minitaw("show", "3.h5")), shaped)
    _, after = measured(13)
    plan = json.loads(output_of(minitaw("plan", "deck.toml", "--set=groups=2+2", "--json")))
    groups = plan["cases"][0]["groups"]
    assert groups[0]["bytes_out"] > 1.2 * groups[1]["bytes_out"] > 4e6, "nodes and ways differ"
    for early, late, planned in zip(before, after, groups, strict=True):
        for way, counted in (("bytes_out", "sent_bytes"), ("bytes_in", "received_bytes")):
            assert 1 <= (late[counted] - early[counted]) / 10 / planned[way] < 1.02


def screened(shaped, seconds):
    """What a screening on such links finds, and its quantities by name."""
    words = [*shaped.split(), "--", MINITAW, "screen", "--json", f"--seconds={seconds}"]
    found = json.loads(process("cluster", *words, "--rounds=2").stdout)
    return found, {quantity["name"]: quantity for quantity in found["quantities"]}


def test_screen_finds_the_slow_link():
    shaped = "--nodes 3 --ranks-per-node 2 --rate 100mbit --slow-pair 0-2=5mbit"
    found, by_name = screened(shaped, 0.02)
    # 5 Mbit/s are 0.625 MB/s, 100 Mbit/s 12.5. A busy machine leaves a part of the others' rates.
    rates = by_name["rate between nodes"]
    assert 0 < rates["lowest"] < 0.8e6 and 3 * rates["lowest"] < rates["median"]
    assert rates["highest"] < 19e6
    named = [(culprit["kind"], culprit["ranks"]) for culprit in found["culprits"]]
    # beside other programs the noise may be too large for a name
    assert ("link", [0, 4]) in named or found["loaded_ranks"], found


def test_screen_measures_rate_and_latency():
    _, by_name = screened("--nodes 2 --ranks-per-node 1 --rate 100mbit --latency 20ms", 0.2)
    assert 0.020 <= by_name["latency between nodes"]["lowest"] < 0.030
    assert 6e6 < by_name["rate between nodes"]["median"] < 19e6


def test_a_node_can_be_cut_and_exit_codes_are_passed_on():
    """All wait until node 1 finds its adapter down."""
    cut = pathlib.Path("cut").absolute()
    state = "$(ip -br link show eth0 | awk '{print $2}')"
    look = f"[ $(hostname){state} != node1DOWN ] || touch {cut}"
    wait = f"until [ -e {cut} ]; do {look}; sleep 0.1; done"
    script = f"{wait}; echo $(hostname) {state}; exit 3"
    done = process("cluster", *TWO, "--cut", "1@0.2", "--", "sh", "-c", script)
    assert done.returncode == 3
    refused(process("cluster", *TWO, "--", "/nosuch"), "'/nosuch'")
    assert sorted(done.stdout.splitlines()) == ["node0 UP"] * 2 + ["node1 DOWN"] * 2


def marked(mark):
    """Processes that a cluster has started, in whichever namespace."""
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # not ours to see, or gone
            if mark.encode() in path.read_bytes():
                yield path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left(number):
    """With the last process the kernel removes namespaces and adapters."""
    adapters = os.listdir("/sys/class/net")
    mark = f"CLUSTER_OF_A_TEST={os.getpid()}.{number}"
    words = ["env", mark, REPOSITORY / "scripts/cluster", *TWO, "--", "sh", "-c"]
    script = subprocess.Popen(
        [*words, "echo here; exec sleep 1000"], stdout=subprocess.PIPE, text=True
    )
    assert [script.stdout.readline() for _ in range(4)] == ["here\n"] * 4
    assert os.listdir("/sys/class/net") == adapters and len([*marked(mark)]) > 8
    script.send_signal(number)
    assert script.wait(60) != 0
    until = time.monotonic() + 60
    while any(marked(mark)):
        assert time.monotonic() < until, [*marked(mark)]
        time.sleep(0.1)
    assert os.listdir("/sys/class/net") == adapters


def test_nodes_share_the_cores():
    """Equally where that is possible; else all have all."""
    assert cluster.cores_of(4, [5, 6]) == [[5], [6], [5], [6]]
    assert cluster.cores_of(2, [0, 2, 4, 6]) == [[0, 2], [4, 6]]
    assert cluster.cores_of(2, [0, 1, 2]) == [[0, 1, 2]] * 2


def test_the_record_has_all_that_was_shaped():
    faults = "--latency 50us --slow 1=30mbit --slow 0=2.5mbit --slow-pair 0-1=1kbit --cut 1@0.5"
    options = cluster.parse([*TWO[:4], "--rate=1000gbit", *faults.split(), "--", "x"])
    variable = f"MINITAW_SHAPED_LINKS={cluster.links_text(options)}"
    done = on_ranks(1, "topo", "--json", variables=[variable])
    wanted = "rate=1000000mbit latency=0.05ms mtu=9000 slow=1:30mbit slow=0:2.5mbit"
    wanted = f"nodes=2 ranks_per_node=2 {wanted} slow_pair=0-1:0.001mbit cut=1:0.5s"
    assert json.loads(output_of(done))["shaped_links"] == wanted.split()


REFUSED = """
--nodes 0 --ranks-per-node 2 --rate 1mbit -- x | from 1 to 200
--nodes 2 --ranks-per-node 2 -- x              | --rate
--rate 1mbits -- x                             | '1mbits' is no rate
--latency 2 -- x                               | is no time
--cut 2@1 -- x                                 | no such nodes: 2
--cut x -- x                                   | not of the form 1@20
true                                           | true
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_bad_calls_are_refused(line):
    words, _, told = line.partition("|")
    whole = [] if "--nodes" in words else TWO
    says(refusal_of(cluster.parse, [*whole, *words.split()]), told.strip())
