# SPDX-License-Identifier: BSD-3-Clause
"""scripts/fit-machine on fixed numbers, whose machine file minitaw predict accepts; cases that do
not fit; and the timelines that predict writes."""

import json
import re
from pathlib import Path

import pytest
from minitaw.events import predicted_timelines
from programs import BUILD, REPOSITORY, minitaw, output_of, refused, script, settings

pytestmark = pytest.mark.skipif(
    not (BUILD / "bin/minitaw-predict").exists(), reason="built without SimGrid"
)
# Of minitaw_kernels: FLOPs, bytes, seconds.
KERNELS = """
linear/wo/fp32/forward 1e9 1e6 1e-2
linear/w2/fp32/forward 4e9 1e6 2e-2
linear/w1/fp32/forward 1.05e9 1e6 1.05e-2
linear/wo/bf16/forward 1e9 1e6 1e-3
attention/cudnn/bf16/forward 8e9 1e6 1e-2
attention/host/bf16/forward 8e9 1e6 1
attention/host/fp32/forward 3e9 1e6 1e-1
attention/portable/fp32/forward 3e9 1e6 1
attention/host/fp32/backward 3e9 1e6 2e-1
rmsnorm/fp32/forward 1 1e7 1e-3
swiglu/fp32/forward 1 3e7 7e-3
"""
INSIDE = {"rate inside the node": 2e9}
BETWEEN = {"rate between nodes": 2.5e8, "latency between nodes": 5e-6}
MADE = """# Measured: links, kernels.
nodes = 3
ranks_per_node = 2

[device]
memory_rate = "5 GB/s"

[device.fp32]
products = [["1.05 GFLOP", "100 GFLOP/s"], ["4 GFLOP", "200 GFLOP/s"]]
attention = "30 GFLOP/s"
attention_backward = "15 GFLOP/s"

[device.bf16]
products = [["1 GFLOP", "1000 GFLOP/s"]]
attention = "800 GFLOP/s"

[inside]
kind = "switch"
rate = "2 GB/s"

[between]
adapters = 2
rate = "0.25 GB/s"
latency = "5 us"
"""


def fit(*words):
    return script("fit-machine", *words, "--kernels", "kernels")


def write_links(name, nodes, measured):
    quantities = [{"name": name, "lowest": 1, "median": value} for name, value in measured.items()]
    Path(name).write_text(json.dumps({"nodes": nodes, "adapters": 2, "quantities": quantities}))


@pytest.fixture
def kernels():
    found = [{"name": "limit/triad"}]
    for line in KERNELS.strip().split("\n"):
        name, *figures = line.split()
        flops, size, seconds = map(float, figures)
        rates = {"FLOP/s": flops / seconds, "B/s": size / seconds, "MiB": size / 2**20}
        found.append({"name": name} | rates)
    Path("kernels").write_text(json.dumps({"benchmarks": found}))
    write_links("links", [2, 2, 2], INSIDE | BETWEEN)


def test_a_machine_file_has_the_rates_that_were_measured(kernels):
    """100 GFLOP/s at a GFLOP, twice that at 4; memory at 10 and 4.3 GB/s, 5 together; medians of
    links."""
    text = output_of(fit("--links", "links"))
    assert text == MADE
    Path("machine.toml").write_text(text)
    (case,) = predicted("--machine=machine.toml", "--set=schedule=fsdp", "--set=ranks=4")["cases"]
    assert case["step_s"] > 0


def test_nodes_must_be_alike(kernels):
    write_links("unlike", [2, 1], INSIDE | BETWEEN)
    refused(fit("--links", "unlike"), "as many ranks in each node", name="fit-machine")
    write_links("alone", [1, 1], BETWEEN)
    assert "[inside]" not in output_of(fit("--links", "alone"))


def test_a_job_that_finds_something_slow_has_rates_too(kernels):
    launch = Path("launch")
    launch.write_text('#!/bin/sh\n[ "$4" = --json ] && cat links; exit 1\n')
    launch.chmod(0o755)
    text = output_of(fit("deck", "--launch=./launch x"))
    assert text == MADE.replace("links, kernels", "deck")
    refused(fit("deck", "--launch=./launch"), "screen --json failed", name="fit-machine")


# minitaw predict.

MACHINES = REPOSITORY / "inputs/machines"


def predicted(*words):
    deck = REPOSITORY / "inputs/wires/nodes.toml"
    return json.loads(output_of(minitaw("predict", deck, "--json", *words)))


def test_cases_that_do_not_fit_are_left_out():
    """The rest is predicted as with them."""
    three = ("--set=schedule=tawpipe,fsdp,1f1b", f"--machine={MACHINES / 'cluster-2x2.toml'}")
    every = predicted(*three)["cases"]
    _, middle, most = sorted(case["memory_bytes"] for case in every)
    size = f"--machine-set=device.memory={(middle + most) / 2e6:.3f} MB"
    fitting = predicted(*three, size, "--fitting")
    kept = [case | {"fits": True} for case in every if case["memory_bytes"] < most]
    assert len(kept) == 2
    assert fitting["cases"] == kept
    assert "left out for lack of memory: 1 case" in fitting["notes"]


DECK = "ranks = 4\ngroups = 2\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\ndtype = 'bf16'\n"


def timelines(**changes):
    Path("deck.toml").write_text(DECK)
    words = ("deck.toml", "--machine", MACHINES / "dgx-h100.toml", "--timeline=step.json")
    output_of(minitaw("predict", *words, *settings(**changes)))
    return predicted_timelines("step.json")


def test_a_predicted_step_has_every_action_of_the_program():
    (one,) = timelines()
    program = output_of(minitaw("plan", "deck.toml", "--program", "--adapters=8"))
    assert len(one.events) == len(re.findall(r"^ +-?[0-9]+ [a-z]", program, re.MULTILINE))


def test_of_replicas_that_are_alike_one_is_predicted():
    (alike,) = timelines(ranks=24, groups=3, replicas=3, micro_batches=24, layers=8)
    title = "tawpipe: 8 ranks in groups 8, the first of 3 replicas (predicted)"
    assert alike.heading == title
    assert "DGX H100" in alike.note


def test_all_cases_of_a_deck_are_predicted_in_its_order():
    found = timelines(schedule="tawpipe,zb1,weipipe")
    schedules = [one.heading.partition(":")[0] for one in found]
    assert schedules == ["tawpipe", "zb1", "weipipe"]
