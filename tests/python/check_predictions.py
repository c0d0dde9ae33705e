# SPDX-License-Identifier: BSD-3-Clause
"""scripts/fit-machine on fixed numbers, and predictions on a small cluster. Called with the program
too, which must accept the machine file that is made."""

import json
import sys

from support import FOLDER, REPOSITORY, accepted, programs, refused

PROGRAM = sys.argv[4]
MACHINE = FOLDER / "cluster.toml"
TEXT = (
    'nodes = 2\nranks_per_node = 2\n[device]\nmemory_rate = "5 GB/s"\nprocessors = 1\n'
    'moving = "2 GB/s"\n[device.fp32]\n'
    'products = "60 GFLOP/s"\nattention = "30 GFLOP/s"\n[inside]\nrate = "4 GB/s"\n[between]\n'
    'rate = "100 Mbit/s"\n'
)
# Of minitaw_kernels: FLOPs, bytes, seconds.
KERNELS = {
    "linear/wo/fp32/forward": (1e9, 1e6, 1e-2),
    "linear/w2/fp32/forward": (4e9, 1e6, 2e-2),
    "linear/w1/fp32/forward": (1.05e9, 1e6, 1.05e-2),
    "linear/wo/bf16/forward": (1e9, 1e6, 1e-3),
    "attention/cudnn/bf16/forward": (8e9, 1e6, 1e-2),
    "attention/host/bf16/forward": (8e9, 1e6, 1),
    "attention/host/fp32/forward": (3e9, 1e6, 1e-1),
    "attention/portable/fp32/forward": (3e9, 1e6, 1),
    "attention/host/fp32/backward": (3e9, 1e6, 2e-1),
    "rmsnorm/fp32/forward": (1, 1e7, 1e-3),
    "swiglu/fp32/forward": (1, 3e7, 7e-3),
}
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


def write_json(name, content):
    (FOLDER / name).write_text(json.dumps(content), encoding="utf-8")


def write_links(name, nodes, measured):
    quantities = [{"name": name, "lowest": 1, "median": value} for name, value in measured.items()]
    write_json(name, {"nodes": nodes, "adapters": 2, "quantities": quantities})


def machine_file():
    """100 GFLOP/s at a GFLOP, twice that at 4; memory at 10 and 4.3 GB/s, 5 together; medians of
    links. The program reads it."""
    kernels = [
        {"name": name, "FLOP/s": flops / seconds, "B/s": size / seconds, "MiB": size / 2**20}
        for name, (flops, size, seconds) in KERNELS.items()
    ]
    write_json("kernels", {"benchmarks": [{"name": "limit/triad"}, *kernels]})
    write_links("links", [2, 2, 2], INSIDE | BETWEEN)
    write_links("unlike", [2, 1], INSIDE | BETWEEN)
    write_links("alone", [1, 1], BETWEEN)

    def fit(*options):
        return ("fit-machine", *options, "--kernels", "kernels")

    text = accepted(*fit("--links", "links"))
    assert text == MADE, text
    assert "[inside]" not in accepted(*fit("--links", "alone"))
    refused(*fit("--links", "unlike"), says="has as many ranks in each node")

    launch = FOLDER / "launch"
    launch.write_text('#!/bin/sh\n[ "$4" = --json ] && cat links; exit 1\n', encoding="utf-8")
    launch.chmod(0o755)
    launched = accepted(*fit("a deck", "--launch", "./launch x"))
    assert launched == MADE.replace("links, kernels", "a deck"), launched
    refused(*fit("a deck", "--launch", "./launch"), says="screen --json failed")

    (FOLDER / "machine.toml").write_text(text, encoding="utf-8")
    (case,) = predicted("machine.toml", *programs.settings(schedule="fsdp", ranks=4))["cases"]
    assert case["step_s"] > 0, case


def predict(path, *arguments):
    deck = REPOSITORY / "inputs/wires/nodes.toml"
    return programs.call(PROGRAM, "predict", deck, "--machine", path, *arguments)


def predicted(path, *arguments):
    return json.loads(programs.output_of(predict(path, *arguments, "--json")))


def memory(size):
    return "--machine-set", f"device.memory={size}"


def cases_that_do_not_fit_are_left_out():
    """Those with `fits: false`, and no others; the rest is predicted as with them."""
    words = (MACHINE, *programs.settings(schedule="tawpipe,fsdp,1f1b"))
    every = predicted(*words)["cases"]
    assert [case["fits"] for case in every] == [None] * 3, "of a machine of unknown memory"
    _, middle, most = sorted(case["memory_bytes"] for case in every)
    size = memory(f"{(middle + most) / 2e6:.3f} MB")
    whole, fitting = (predicted(*words, *size, *more) for more in ((), ("--fitting",)))
    kept = [case for case in whole["cases"] if case["fits"]]
    assert len(kept) == 2 and fitting["cases"] == kept, fitting["cases"]
    notes = [note for note in fitting["notes"] if note not in whole["notes"]]
    assert notes == ["left out for lack of memory: 1 case"], fitting["notes"]


def refusals():
    """Bad files: tests/instruments/predict."""
    for words, says in ((programs.settings(ranks=8), "8"), (memory(""), "device.memory")):
        programs.refused(predict(MACHINE, *words), says, begun=True)


MACHINE.write_text(TEXT, encoding="utf-8")
programs.run_all(machine_file, cases_that_do_not_fit_are_left_out, refusals)
