# SPDX-License-Identifier: BSD-3-Clause
"""scripts/fit-machine and benchmarks/results/predictions.py on fixed numbers: a stand-in for
`minitaw predict` whose steps follow a formula. Called with the program too, which must accept the machine
file that is made."""

import json
import sys

from support import FOLDER, REPOSITORY, accepted, programs, refusal_of, refused

sys.path.append(str(REPOSITORY / "benchmarks/results"))
import experiments  # noqa: E402
import predictions  # noqa: E402
from schedule_map import best_of  # noqa: E402

PROGRAM = sys.argv[4]
MACHINE = FOLDER / "cluster.toml"
TEXT = (
    'nodes = 2\nranks_per_node = 2\n[device]\nmemory_rate = "5 GB/s"\nprocessors = 1\n'
    'moving = "2 GB/s"\n[device.fp32]\n'
    'products = "60 GFLOP/s"\nattention = "30 GFLOP/s"\n[inside]\nrate = "4 GB/s"\n[between]\n'
    'rate = "100 Mbit/s"\n'
)


class Case(dict):
    def __init__(self, rate, nodes, **columns):
        super().__init__(schedule="tawpipe", **columns)
        self.links = {"nodes": str(nodes), "ranks_per_node": "2", "rate": rate}


class Formula(predictions.Cluster):
    """Computing takes 2 s at the file's rates, moving 1 s, and both share a core; the link adds the
    rest."""

    def __call__(self, case):
        computing, moving = 2 / self.device, 1 / self.moving
        step = 1.5 + computing + 0.5 * moving
        return {"compute": (computing + 0.25 * moving) / step, "step_s": step}


def fitting():
    """Two numbers are planted, and found from a step and a share of computing."""
    planted, cluster = Formula("", MACHINE, 0.976), Formula("", MACHINE, 0.976)
    planted.device, planted.moving = 0.83, 0.45
    truth = planted(None)
    case = Case(
        "400mbit", 2, median_s=truth["step_s"], exposed_share=0.5, idle_share=0.5 - truth["compute"]
    )
    predictions.fit(cluster, case, "device", "moving")
    assert abs(cluster.device / 0.83 - 1) < 0.02 and abs(cluster.moving / 0.45 - 1) < 0.05, (
        cluster.device,
        cluster.moving,
    )
    case["median_s"] = 1.0  # the link alone takes 1.5 s
    assert "no factor from 0.1 to 10 on moving" in refusal_of(
        predictions.fit, cluster, case, "device", "moving"
    ), "a fit that ends at its bounds"


def links():
    cluster = predictions.Cluster("", MACHINE, 0.9)
    cluster.device = 2
    two = cluster.changes(Case("400mbit", 2).links)
    assert "between.rate=360.0 Mbit/s" in two, two
    assert "device.processors=1" in two, two
    assert "device.pools=2" in two, two
    assert "device.fp32.products=120.0 GFLOP/s" in two and "device.moving=2.0 GB/s" in two, two
    three = cluster.changes(Case("1gbit", 3).links)
    assert "between.rate=900.0 Mbit/s" in three, three
    assert "device.processors=2" in three, three
    assert "device.pools=1" in three, three


def judging():
    rows = [
        ("2", "a", "x", 1.0, 1.1),
        ("2", "a", "y", 1.04, 1.0),
        ("2", "a", "z", 2.0, 1.0),
        ("2", "b", "x", 0.5, 0.5),
    ]
    median, worst, wrong = predictions.judge([predictions.Pair(*row) for row in rows])
    assert abs(median - (0.1 + 0.04 / 1.04) / 2) < 1e-12 and worst == 0.5, (median, worst)
    assert wrong == [
        ("x", "z", "2", "a"),
        ("y", "z", "2", "a"),
    ], wrong  # x and y are too close to count, b is another link


