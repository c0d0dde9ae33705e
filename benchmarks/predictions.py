#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The predictions of docs/predict.md: beside measurements, and on machines of many sizes. Those of
docs/paper.md: paper.py.

    scripts/env benchmarks/predictions.py measured --machine FILE.toml RESULT ... [--fit RESULT [--fit-schedule SCHEDULE]] [--cores RESULT ...]
                                                   [--picture FILE.png]
    scripts/env benchmarks/predictions.py map --picture FILE.png      # takes minutes

`measured` takes results of scripts/cluster with links of any speed, as FILE.h5 or as the table of
scripts/export; the machine file describes the processors. --fit changes two numbers of it until the
first case of that result (or that of a schedule) has its measured step and its measured share of
computing, and prints them: the rate of the device, and what a processor moves in a second. All
other cases are then predicted. --cores adds results of a day when the cores of a virtual machine
had another speed: it is fitted on the step of 1F1B, or else of the first case. --skip leaves out
schedules whose names begin so. `map` prints and draws the best schedule for 8 to 4096 devices and
four links.
"""

import argparse
import csv
import functools
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib

from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullLocator

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from lib.cluster import cores_of  # noqa: E402
from minitaw.command import BadInput  # noqa: E402
from minitaw.figures import COLOURS, MARKERS, new_figure, save  # noqa: E402
from minitaw.record import Case, Result, load  # noqa: E402

MACHINES = ROOT / "inputs/machines"
DECKS = ROOT / "inputs/paper"


def predict(program, deck, machine, settings=(), changes=()):
    """The cases of `minitaw predict --json`."""
    command = [program, "predict", str(deck), "--machine", str(machine), "--json"]
    command += [word for setting in settings for word in ("--set", setting)]
    command += [word for change in changes for word in ("--machine-set", change)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadInput(f"{' '.join(command)}: {done.stderr}")
    cases = json.loads(done.stdout)["cases"]
    for case in cases:
        case["settings"] = {name: str(value) for name, value in case["settings"].items()}
    return cases


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


# Measured

DEVICE_KEYS = ("device.fp32.products", "device.fp32.attention", "device.memory_rate")
CORES = 2  # of the machine; nodes share them where they cannot be divided evenly


DECK_KEYS = [
    "schedule",
    "ranks",
    "groups",
    "replicas",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "vocab",
    "dtype",
    "recompute",
    "seq",
    "micro_batch",
    "micro_batches",
    "steps",
    "warmup",
]


def schedule_of(case):
    """Its name of today: two options got new names on 2026-11-24."""
    name = case["schedule"]
    return (
        name.replace("gwps=off", "gwps=direct").replace("cco=off", "cco=serial")
        if str(case["started"]) < "2026-11-24"
        else name
    )


def deck_of(case):
    """A deck of this case alone."""
    keys = {name: case[name] for name in DECK_KEYS} | {"schedule": schedule_of(case)}
    for text, one, several in (
        ("ffn", "ffn", "ffn_per_layer"),
        ("micro_batch_per_rank", "micro_batch", "micro_batch_per_rank"),
    ):
        sizes = [int(size) for size in case[text].split(",") if size]
        if len(sizes) > 1:
            keys.pop(one, None)
            keys[several] = sizes
        elif sizes:
            keys[one] = sizes[0]
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in keys.items())


class Cluster:
    """Nodes made of one machine. `device`, `moving` and `cores`, which is on both, are factors on
    what its file says, `reach` what messages reach of an adapter's rate."""

    def __init__(self, program, machine, reach):
        self.program, self.machine, self.reach = program, machine, reach
        self.device = self.moving = self.cores = 1.0
        self.content = tomllib.loads(pathlib.Path(machine).read_text(encoding="utf-8"))

    def scaled(self, key, factor):
        node = self.content
        for part in key.split("."):
            node = node[part]
        number, unit = node.split()
        return f"{key}={float(number) * factor} {unit}"

    def changes(self, links):
        nodes = int(links["nodes"])
        return [
            f"nodes={nodes}",
            f"ranks_per_node={links['ranks_per_node']}",
            f"between.rate={mbits(links['rate']) * self.reach} Mbit/s",
            *(f"device.{key}={value}" for key, value in zip(("pools", "processors"), pools(nodes))),
            self.scaled("device.moving", self.cores * self.moving),
            *(self.scaled(key, self.cores * self.device) for key in DEVICE_KEYS),
        ]

    def __call__(self, case):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as deck:
            deck.write(deck_of(case))
            deck.flush()
            return predict(
                self.program, deck.name, self.machine, changes=self.changes(links_of(case))
            )[0]


