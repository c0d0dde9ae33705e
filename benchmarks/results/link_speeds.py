#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What each schedule costs as the links between nodes get slower: measures it, prints tables, draws
it.

    scripts/env python3 benchmarks/results/link_speeds.py measure FOLDER      # two hours
    scripts/env python3 benchmarks/results/link_speeds.py tables FOLDER
    scripts/env python3 benchmarks/results/link_speeds.py draw FOLDER PICTURE.png

`measure` runs inputs/wires/nodes.toml on clusters of this machine (docs/cluster.md), and once more
with a replica of the model on each node; it resumes what is there. The bound of a schedule is the
time that the busiest adapter needs for the bytes counted in its busier direction: no schedule with
these bytes can be faster. `unshaped` is the same job without a cluster: what computing and memory
allow.
"""

import math
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

from matplotlib import ticker
from matplotlib.figure import Figure
from pages import (
    KEEPS,
    ROOT,
    cluster_words,
    end,
    markdown,
    named_if_kept,
    one_thread,
    parser_of,
    set_words,
)
from minitaw.command import BadInput
from minitaw.numbers import bits_per_second
from minitaw.record import load

RANKS_PER_NODE = 2
UNSHAPED = "unshaped"
RATES = ["50mbit", "100mbit", "200mbit", "400mbit", "1gbit", UNSHAPED]
# Blocks and micro-batches follow the number of nodes: a shard is two blocks or more, a rank has
# four micro-batches.
SIZES = {2: ["layers=8", "micro_batches=16"], 3: ["layers=12", "micro_batches=24"]}
# Of the picture: ablations, and ZB-H2, which lies on ZB-H1.
LEFT_OUT = ["tawpipe:gwps=off", "tawpipe:dbs=off", "tawpipe:cco=off", "zb2"]
MEGA = 1e6
MIB = 2**20


@dataclass
class Step:
    """A case of a result."""

    nodes: int
    rate: float  # of an adapter, bit/s; infinite where links are not shaped
    schedule: str
    seconds: float
    bound: float  # seconds
    tokens: float
    between: int  # bytes between nodes
    verdict: str

    @property
    def rate_text(self):
        return f"{self.rate / MEGA:g}" if math.isfinite(self.rate) else UNSHAPED

    def cell(self):
        """The step (s) and, in brackets, over its bound; * where the case is not VALID."""
        ratio = f" ({self.seconds / self.bound:.2f})" if self.bound else ""
        return f"{self.seconds:.2f}{ratio}{'' if self.verdict.startswith('VALID') else '*'}"


def name_of(case):
    schedule = named_if_kept(case["schedule"], "kept in the group")
    return schedule + (", one replica per node" if case["replicas"] > 1 else "")


def step_of(case):
    traffic = case.get("bytes/counted").sum(axis=2)
    nodes = case["replicas"] if case["replicas"] > 1 else case["group_count"]
    ranks = len(traffic) // nodes
    between = traffic.reshape(nodes, ranks, nodes, ranks).sum(axis=(1, 3))
    between[range(nodes), range(nodes)] = 0
    busiest = max(between.sum(axis=0).max(), between.sum(axis=1).max())
    rate = bits_per_second(case.links["rate"]) if case.links else math.inf
    return Step(
        nodes=nodes,
        rate=rate,
        schedule=name_of(case),
        seconds=case["median_s"],
        bound=8 * busiest / rate,
        tokens=case["tokens_per_s"] * case["median_s"],
        between=between.sum(),
        verdict=case["verdict"],
    )


def read_all(folder):
    """Of a case that several files have, the last file's counts."""
    found = {}
    for path in sorted(folder.glob("*.h5")):
        for case in load(str(path)).cases:
            if case["median_s"] > 0:
                step = step_of(case)
                found[step.nodes, step.rate, step.schedule] = step
            else:
                what = f"case {case['case']}, {case['schedule']}: {case['verdict']}"
                print(f"{path}: {what}", file=sys.stderr)
    if not found:
        raise BadInput(f"{folder}: no result files with cases; 'measure' makes them")
    return list(found.values())


def measure(options):
    """Relative paths, because a record keeps its command and is passed on."""
    folder = pathlib.Path(os.path.relpath(options.folder, ROOT))
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    kept = ":".join(sorted(KEEPS))
    for rate in options.rates:
        for count in options.nodes:
            where = cluster_words(count, RANKS_PER_NODE, rate)
            if rate == UNSHAPED:
                where = ["scripts/env", "mpiexec", "-n", str(RANKS_PER_NODE * count)]
            groups = f"groups={count}"
            keeping = f"schedule=fsdp:hierarchical=on:{kept},tawpipe:{kept}"
            sweeps = {
                "": [groups],
                "-kept": [groups, keeping],
                "-replicas": [groups, f"replicas={count}", "schedule=tawpipe,fsdp"],
            }
            for name, settings in sweeps.items():
                run = ["build/host/minitaw", "run", "inputs/wires/nodes.toml"]
                run += set_words(SIZES[count] + settings)
                output = folder / f"{count}x{RANKS_PER_NODE}-{rate}{name}.h5"
                command = [*where, *run, "-o", output]
                subprocess.run(command, check=True, cwd=ROOT, env=one_thread())