def best():
    def case(schedule, rate, fits=True):
        return {"settings": {"schedule": schedule}, "tokens_per_s": rate, "fits": fits}

    found = best_of(
        [
            case("fsdp", 5),
            case("fsdp:hierarchical=on", 7),
            case("zb1", 6),
            case("tawpipe", 9, False),
            case("1f1b", 4),
        ]
    )
    assert [(kind, rate) for kind, rate, _ in found] == [
        ("FSDP", 7),
        ("1F1B, zero bubble", 6),
    ], found


def kernel(name, flops, size, seconds):
    """As minitaw_kernels reports it; size in bytes."""
    return {"name": name, "FLOP/s": flops / seconds, "B/s": size / seconds, "MiB": size / 2**20}


KERNELS = [
    {"name": "limit/triad"},
    kernel("linear/wo/fp32/forward", 1e9, 1e6, 1e-2),
    kernel("linear/w2/fp32/forward", 4e9, 1e6, 2e-2),
    kernel("linear/w1/fp32/forward", 1.05e9, 1e6, 1.05e-2),
    kernel("linear/wo/bf16/forward", 1e9, 1e6, 1e-3),
    kernel("attention/cudnn/bf16/forward", 8e9, 1e6, 1e-2),
    kernel("attention/host/bf16/forward", 8e9, 1e6, 1),
    kernel("attention/host/fp32/forward", 3e9, 1e6, 1e-1),
    kernel("attention/portable/fp32/forward", 3e9, 1e6, 1),
    kernel("attention/host/fp32/backward", 3e9, 1e6, 2e-1),
    kernel("rmsnorm/fp32/forward", 1, 1e7, 1e-3),
    kernel("swiglu/fp32/forward", 1, 3e7, 7e-3),
]
INSIDE = {"latency_s": 2e-6, "shared_bytes_per_s": 2e9, "both_bytes_per_s": 1e9}
BETWEEN = {"latency_s": 5e-6, "shared_bytes_per_s": 7e8, "both_bytes_per_s": 5e8}
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
latency = "2 us"

