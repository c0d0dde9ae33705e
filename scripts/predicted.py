#!/usr/bin/env python3
"""Predicted beside measured: scripts/predicted.py --machine FILE.toml RESULT.h5 ... [--fit RESULT.h5] [--picture FILE.png]

The results come from scripts/cluster with links of any speed; the machine file describes the processors. --fit changes two numbers of it until
the first case of that result has its measured step and its measured share of computing, and prints them: the rate of the device, and what
messages reach of the adapter's rate. All other cases are then predicted with these two numbers (docs/predict.md).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import minitaw_file  # noqa: E402

KEYS = ("schedule", "ranks", "replicas", "groups", "layers", "hidden", "heads", "kv_heads", "vocab", "ffn", "dtype", "recompute", "seq",
        "micro_batch", "micro_batches")
DEVICE_KEYS = ("device.fp32.products", "device.fp32.attention", "device.memory_rate")


def measured_cases(path):
    """The cases of a result as decks, with links, seconds of a step, and the share of the step in which ranks compute."""
    with minitaw_file.open_result(path) as file:
        links = dict(link.split("=") for link in file["provenance/links"].asstr()[:])
        for case in file["cases"].values():
            if not case["seconds"].size:
                continue
            settings = case["settings"]
            values = {}
            for key in KEYS:
                if key in settings:
                    data = settings[key]
                    text = data.dtype.kind == "O"
                    values[key] = data.asstr()[()] if text else data[()]
            values["ffn"] = int(values["ffn"].flat[0]) if hasattr(values.get("ffn"), "flat") else values.get("ffn")
            time = case["time"]
            yield {"deck": values, "links": links, "file": path, "schedule": str(values["schedule"]),
                   "seconds": statistics.median(case["seconds"][:].max(axis=1)),
                   "compute": float(time["compute"][:].mean() / time["length"][()])}


def toml(value):
    return json.dumps(value) if isinstance(value, str) else str(value)


class Predictor:
    def __init__(self, program, machine):
        self.program, self.machine = program, machine
        self.device, self.adapter = 1.0, 1.0
        with open(machine, "rb") as file:
            import tomllib
            self.content = tomllib.load(file)

    def scaled(self, key):
        node = self.content
        for part in key.split("."):
            node = node[part]
        number, unit = node.split()
        return f"{key}={float(number) * self.device} {unit}"

    def changes(self, links):
        nodes, ranks = int(links["nodes"]), int(links["ranks_per_node"])
        number = "".join(c for c in links["rate"] if c in "0123456789.")
        prefix = {"kbit": "k", "mbit": "M", "gbit": "G"}[links["rate"][len(number):]]
        cores = 2  # of the machine; nodes share them where they cannot be divided evenly
        yield f"nodes={nodes}"
        yield f"ranks_per_node={ranks}"
        yield f"between.rate={float(number) * self.adapter} {prefix}bit/s"
        even = cores % nodes == 0
        yield f"device.processors={cores // nodes if even else cores}"
        yield "device.shared_by=" + ("node" if even else "machine")
        for key in DEVICE_KEYS:
            yield self.scaled(key)

    def __call__(self, case):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as deck:
            deck.write("".join(f"{key} = {toml(value)}\n" for key, value in case["deck"].items() if value is not None))
            deck.flush()
            command = [self.program, "predict", deck.name, "--machine", self.machine, "--json"]
            for change in self.changes(case["links"]):
                command += ["--machine-set", change]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        return json.loads(done.stdout)["cases"][0]


def solve(function, low, high):
    """The place where an increasing function is 0, by halving on a logarithmic scale."""
    for _ in range(14):
        middle = (low * high) ** 0.5
        if function(middle) > 0:
            high = middle
        else:
            low = middle
    return (low * high) ** 0.5


def fit(predict, case):
    def device(value):
        predict.device = value
        return case["compute"] - predict(case)["compute"]

    def adapter(value):
        predict.adapter = value
        return case["seconds"] - predict(case)["step_s"]

    for _ in range(3):
        predict.device = solve(device, 0.05, 20)
        predict.adapter = solve(adapter, 0.5, 1.0)
    print(f"# fitted on {case['schedule']}, {case['links']['rate']}, {case['links']['nodes']} nodes: devices x {predict.device:.3f}, "
          f"adapters x {predict.adapter:.3f}")


def draw(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 5))
    for schedule in dict.fromkeys(row["schedule"] for row in rows):
        own = [row for row in rows if row["schedule"] == schedule]
        axes.loglog([r["seconds"] for r in own], [r["predicted"] for r in own], "o", label=schedule, markersize=5)
    ends = [min(r["seconds"] for r in rows) * 0.8, max(r["seconds"] for r in rows) * 1.25]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [0.88 * e for e in ends], [1.12 * e for e in ends], color="0.9")
    axes.set(xlabel="measured step, s", ylabel="predicted step, s", title="grey: 12 % off")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


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
        fit(predict, next(measured_cases(options.fit)))
    rows = []
    print("| nodes | link | schedule | measured, s | predicted, s | error |\n|---|---|---|---|---|---|")
    for path in options.results:
        for case in measured_cases(path):
            case["predicted"] = predict(case)["step_s"]
            case["error"] = case["predicted"] / case["seconds"] - 1
            rows.append(case)
            print(f"| {case['links']['nodes']} x {case['links']['ranks_per_node']} | {case['links']['rate']} | `{case['schedule']}` | "
                  f"{case['seconds']:.2f} | {case['predicted']:.2f} | {100 * case['error']:+.1f} % |")
    errors = sorted(abs(row["error"]) for row in rows)
    print(f"\nmedian error {100 * statistics.median(errors):.1f} %, worst {100 * errors[-1]:.1f} %, of {len(rows)} cases")
    wrong = [(a["schedule"], b["schedule"], a["file"]) for a in rows for b in rows
             if a["file"] == b["file"] and a["seconds"] * 1.05 < b["seconds"] and a["predicted"] >= b["predicted"]]
    print("order kept wherever schedules differ by more than 5 %" if not wrong else f"order not kept: {wrong}")
    if options.picture:
        draw(rows, options.picture)


if __name__ == "__main__":
    main()