def pools(nodes):
    """Cores as scripts/cluster gives them to nodes: how many pools, and cores of each."""
    shares = {tuple(share) for share in cores_of(nodes, list(range(CORES)))}
    return len(shares), CORES // len(shares)


def mbits(rate):
    number, unit = re.fullmatch(r"([\d.]+)(\w+)", rate).groups()
    return float(number) * {"kbit": 1e-3, "mbit": 1, "gbit": 1e3}[unit]


def links_of(case):
    return dict(link.split("=") for link in case.session["links"])


def measured_cases(path):
    """Of a result, or of the table that scripts/export made of it; the name of a table tells its
    links: main-2x2-100mbit.csv."""
    if not (name := re.search(r"(\d+)x(\d+)-(\w+)\.csv$", path)):
        return [case for case in load(path).cases if len(case.samples)]
    result = Result(
        pathlib.Path(path),
        sessions=[
            {
                "links": [
                    f"{key}={value}"
                    for key, value in zip(("nodes", "ranks_per_node", "rate"), name.groups())
                ]
            }
        ],
    )
    with open(path, encoding="utf-8", newline="") as file:
        rows = [
            {key.split()[0]: number_or_text(text) for key, text in row.items()}
            for row in csv.DictReader(file)
        ]
    return [Case(result, row | {"ffn": str(row["ffn"])}) for row in rows]


def number_or_text(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def solve(function, low, high):
    """The place where a falling function is 0, by halving on a logarithmic scale, and whether it
    lies inside of the bounds."""
    bounds = low, high
    for _ in range(14):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return middle, low > bounds[0] and high < bounds[1]  # the function was called with it last


def fit(cluster, case, *numbers):
    """Changes numbers of the cluster until the case has its measured step, but `device` until it
    has its measured share of computing."""

    def excess(number, value):
        setattr(cluster, number, value)
        predicted = cluster(case)
        return (
            predicted["compute"] - (1 - case["exposed_share"] - case["idle_share"])
            if number == "device"
            else predicted["step_s"] - case["median_s"]
        )

    what = f"{case['schedule']}, {links_of(case)['rate']}, {links_of(case)['nodes']} nodes"
    for _ in range(4 if len(numbers) > 1 else 1):
        found = {number: solve(functools.partial(excess, number), 0.1, 10) for number in numbers}
    if outside := [number for number, (_, inside) in found.items() if not inside]:
        raise BadInput(
            f"--fit: {what}: no factor from 0.1 to 10 on {' and '.join(outside)} gives what was measured; "
            "take a case in which both computing and links take much of the step"
        )
    print(
        f"fitted on {what}: {', '.join(f'{number} x {getattr(cluster, number):.3f}' for number in numbers)}\n"
    )


def judge(rows):
    """Errors of (nodes, rate, schedule, measured, predicted), and pairs of schedules on the same
    links in the wrong order although more than 5 % apart."""
    errors = sorted(abs(predicted / measured - 1) for *_, measured, predicted in rows)
    wrong = [
        (a[2], b[2], *a[:2])
        for a in rows
        for b in rows
        if a[:2] == b[:2] and a[3] * 1.05 < b[3] and a[4] >= b[4]
    ]
    return statistics.median(errors), errors[-1], wrong


def draw_measured(rows, path):
    drawn = new_figure(5, 5)
    axes = drawn.subplots()
    for number, schedule in enumerate(dict.fromkeys(row[2] for row in rows)):
        axes.loglog(
            *zip(*(row[3:] for row in rows if row[2] == schedule)),
            MARKERS[number // 2 % 8],
            color=COLOURS[number % 8],
            label=schedule,
            markersize=5,
        )
    ends = [min(row[3] for row in rows) * 0.8, max(row[3] for row in rows) * 1.25]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [0.88 * e for e in ends], [1.12 * e for e in ends], color="0.9")
    axes.set(xlabel="measured step [s]", ylabel="predicted step [s]", title="grey: 12 % off")
    for axis in (axes.xaxis, axes.yaxis):
        ticks = [
            t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200) if ends[0] <= t <= ends[1]
        ]
        axis.set_ticks(ticks, [f"{t:g}" for t in ticks])
        axis.set_minor_locator(NullLocator())
    axes.legend(fontsize=7)
    save(drawn, path)


