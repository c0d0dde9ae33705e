#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The predictions of docs/predict.md: beside measurements, and on machines of many sizes. Those of
docs/paper.md: paper.py.

    scripts/env benchmarks/results/predictions.py measured --machine FILE.toml RESULT ...
        [--fit RESULT [--fit-schedule SCHEDULE]] [--cores RESULT ...] [--picture FILE.png]
    scripts/env benchmarks/results/predictions.py map --picture FILE.png      # takes minutes

`measured` takes results of scripts/cluster with links of any speed, as FILE.h5 or as the table of
scripts/export; the machine file describes the processors. --fit changes two numbers of it until the
first case of that result (or that of a schedule) has its measured step and its measured share of
computing, and prints them: the rate of the device, and what a processor moves in a second. All
other cases are then predicted. --cores adds results of a day when the cores of a virtual machine
had another speed: it is fitted on the step of 1F1B, or else of the first case. --skip leaves out
schedules whose names begin so. `map` prints and draws the best schedule for 8 to 4096 devices and
four links.
"""

import csv
import functools
import json
import pathlib
import re
import statistics
import tempfile
import tomllib
from dataclasses import dataclass

from matplotlib.ticker import NullLocator
from pages import add_program, end, named_if_kept, parser_of, predict, print_table
from schedule_map import map_of_schedules
from cluster import cores_of
from minitaw.command import BadInput
from minitaw.drawing import COLOURS, MARKERS, legend_below, new_figure, save
from minitaw.numbers import bits_per_second
from minitaw.record import Case, Result, load

MEGA = 1e6
DEVICE_KEYS = ("device.fp32.products", "device.fp32.attention", "device.memory_rate")
CORES = 2  # of the machine; nodes share them where they cannot be divided evenly
DECK_KEYS = ("schedule", "ranks", "groups", "replicas", "layers", "hidden", "heads", "kv_heads",
             "vocab", "dtype", "recompute", "seq", "micro_batch", "micro_batches", "steps",
             "warmup")  # fmt: skip
# Settings that may differ from block to block, or from rank to rank: key for one, for several.
LISTS = {
    "ffn": ("ffn", "ffn_per_layer"),
    "micro_batch_per_rank": ("micro_batch", "micro_batch_per_rank"),
}
HALVINGS, FACTORS = 14, (0.1, 10)  # of the search for a factor
ROUNDS = 4  # of a search for two factors, one after the other
NOT_EQUAL = 1.05  # steps of which one is so many times the other have an order
GREY = 0.12  # of a picture: errors up to here
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)  # seconds


# Measured cases.


def deck_of(case):
    """A deck of this case alone."""
    keys = {name: case[name] for name in DECK_KEYS}
    for setting, (one, several) in LISTS.items():
        sizes = [int(size) for size in case[setting].split(",") if size]
        if len(sizes) > 1:
            keys.pop(one, None)
            keys[several] = sizes
        elif sizes:
            keys[one] = sizes[0]
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in keys.items())


def number_or_text(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def measured_cases(path):
    """Of a result, or of the table that scripts/export made of it; the name of a table tells its
    links: main-2x2-100mbit.csv."""
    name = re.search(r"(\d+)x(\d+)-(\w+)\.csv$", path)
    if not name:
        return [case for case in load(path).cases if len(case.samples)]
    links = zip(("nodes", "ranks_per_node", "rate"), name.groups())
    session = {"links": [f"{key}={value}" for key, value in links]}
    result = Result(pathlib.Path(path), sessions=[session])
    with open(path, encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            row = {key.split()[0]: number_or_text(text) for key, text in line.items()}
            result.cases.append(Case(result, row | {"ffn": str(row["ffn"]), "session": 0}))
    return result.cases


def mbits(links):
    """Of each node's adapter."""
    return bits_per_second(links["rate"]) / MEGA


# The machine.


def pools(nodes):
    """Cores as scripts/cluster gives them to nodes: how many pools, and cores of each."""
    shares = {tuple(share) for share in cores_of(nodes, list(range(CORES)))}
    return len(shares), CORES // len(shares)