def tables(options):
    """For each number of nodes: rows of schedules, columns of rates."""
    steps = read_all(options.folder)
    for nodes in sorted({step.nodes for step in steps}):
        here = {(step.schedule, step.rate): step for step in steps if step.nodes == nodes}
        titles = {}
        for step in sorted(here.values(), key=lambda step: step.rate):
            is_shaped = math.isfinite(step.rate)
            titles[step.rate] = f"{step.rate_text} Mbit/s" if is_shaped else UNSHAPED
        between = {schedule: step.between for (schedule, _), step in here.items()}
        rows = []
        for schedule in sorted(between, key=lambda name: (between[name], name)):
            name, comma, replicas = schedule.partition(", ")
            known = [here.get((schedule, rate)) for rate in titles]
            cells = [step.cell() if step else "-" for step in known]
            rows.append([f"`{name}`{comma}{replicas}", f"{between[schedule] / MIB:.1f}", *cells])
        head = ["schedule", "between nodes, MiB", *titles.values()]
        print(f"\n### {nodes} nodes of {RANKS_PER_NODE} ranks\n\n{markdown(head, rows)}")


def draw_panel(panel, here, colours, places):
    for name, colour in colours.items():
        line = sorted((step for step in here if step.schedule == name), key=lambda s: s.rate)
        panel.plot(
            [places[step.rate] for step in line],
            [step.tokens / step.seconds for step in line],
            "o-",
            color=colour,
            label=name,
            linewidth=2.2 if name == "tawpipe" else 1.3,
            markersize=4,
        )
        bounds = [step for step in line if step.bound]
        panel.plot(
            [places[step.rate] for step in bounds],
            [step.tokens / step.bound for step in bounds],
            ":",
            color=colour,
            linewidth=1,
        )
    measured = [step.tokens / step.seconds for step in here]
    panel.set(
        xscale="log",
        yscale="log",
        ylim=(0.7 * min(measured), 1.5 * max(measured)),
        xlabel="adapter of each node, Mbit/s",
    )
    ticks = {places[step.rate]: step.rate_text for step in here}
    panel.set_xticks(list(ticks), list(ticks.values()))
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    panel.yaxis.set_minor_formatter(ticker.NullFormatter())
    panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.grid(alpha=0.3)


def draw(options):
    steps = [step for step in read_all(options.folder) if step.schedule not in LEFT_OUT]
    groups = sorted({step.nodes for step in steps})
    names = sorted(
        {step.schedule for step in steps}, key=lambda name: ("tawpipe" not in name, name)
    )
    colours = {name: f"C{index}" for index, name in enumerate(names)}
    rates = {step.rate for step in steps}
    fastest = max(filter(math.isfinite, rates), default=1e9)
    # Unshaped links stand to the right of the fastest shaped ones.
    places = {rate: min(rate, 2 * fastest) / MEGA for rate in rates}

    drawn = Figure(figsize=(5 * len(groups), 4.4), layout="constrained")
    panels = drawn.subplots(1, len(groups), squeeze=False)[0]
    for panel, nodes in zip(panels, groups):
        draw_panel(panel, [step for step in steps if step.nodes == nodes], colours, places)
        panel.set_title(f"{nodes} nodes of {RANKS_PER_NODE} ranks")
    panels[0].set_ylabel("tokens/s (dotted: what the adapter allows)")
    handles = panels[0].get_legend_handles_labels()
    drawn.legend(*handles, loc="outside lower center", ncols=5, fontsize=8)
    drawn.savefig(options.picture, dpi=130)


def main():
    parser = parser_of(__doc__)
    verbs = parser.add_subparsers(required=True)
    for work in (measure, tables, draw):
        verb = verbs.add_parser(work.__name__)
        verb.set_defaults(work=work)
        verb.add_argument("folder", type=pathlib.Path)
        if work == measure:
            verb.add_argument(
                "--nodes", type=lambda text: [int(part) for part in text.split(",")], default=[2, 3]
            )
            verb.add_argument("--rates", type=lambda text: text.split(","), default=RATES)
        if work == draw:
            verb.add_argument("picture", type=pathlib.Path)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    end(main)