def case_of(paths, *schedules):
    """The first case of the first of these schedules that there is; None: of any."""
    cases = [case for path in paths for case in measured_cases(path)]
    if case := next(
        (case for schedule in schedules for case in cases if schedule in (None, case["schedule"])),
        None,
    ):
        return case
    raise BadInput(f"{', '.join(paths)}: no case of {schedules[0]}, which the machine is fitted on")


def measured(options):
    cluster, found = Cluster(options.minitaw, options.machine, options.reach), {}
    if options.fit:
        fit(cluster, case_of([options.fit], options.fit_schedule), "device", "moving")
    for day, results in enumerate([options.results, *options.cores]):
        if day > 0:
            fit(cluster, case_of(results, "1f1b", None), "cores")
        for case in (case for path in results for case in measured_cases(path)):
            if options.skip and re.match(options.skip, case["schedule"]):
                continue
            links, name = links_of(case), schedule_of(case) + (
                f", {case['replicas']} replicas" if case["replicas"] > 1 else ""
            )
            key = (
                f"{links['nodes']} x {links['ranks_per_node']}",
                f"{mbits(links['rate']):g}mbit",
                name,
            )
            found[key] = (
                case["median_s"],
                cluster(case)["step_s"],
            )  # measured again: the last one counts
    rows = [(*key, *seconds) for key, seconds in found.items()]
    links = sorted({row[:2] for row in rows}, key=lambda link: (link[0], mbits(link[1])))
    cells = {row[:3]: f"{row[3]:.2f} {100 * (row[4] / row[3] - 1):+.1f} %" for row in rows}
    table(
        ("schedule", *map(", ".join, links)),
        [
            [f"`{name}`", *(cells.get((*link, name), "") for link in links)]
            for name in dict.fromkeys(row[2] for row in rows)
        ],
    )
    median, worst, wrong = judge(rows)
    print(f"median error {100 * median:.1f} %, worst {100 * worst:.1f} %, of {len(rows)} cases")
    print(
        "order kept wherever schedules differ by more than 5 %"
        if not wrong
        else f"order not kept: {wrong}"
    )
    if options.picture:
        draw_measured(rows, options.picture)


# The map

MODELS = {  # title: settings, ranks of a replica that are tried
    "10 G parameters (48 blocks, H = 4096): fits a node": ((), (8, 32)),
    "69 G parameters (80 blocks, H = 8192): fits four nodes": (
        ("layers=80", "hidden=8192", "ffn=28672", "kv_heads=8"),
        (32, 64),
    ),
}
RANKS = (8, 32, 256, 4096)
GBITS = (10, 25, 100, 400)
ADAPTERS = (1, 2, 4, 8)
NODE = 8


def best_of(cases):
    """Of cases that fit: the fastest of each kind of schedule, the fastest first, as (kind,
    tokens/s, case)."""
    fastest = {}
    for case in cases:
        name = case["settings"]["schedule"]
        kind = (
            "1F1B, zero bubble"
            if name in ("1f1b", "zb1")
            else {"fsdp": "FSDP", "weipipe": "WeiPipe", "tawpipe": "TawPipe"}[
                name.partition(":")[0]
            ]
        )
        if case["fits"] and case["tokens_per_s"] > fastest.get(kind, (kind, 0))[1]:
            fastest[kind] = (kind, case["tokens_per_s"], case)
    return sorted(fastest.values(), key=lambda entry: -entry[1])


def cell(options, settings, rings, ranks, gbits, adapters):
    cases = []
    for ring in (ring for ring in rings if ring <= ranks):
        schedules = [
            "1f1b",
            "zb1",
            "weipipe",
            *(
                form + kept
                for form in ("fsdp", "tawpipe")
                for kept in ("", ":fetch=step:reduce=none:reshard=none")
            ),
        ]
        if ring > NODE:
            schedules += [
                "fsdp:hierarchical=on",
                *(
                    f"{form}:fetch=step:reduce=group:reshard=group"
                    for form in ("fsdp:hierarchical=on", "tawpipe")
                ),
            ]
        cases += predict(
            options.minitaw,
            DECKS / "map.toml",
            MACHINES / "dgx-h100.toml",
            [
                *settings,
                f"ranks={ranks}",
                f"replicas={ranks // ring}",
                f"micro_batches={4 * ranks}",
                "schedule=" + ",".join(schedules),
            ],
            [
                f"nodes={max(1, ranks // NODE)}",
                f"between.rate={gbits} Gbit/s",
                f"between.adapters={adapters}",
            ],
        )
    return best_of(cases)