class Cluster:
    """Nodes made of one machine. `device`, `moving` and `cores`, which is on both, are factors on
    what its file says, `reach` what messages reach of an adapter's rate."""

    def __init__(self, program, machine, reach):
        self.program, self.machine, self.reach = program, machine, reach
        self.device = self.moving = self.cores = 1.0
        self.content = tomllib.loads(pathlib.Path(machine).read_text(encoding="utf-8"))

    def scaled(self, key, factor):
        value = functools.reduce(dict.get, key.split("."), self.content)
        number, unit = value.split()
        return f"{key}={float(number) * factor} {unit}"

    def changes(self, links):
        nodes = int(links["nodes"])
        count, cores = pools(nodes)
        return [
            f"nodes={nodes}",
            f"ranks_per_node={links['ranks_per_node']}",
            f"between.rate={mbits(links) * self.reach} Mbit/s",
            f"device.pools={count}",
            f"device.processors={cores}",
            self.scaled("device.moving", self.cores * self.moving),
            *(self.scaled(key, self.cores * self.device) for key in DEVICE_KEYS),
        ]

    def __call__(self, case):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as deck:
            deck.write(deck_of(case))
            deck.flush()
            changes = self.changes(case.links)
            return predict(self.program, deck.name, self.machine, changes=changes)[0]


# Fitting.


def solve(function):
    """The place where a falling function is 0, by halving on a logarithmic scale, and whether it
    lies inside of the bounds."""
    low, high = FACTORS
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    inside = low > FACTORS[0] and high < FACTORS[1]
    return middle, inside  # the function was called with it last


def fit(cluster, case, *numbers):
    """Changes numbers of the cluster until the case has its measured step, but `device` until it
    has its measured share of computing."""
    computing = 1 - case["exposed_share"] - case["idle_share"]

    def excess(number, value):
        setattr(cluster, number, value)
        predicted = cluster(case)
        if number == "device":
            return predicted["compute"] - computing
        return predicted["step_s"] - case["median_s"]

    for _ in range(ROUNDS if len(numbers) > 1 else 1):
        found = {number: solve(functools.partial(excess, number)) for number in numbers}
    what = f"{case['schedule']}, {case.links['rate']}, {case.links['nodes']} nodes"
    outside = [number for number, (_, inside) in found.items() if not inside]
    if outside:
        low, high = FACTORS
        raise BadInput(
            f"--fit: {what}: no factor from {low} to {high} on {' and '.join(outside)} gives what "
            "was measured; take a case in which both computing and links take much of the step"
        )
    factors = ", ".join(f"{number} x {getattr(cluster, number):.3f}" for number in numbers)
    print(f"fitted on {what}: {factors}\n")


def case_of(paths, *schedules):
    """The first case of the first of these schedules that there is; None: of any."""
    cases = [case for path in paths for case in measured_cases(path)]
    for schedule in schedules:
        for case in cases:
            if schedule in (None, case["schedule"]):
                return case
    raise BadInput(f"{', '.join(paths)}: no case of {schedules[0]}, which the machine is fitted on")


# Beside measurements.


@dataclass
class Pair:
    """A case, its measured step and its predicted one."""

    nodes: str  # "2 x 2"
    rate: str  # "100mbit"
    schedule: str
    measured: float  # seconds
    predicted: float

    @property
    def links(self):
        return self.nodes, self.rate

    @property
    def error(self):
        return self.predicted / self.measured - 1


def judge(pairs):
    """Median and largest error, and pairs of schedules on the same links in the wrong order
    although they differ by more than 5 %."""
    errors = sorted(abs(pair.error) for pair in pairs)
    wrong = []
    for a in pairs:
        for b in pairs:
            is_faster = a.links == b.links and a.measured * NOT_EQUAL < b.measured
            if is_faster and a.predicted >= b.predicted:
                wrong.append((a.schedule, b.schedule, *a.links))
    return statistics.median(errors), errors[-1], wrong