[between]
adapters = 2
rate = "0.25 GB/s"
latency = "5 us"
"""


def write_json(name, content):
    (FOLDER / name).write_text(json.dumps(content), encoding="utf-8")


def write_links(name, groups, inside):
    write_json(name, {"groups": groups, "adapters": 2, "inside": inside, "between": BETWEEN})


def machine_file():
    """100 GFLOP/s at a GFLOP, twice that at 4; memory at 10 and 4.3 GB/s, 5 together; links shared
    by all, those between nodes evenly by both adapters. The program reads it."""
    write_json("kernels", {"benchmarks": KERNELS})
    write_links("links", [2, 2, 2], INSIDE)
    write_links("unlike", [2, 1], None)
    write_links("alone", [1, 1], None)

    def fit(*options):
        return ("fit-machine", *options, "--kernels", "kernels")

    text = accepted(*fit("--links", "links"))
    assert text == MADE, text
    assert "[inside]" not in accepted(*fit("--links", "alone"))
    refused(*fit("--links", "unlike"), says="has as many ranks in each node")
    refused("fit-machine", "--links", "links", says="no deck")

    launch = FOLDER / "launch"
    launch.write_text('#!/bin/sh\n[ "$4" = --json ] && cat links\n', encoding="utf-8")
    launch.chmod(0o755)
    launched = accepted(*fit("a deck", "--launch", "./launch x"))
    assert launched == MADE.replace("links, kernels", "a deck"), launched
    refused(*fit("a deck", "--launch", "./launch"), says="topo --json failed")

    (FOLDER / "machine.toml").write_text(text, encoding="utf-8")
    done = predict("machine.toml", *programs.settings(schedule="fsdp", ranks=4), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["cases"][0]["step_s"] > 0, done.stderr


def predict(path, *arguments):
    deck = REPOSITORY / "inputs/wires/nodes.toml"
    return programs.call(PROGRAM, "predict", deck, "--machine", path, *arguments)


def cases_that_do_not_fit_are_left_out():
    """Those with `fits: false`, and no others; the rest is predicted as with them."""
    words = (MACHINE, *programs.settings(schedule="tawpipe,fsdp,1f1b"), "--json")
    every = json.loads(predict(*words).stdout)["cases"]
    sizes = sorted(case["memory_bytes"] for case in every)
    memory = ("--machine-set", f"device.memory={(sizes[1] + sizes[2]) / 2e6:.3f} MB")
    whole, fitting = (
        json.loads(predict(*words, *memory, *more).stdout) for more in ((), ("--fitting",))
    )
    kept = [case for case in whole["cases"] if case["fits"]]
    assert len(kept) == 2 and fitting["cases"] == kept, (sizes, fitting["cases"])
    notes = [note for note in fitting["notes"] if note not in whole["notes"]]
    assert notes == ["left out for lack of memory: 1 case"], fitting["notes"]


def memory_and_transfers():
    """Whether a case fits, and the time of transfers: a sum over the events of the timeline."""
    for change, fits in (
        ((), None),
        (("--machine-set", "device.memory=1 GB"), True),
        (("--machine-set", "device.memory=1 MB"), False),
    ):
        done = predict(
            MACHINE,
            *programs.settings(schedule="tawpipe"),
            "--json",
            "--timeline",
            FOLDER / "step.json",
            *change,
        )
        case = json.loads(done.stdout)["cases"][0]
        assert case["fits"] is fits, (change, case["fits"])
    timeline = json.loads((FOLDER / "step.json").read_text(encoding="utf-8"))["timelines"][0]
    add, events = timeline["codes"]["kind"].index("add"), timeline["events"]
    moving = sum(
        end - begin
        for begin, end, lane, kind in zip(
            *(events[name] for name in ("begin", "end", "lane", "kind"))
        )
        if lane != 0 and kind != add
    )
    assert abs(case["transfer_s"] * 4 / moving - 1) < 1e-4, (case["transfer_s"], moving)


def experiment_rates():
    """Relative to a schedule at a place, to the schedule at the same place, and each to its own at
    the last place."""
    cases = [
        experiments.Figures(place, name, rate, idle=rate / 100)
        for place, rates in (("a", (2, 8)), ("b", (5, 10)))
        for name, rate in zip("xy", rates)
    ]
    for reference, expected in (
        (("y", "a"), (0.25, 0.625, 1, 1.25)),
        (("y", None), (0.25, 0.5, 1, 1)),
        ((None, -1), (0.4, 1, 0.8, 1)),
    ):
        found = experiments.relative(
            experiments.Experiment("", "", "", {}, {}, reference, "idle"), cases
        )
        assert [cell for line in found.values() for cell in line.values()] == list(
            zip(expected, (0.02, 0.05, 0.08, 0.1))
        ), (reference, found)


def experiment_decks():
    """Each launch of an experiment is one that the program accepts."""
    for name, experiment in experiments.EXPERIMENTS.items():
        for deck, points in (
            (f"paper/{experiment.deck}", experiment.predicted),
            ("small/groups", experiment.measured),
        ):
            for point in points.values():
                ranks = (
                    [] if deck.startswith("paper") else [f"ranks={point.nodes[0] * point.nodes[1]}"]
                )
                words = [
                    word for setting in [*ranks, *point.settings] for word in ("--set", setting)
                ]
                done = programs.call(PROGRAM, "plan", REPOSITORY / f"inputs/{deck}.toml", *words)
                assert done.returncode == 0, (name, point, done.stderr)


def refusals():
    """Ranks that do not fit, and a change without a value: one sentence, exit code 2. Bad files:
    tests/instruments/predict."""
    for options, words in (
        (programs.settings(ranks=8), "8"),
        (("--machine-set", "between.rate"), "key=value"),
    ):
        programs.refused(predict(MACHINE, *options), words, begun=True)


MACHINE.write_text(TEXT, encoding="utf-8")
for check in (
    fitting,
    links,
    judging,
    best,
    machine_file,
    memory_and_transfers,
    cases_that_do_not_fit_are_left_out,
    experiment_rates,
    experiment_decks,
    refusals,
):
    check()