def draw_map(cells, path):
    kinds = ("TawPipe", "FSDP", "1F1B, zero bubble", "WeiPipe")
    drawn = new_figure(13, 6.2)
    for number, ((title, adapters), panel) in enumerate(cells.items()):
        axes = drawn.add_subplot(len(MODELS), len(ADAPTERS), number + 1)
        for (ranks, gbits), best in panel.items():
            x, y = RANKS.index(ranks), GBITS.index(gbits)
            if not best:
                axes.text(x, y, "too\nlarge", ha="center", va="center", fontsize=6, color="0.5")
                continue
            axes.add_patch(
                Rectangle(
                    (x - 0.5, y - 0.5), 1, 1, color=COLOURS[kinds.index(best[0][0])], alpha=0.75
                )
            )
            lead = f"+{100 * (best[0][1] / best[1][1] - 1):.0f} %" if len(best) > 1 else ""
            own = best[0][2]["settings"]
            axes.text(
                x,
                y,
                f"{lead}\n{int(own['ranks']) // int(own['replicas'])}",
                ha="center",
                va="center",
                fontsize=6.5,
            )
        axes.set(
            xlim=(-0.5, len(RANKS) - 0.5),
            ylim=(-0.5, len(GBITS) - 0.5),
            xticks=range(len(RANKS)),
            yticks=range(len(GBITS)),
            xticklabels=RANKS,
            yticklabels=GBITS if adapters == ADAPTERS[0] else [],
            title=f"{adapters} adapter{'s' if adapters > 1 else ''} a node",
        )
        if adapters == ADAPTERS[0]:
            axes.set_ylabel(title.replace(": ", "\n") + "\nadapter [Gbit/s]", fontsize=8)
        axes.set_xlabel("devices")
    drawn.legend(
        handles=[Patch(color=COLOURS[i], alpha=0.75, label=kind) for i, kind in enumerate(kinds)],
        loc="outside lower center",
        ncols=4,
    )
    save(drawn, path)


def map_of_schedules(options):
    cells, every = {}, list(itertools.product(MODELS.items(), ADAPTERS, GBITS, RANKS))
    for done, ((title, (settings, rings)), adapters, gbits, ranks) in enumerate(every, 1):
        known = (
            cells.get((title, ADAPTERS[0]), {}).get((ranks, GBITS[0])) if ranks <= NODE else None
        )  # nothing leaves the node
        cells.setdefault((title, adapters), {})[ranks, gbits] = known or cell(
            options, settings, rings, ranks, gbits, adapters
        )
        print(
            f"\r{done} of {len(every)}",
            end="" if done < len(every) else "\n",
            file=sys.stderr,
            flush=True,
        )
    for (title, adapters), panel in cells.items():
        print(f"{title}, {adapters} adapters a node")
        for (ranks, gbits), best in panel.items():
            print(
                f"  {ranks:5} devices, {gbits:3} Gbit/s: "
                + (
                    ", ".join(
                        f"{kind} {rate / ranks:.0f} ({entry['settings']['schedule']}, replicas of {ranks // int(entry['settings']['replicas'])})"
                        for kind, rate, entry in best
                    )
                    or "nothing fits"
                )
            )
    draw_map(cells, options.picture)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minitaw",
        default=str(ROOT / "build/host/minitaw"),
        help="the program (default: build/host/minitaw)",
    )
    verbs = parser.add_subparsers(required=True)
    for name, run in (("measured", measured), ("map", map_of_schedules)):
        verb = verbs.add_parser(name)
        verb.set_defaults(run=run)
        verb.add_argument("--picture", required=run == map_of_schedules)
        if run == measured:
            verb.add_argument("results", nargs="+")
            verb.add_argument("--machine", required=True)
            verb.add_argument(
                "--fit", help="result whose first case the machine is calibrated with"
            )
            verb.add_argument(
                "--fit-schedule",
                metavar="SCHEDULE",
                help="the case of this schedule instead of the first",
            )
            verb.add_argument(
                "--cores",
                action="append",
                nargs="+",
                default=[],
                metavar="RESULT",
                help="results of another day: the speed of its cores is fitted on the first 1F1B, or else on the first case",
            )
            verb.add_argument("--skip", metavar="REGEX", help="schedules whose names begin so")
            verb.add_argument(
                "--reach",
                type=float,
                default=0.976,
                help="what messages reach of an adapter's rate (0.976, as minitaw topo measures)",
            )
    options = parser.parse_args()
    try:
        options.run(options)
    except BadInput as sentence:
        sys.exit(f"predictions: {sentence}")


if __name__ == "__main__":
    main()