def draw_measured(pairs, path):
    drawn = new_figure(5, 5)
    axes = drawn.subplots()
    for number, schedule in enumerate(dict.fromkeys(pair.schedule for pair in pairs)):
        some = [pair for pair in pairs if pair.schedule == schedule]
        axes.loglog(
            [pair.measured for pair in some],
            [pair.predicted for pair in some],
            MARKERS[number // 2 % len(MARKERS)],
            color=COLOURS[number % len(COLOURS)],
            label=named_if_kept(schedule, "group"),
            markersize=5,
        )
    steps = [pair.measured for pair in pairs]
    ends = [min(steps) * 0.8, max(steps) * 1.25]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    low, high = ([factor * end for end in ends] for factor in (1 - GREY, 1 + GREY))
    axes.fill_between(ends, low, high, color="0.9")
    axes.set(xlabel="measured step [s]", ylabel="predicted step [s]", title="grey: 12 % off")
    ticks = [tick for tick in TICKS if ends[0] <= tick <= ends[1]]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_minor_locator(NullLocator())
    legend_below(drawn, axes)
    save(drawn, path)


def pair_of(cluster, case):
    links, name = case.links, case["schedule"]
    if case["replicas"] > 1:
        name += f", {case['replicas']} replicas"
    return Pair(
        nodes=f"{links['nodes']} x {links['ranks_per_node']}",
        rate=f"{mbits(links):g}mbit",
        schedule=name,
        measured=case["median_s"],
        predicted=cluster(case)["step_s"],
    )


def pairs_of(options):
    """Of a case that was measured again, the last one counts."""
    cluster, found = Cluster(options.minitaw, options.machine, options.reach), {}
    if options.fit:
        fit(cluster, case_of([options.fit], options.fit_schedule), "device", "moving")
    for day, results in enumerate([options.results, *options.cores]):
        if day > 0:
            fit(cluster, case_of(results, "1f1b", None), "cores")
        for case in (case for path in results for case in measured_cases(path)):
            if not (options.skip and re.match(options.skip, case["schedule"])):
                pair = pair_of(cluster, case)
                found[*pair.links, pair.schedule] = pair
    return list(found.values())


def measured(options):
    pairs = pairs_of(options)
    rates = {pair.links: bits_per_second(pair.rate) for pair in pairs}
    links = sorted(rates, key=lambda link: (link[0], rates[link]))
    lines = {}
    for pair in pairs:
        text = f"{pair.measured:.2f} {100 * pair.error:+.1f} %"
        lines.setdefault(pair.schedule, {})[pair.links] = text
    rows = []
    for name, cells in lines.items():
        rows.append([f"`{name}`", *(cells.get(link, "") for link in links)])
    print_table(("schedule", *map(", ".join, links)), rows)
    median, worst, wrong = judge(pairs)
    print(f"median error {100 * median:.1f} %, worst {100 * worst:.1f} %, of {len(pairs)} cases")
    if wrong:
        print(f"order not kept: {wrong}")
    else:
        print("order kept wherever schedules differ by more than 5 %")
    if options.picture:
        draw_measured(pairs, options.picture)


def add_measured(add):
    add("results", nargs="+")
    add("--machine", required=True)
    add("--fit", help="result whose first case the machine is calibrated with")
    add(
        "--fit-schedule",
        metavar="SCHEDULE",
        help="the case of this schedule instead of the first",
    )
    add(
        "--cores",
        action="append",
        nargs="+",
        default=[],
        metavar="RESULT",
        help="results of another day: the speed of its cores is fitted on the first 1F1B, or else "
        "on the first case",
    )
    add("--skip", metavar="REGEX", help="schedules whose names begin so")
    add(
        "--reach",
        type=float,
        default=0.976,
        help="what messages reach of an adapter's rate (0.976, as minitaw topo measures)",
    )


def main():
    parser = parser_of(__doc__)
    add_program(parser)
    verbs = parser.add_subparsers(required=True)
    for name, work in (("measured", measured), ("map", map_of_schedules)):
        verb = verbs.add_parser(name)
        verb.set_defaults(work=work)
        verb.add_argument("--picture", required=work == map_of_schedules)
        if work == measured:
            add_measured(verb.add_argument)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    end(main)
