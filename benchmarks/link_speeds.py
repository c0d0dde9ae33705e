#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What each schedule costs as the links between nodes get slower: measures it, prints tables, draws
it.

    scripts/env python3 benchmarks/link_speeds.py measure FOLDER      # two hours; resumes what is there
    scripts/env python3 benchmarks/link_speeds.py tables FOLDER
    scripts/env python3 benchmarks/link_speeds.py draw FOLDER PICTURE.png

`measure` runs inputs/wires/nodes.toml on clusters of this machine (docs/cluster.md), and once more
with a replica of the model on each node. The bound of a schedule is the time that the busiest
adapter needs for the bytes counted in its busier direction: no schedule with these bytes can be
faster. `unshaped` is the same job without a cluster: what computing and memory allow.
"""

import argparse
import math
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from minitaw.command import BadInput  # noqa: E402
from minitaw.record import load, texts_of  # noqa: E402

RATES = ["50mbit", "100mbit", "200mbit", "400mbit", "1gbit", "unshaped"]
# Blocks and micro-batches follow the number of ranks: a shard is two blocks or more, a rank has
# four micro-batches.
SIZES = {2: ["layers=8", "micro_batches=16"], 3: ["layers=12", "micro_batches=24"]}
ABLATIONS = [
    f"tawpipe:{option}"
    for option in ("gwps=off", "gwps=direct", "dbs=off", "cco=off", "cco=serial")
]
KEEPS = {"reshard=group", "fetch=step", "reduce=group"}
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_per_second(rate):  # of an adapter; infinite where links are not shaped
    if rate == "unshaped":
        return math.inf
    number, unit = re.fullmatch(r"([0-9.]+)(kbit|mbit|gbit)", rate).groups()
    return float(number) * UNITS[unit]


def read(path):
    """The cases of a result file as dictionaries: nodes, rate (bit/s), schedule, seconds and bound
    (s), tokens, bytes between nodes, verdict."""
    for case in load(str(path)).cases:
        if not case["median_s"] > 0:
            print(
                f"{path}: case {case['case']}, {case['schedule']}: {case['verdict']}",
                file=sys.stderr,
            )
            continue
        links = dict(text.split("=", 1) for text in texts_of(case.session, "links"))
        rate = bits_per_second(links.get("rate", "unshaped"))
        traffic = case.get("bytes/counted").sum(axis=2)
        copies, seconds = case["replicas"], case["median_s"]
        nodes = copies if copies > 1 else case["group_count"]
        per_node = len(traffic) // nodes
        between = traffic.reshape(nodes, per_node, nodes, per_node).sum(axis=(1, 3))
        between[range(nodes), range(nodes)] = 0
        busiest = max(between.sum(axis=0).max(), between.sum(axis=1).max())
        schedule = case["schedule"]
        options = schedule.split(":")
        if KEEPS <= set(options):
            kept = ":".join(option for option in options if option not in KEEPS)
            schedule = f"{kept}, kept in the group"
        schedule += ", one replica per node" if copies > 1 else ""
        yield {
            "nodes": nodes,
            "rate": rate,
            "schedule": schedule,
            "seconds": seconds,
            "bound": 8 * busiest / rate,
            "tokens": case["tokens_per_s"] * seconds,
            "between": between.sum(),
            "verdict": case["verdict"],
        }


def read_all(folder):
    """Of a case that several files have, the last file's counts."""
    cases = {
        (case["nodes"], case["rate"], case["schedule"]): case
        for path in sorted(folder.glob("*.h5"))
        for case in read(path)
    }
    if not cases:
        sys.exit(f"{folder}: no result files with cases; 'measure' makes them")
    return list(cases.values())


def measure(folder, nodes, rates):
    """Relative paths, because a record keeps its command and is passed on."""
    folder = pathlib.Path(os.path.relpath(folder, ROOT))
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    for rate in rates:
        for count in nodes:
            where = [
                "scripts/cluster",
                "--nodes",
                str(count),
                "--ranks-per-node",
                "2",
                "--rate",
                rate,
                "--",
            ]
            if rate == "unshaped":
                where = ["scripts/env", "mpiexec", "-n", str(2 * count)]
            kept = ":".join(sorted(KEEPS))
            sweeps = {
                "": [f"groups={count}"],
                "-kept": [
                    f"groups={count}",
                    f"schedule=fsdp:hierarchical=on:{kept},tawpipe:{kept}",
                ],
                "-replicas": [f"groups={count}", f"replicas={count}", "schedule=tawpipe,fsdp"],
            }
            for name, settings in sweeps.items():
                command = [*where, "build/host/minitaw", "run", "inputs/wires/nodes.toml"]
                for setting in SIZES[count] + settings:
                    command += ["--set", setting]
                subprocess.run(
                    [*command, "-o", folder / f"{count}x2-{rate}{name}.h5"],
                    check=True,
                    cwd=ROOT,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )


def tables(folder):
    """For each number of nodes: the step (s) and, in brackets, over the time of the busiest
    adapter; * where the case is not VALID."""
    cases = read_all(folder)
    for nodes in sorted({case["nodes"] for case in cases}):
        here = {(case["schedule"], case["rate"]): case for case in cases if case["nodes"] == nodes}
        rates = sorted({rate for _, rate in here})
        heads = ["unshaped" if math.isinf(rate) else f"{rate / 1e6:g} Mbit/s" for rate in rates]
        print(
            f"\n### {nodes} nodes of 2 ranks\n\n| schedule | between nodes, MiB | {' | '.join(heads)} |\n|---|---|{'---|' * len(rates)}"
        )
        between = {schedule: case["between"] for (schedule, _), case in here.items()}
        for schedule in sorted(between, key=lambda schedule: (between[schedule], schedule)):
            cells = []
            for case in (here.get((schedule, rate)) for rate in rates):
                ratio = (
                    f" ({case['seconds'] / case['bound']:.2f})" if case and case["bound"] else ""
                )
                cells.append(
                    f"{case['seconds']:.2f}{ratio}{'' if case['verdict'].startswith('VALID') else '*'}"
                    if case
                    else "-"
                )
            name, _, replicas = schedule.partition(", ")
            print(
                f"| `{name}`{', ' if replicas else ''}{replicas} | {between[schedule] / 2**20:.1f} | {' | '.join(cells)} |"
            )


def draw(folder, picture):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    left_out = [*ABLATIONS, "zb2"]  # ZB-H2 lies on ZB-H1
    cases = [case for case in read_all(folder) if case["schedule"] not in left_out]
    groups = sorted({case["nodes"] for case in cases})
    figure, panels = pyplot.subplots(
        1, len(groups), figsize=(5 * len(groups), 4.4), squeeze=False, layout="constrained"
    )
    names = sorted(
        {case["schedule"] for case in cases}, key=lambda name: ("tawpipe" not in name, name)
    )
    colours = {name: f"C{index}" for index, name in enumerate(names)}
    fastest = max((case["rate"] for case in cases if math.isfinite(case["rate"])), default=1e9)
    for case in cases:  # unshaped links stand to the right of the fastest shaped ones
        case["at"] = min(case["rate"], 2 * fastest) / 1e6
    for panel, nodes in zip(panels[0], groups):
        here = [case for case in cases if case["nodes"] == nodes]
        for name in names:
            line = sorted(
                (case for case in here if case["schedule"] == name), key=lambda case: case["rate"]
            )
            panel.plot(
                [case["at"] for case in line],
                [case["tokens"] / case["seconds"] for case in line],
                "o-",
                color=colours[name],
                label=name,
                linewidth=2.2 if name == "tawpipe" else 1.3,
                markersize=4,
            )
            bounds = [case for case in line if case["bound"]]
            panel.plot(
                [case["at"] for case in bounds],
                [case["tokens"] / case["bound"] for case in bounds],
                ":",
                color=colours[name],
                linewidth=1,
            )
        measured = [case["tokens"] / case["seconds"] for case in here]
        panel.set(
            xscale="log",
            yscale="log",
            ylim=(0.7 * min(measured), 1.5 * max(measured)),
            xlabel="adapter of each node, Mbit/s",
            title=f"{nodes} nodes of 2 ranks",
        )
        ticks = {
            case["at"]: f"{case['at']:g}" if math.isfinite(case["rate"]) else "unshaped"
            for case in here
        }
        panel.set_xticks(list(ticks), list(ticks.values()))
        panel.xaxis.set_minor_locator(ticker.NullLocator())
        panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        panel.yaxis.set_minor_formatter(ticker.NullFormatter())
        panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("tokens/s (dotted: what the adapter allows)")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8
    )
    figure.savefig(picture, dpi=130)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("measure", "tables", "draw"):
        verb = verbs.add_parser(name)
        verb.add_argument("folder", type=pathlib.Path)
        if name == "measure":
            verb.add_argument(
                "--nodes", type=lambda text: [int(part) for part in text.split(",")], default=[2, 3]
            )
            verb.add_argument("--rates", type=lambda text: text.split(","), default=RATES)
        if name == "draw":
            verb.add_argument("picture", type=pathlib.Path)
    options = parser.parse_args()
    try:
        if options.verb == "measure":
            measure(options.folder, options.nodes, options.rates)
        elif options.verb == "tables":
            tables(options.folder)
        else:
            draw(options.folder, options.picture)
    except BadInput as sentence:
        sys.exit(f"link_speeds: {sentence}")


if __name__ == "__main__":
    main()
