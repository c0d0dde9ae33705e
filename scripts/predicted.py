#!/usr/bin/env python3
"""Predicted beside measured: scripts/predicted.py --machine FILE.toml RESULT.h5 ... [--fit RESULT.h5] [--picture FILE.png]

The results come from scripts/cluster with links of any speed; the machine file describes the processors. --fit changes two numbers of it until
the first case of that result has its measured step and its measured share of computing, and prints them: the rate of the device, and what
messages reach of the adapter's rate. All other cases are then predicted with these two numbers (docs/predict.md).
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib

sys.dont_write_bytecode = True
from minitaw.record import load  # noqa: E402
from minitaw.timeline import deck_of  # noqa: E402

DEVICE_KEYS = ("device.fp32.products", "device.fp32.attention", "device.memory_rate")
CORES = 2  # of the machine; nodes share them where they cannot be divided evenly


class Predictor:
    def __init__(self, program, machine):
        self.program, self.machine = program, machine
        self.device, self.adapter = 1.0, 1.0
        self.content = tomllib.loads(pathlib.Path(machine).read_text(encoding="utf-8"))

    def changes(self, links):
        nodes = int(links["nodes"])
        number, unit = re.fullmatch(r"([\d.]+)(\w+)", links["rate"]).groups()
        prefix = {"kbit": "k", "mbit": "M", "gbit": "G"}[unit]
        yield from (f"nodes={nodes}", f"ranks_per_node={links['ranks_per_node']}", f"between.rate={float(number) * self.adapter} {prefix}bit/s",
                    f"device.processors={CORES if CORES % nodes else CORES // nodes}", f"device.shared_by={'machine' if CORES % nodes else 'node'}")
        for key in DEVICE_KEYS:
            node = self.content
            for part in key.split("."):
                node = node[part]
            number, unit = node.split()
            yield f"{key}={float(number) * self.device} {unit}"

    def __call__(self, case):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as deck:
            deck.write(deck_of(case))
            deck.flush()
            command = [self.program, "predict", deck.name, "--machine", self.machine, "--json"]
            for change in self.changes(links_of(case)):
                command += ["--machine-set", change]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        return json.loads(done.stdout)["cases"][0]


def links_of(case):
    return dict(link.split("=") for link in case.session["links"])


def solve(function, low, high):
    """The place where an increasing function is 0, by halving on a logarithmic scale."""
    for _ in range(14):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return (low * high) ** 0.5


def fit(predict, case):
    def device(value):
        predict.device = value
        return 1 - case["exposed_share"] - case["idle_share"] - predict(case)["compute"]

    def adapter(value):
        predict.adapter = value
        return case["median_s"] - predict(case)["step_s"]

    for _ in range(3):
        predict.device = solve(device, 0.05, 20)
        predict.adapter = solve(adapter, 0.5, 1.0)
    links = links_of(case)
    print(f"# fitted on {case['schedule']}, {links['rate']}, {links['nodes']} nodes: devices x {predict.device:.3f}, adapters x {predict.adapter:.3f}")


def draw(rows, path):
    from minitaw.figures import new_figure, save

    drawn = new_figure(5, 5)
    axes = drawn.subplots()
    for schedule in dict.fromkeys(case["schedule"] for case, _ in rows):
        own = [(case["median_s"], predicted) for case, predicted in rows if case["schedule"] == schedule]
        axes.loglog(*zip(*own), "o", label=schedule, markersize=5)
    ends = [min(case["median_s"] for case, _ in rows) * 0.8, max(case["median_s"] for case, _ in rows) * 1.25]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [0.88 * e for e in ends], [1.12 * e for e in ends], color="0.9")
    axes.set(xlabel="measured step [s]", ylabel="predicted step [s]", title="grey: 12 % off")
    axes.legend()
    save(drawn, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--fit", help="result whose first case the machine is calibrated with")
    parser.add_argument("--minitaw", default="build/host/minitaw")
    parser.add_argument("--picture")
    options = parser.parse_args()
    predict = Predictor(options.minitaw, options.machine)
    if options.fit:
        fit(predict, load(options.fit).cases[0])
    rows = []
    print("| nodes | link | schedule | measured, s | predicted, s | error |\n|---|---|---|---|---|---|")
    for case in (case for path in options.results for case in load(path).cases if len(case.samples)):
        rows.append((case, predict(case)["step_s"]))
        links, measured, predicted = links_of(case), case["median_s"], rows[-1][1]
        print(f"| {links['nodes']} x {links['ranks_per_node']} | {links['rate']} | `{case['schedule']}` | {measured:.2f} | {predicted:.2f} | "
              f"{100 * (predicted / measured - 1):+.1f} % |")
    errors = sorted(abs(predicted / case["median_s"] - 1) for case, predicted in rows)
    print(f"\nmedian error {100 * statistics.median(errors):.1f} %, worst {100 * errors[-1]:.1f} %, of {len(rows)} cases")
    wrong = [(a["schedule"], b["schedule"], str(a.file.path)) for a, p in rows for b, q in rows
             if a.file is b.file and a["median_s"] * 1.05 < b["median_s"] and p >= q]
    print("order kept wherever schedules differ by more than 5 %" if not wrong else f"order not kept: {wrong}")
    if options.picture:
        draw(rows, options.picture)


main()
