#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Steps on nodes made of this machine, with links of several speeds between them (docs/cluster.md):
of every schedule (`links`), of sequences that ranks share (`long`), and of pipelines that pass
slices (`slices`). Measures them, prints tables, draws the first.

    scripts/env benchmarks/results/link_speeds.py measure links TABLE.csv     # two hours
    scripts/env benchmarks/results/link_speeds.py tables links
        results/2-core-xeon/2026-11-23-links/links.csv
    scripts/env benchmarks/results/link_speeds.py draw
        results/2-core-xeon/2026-11-23-links/links.csv PICTURE.png

`measure` adds to a table that is there; of a case that it has twice, the last row counts. --nodes
and --rates choose. The bound of a step is the time that the busiest adapter needs for the bytes
counted in its busier direction: no schedule with these bytes can be faster. `unshaped` is the same
job without links: what computing and memory allow.
"""

import itertools
import math
import os
import pathlib
import subprocess
import tempfile
from dataclasses import dataclass

from matplotlib import ticker
from pages import ROOT, end, parser_of, print_table, read_table, set_words, write_table
from minitaw.drawing import GRID, new_figure, save
from minitaw.numbers import bits_per_second, count_text
from minitaw.record import cases, load, transfers

UNSHAPED = "unshaped"
RATES = ["50mbit", "100mbit", "200mbit", "400mbit", "1gbit", UNSHAPED]
KEEPS = ("fetch=step", "reduce=group", "reshard=group")  # options that keep all in the group
ABLATIONS = ("tawpipe:gwps=off", "tawpipe:dbs=off", "tawpipe:cco=off")
LEFT_OUT = {*ABLATIONS, "zb2"}  # of tables and the picture: ZB-H2 lies on ZB-H1
PRINTED = ["100mbit", "1gbit"]  # the picture has all rates
COLUMNS = ("started", "schedule", "ranks", "replicas", "context", "seq", "median_s",
           "tokens_per_s", "bytes_inside", "memory_measured", "verdict")  # fmt: skip
MEGA = 1e6
MIB = 2**20


# Measuring.


@dataclass
class Launch:
    nodes: int
    ranks_per_node: int
    rate: str
    settings: list


def launches_of_links():
    """Blocks and micro-batches follow the number of nodes: a shard is two blocks or more, a rank
    has four micro-batches."""
    keeping = ":".join(KEEPS)
    sweeps = (
        [],
        [f"schedule=fsdp:hierarchical=on:{keeping},tawpipe:{keeping}"],
        ["schedule=tawpipe,fsdp", "replicas={nodes}"],
    )
    for rate, nodes, sweep in itertools.product(RATES, (2, 3), sweeps):
        sizes = [f"layers={4 * nodes}", f"micro_batches={8 * nodes}", f"groups={nodes}"]
        settings = [setting.format(nodes=nodes) for setting in sweep]
        yield Launch(nodes, 2, rate, [*sizes, *settings])


def launches_of_long():
    """A step of 32K takes more than a minute."""
    longest = ["schedule=tawpipe,fsdp:hierarchical=on", "warmup=0"]
    for rate, lengths, settings in (
        ("100mbit", (1, 2, 4), []),
        ("1gbit", (1, 2, 4, 8), []),
        ("100mbit", (8, 16), []),
        ("100mbit", (32,), longest),
    ):
        for seq in lengths:
            yield Launch(2, 2, rate, [f"seq={seq}K", "groups=2", *settings])


def launches_of_slices():
    for nodes, rate, lengths in (
        (2, "50mbit", (1, 4, 8)),
        (2, "1gbit", (1, 4, 8)),
        (3, "100mbit", (4,)),
    ):
        for seq in lengths:
            yield Launch(nodes, 1, rate, [f"seq={seq}K"])


def between_nodes(case, nodes):
    """Bytes of a step between nodes: of all, and in the busiest direction of an adapter."""
    ranks, moved = case.ranks // nodes, transfers(case)
    moved["out"], moved["into"] = moved["from"] // ranks, moved["to"] // ranks
    moved = moved[moved.out != moved.into]
    busiest = (moved.groupby(side).counted.sum().max() for side in ("out", "into"))
    return moved.counted.sum(), max(busiest)


def rows_of(launch, deck):
    nodes, ranks = launch.nodes, launch.ranks_per_node
    where = ["scripts/env", "mpiexec", "-n", str(nodes * ranks)]
    if launch.rate != UNSHAPED:
        where = ["scripts/cluster", "--nodes", str(nodes), "--ranks-per-node", str(ranks)]
        where += ["--rate", launch.rate, "--"]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.h5"
        run = ["build/host/minitaw", "run", deck, *set_words(launch.settings), "-o", path]
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # ranks share cores
        subprocess.run([*where, *run], check=True, cwd=ROOT, env=alone)
        table = cases(load(path))
    for _, case in table.iterrows():
        if case["median_s"] > 0:
            between, busiest = between_nodes(case, nodes)
            row = {"nodes": nodes, "rate": launch.rate}
            row |= {name: case[name] for name in COLUMNS}
            yield row | {"bytes_between": between, "busiest": busiest}


def measure(options):
    """Writes the table after each launch."""
    rows = read_table(options.table) if options.table.exists() else []
    part = PARTS[options.part]
    for launch in part.launches():
        if str(launch.nodes) in options.nodes and launch.rate in options.rates:
            rows += rows_of(launch, f"inputs/wires/{part.deck}.toml")
            write_table(options.table, rows)


# Tables.


def by(rows, *names):
    """{values of these columns: the row}; the last one counts."""
    return {tuple(row[name] for name in names): row for row in rows}


def in_order(rows, name):
    return list(dict.fromkeys(row[name] for row in rows))


def number(row, name):
    return float(row[name])


def bits_of(rate):
    """Infinite where links are not shaped."""
    return math.inf if rate == UNSHAPED else bits_per_second(rate)


def rate_text(rate):
    if rate == UNSHAPED:
        return UNSHAPED
    megabits = bits_of(rate) / MEGA
    return f"{megabits:g} Mbit/s" if megabits < 1000 else f"{megabits / 1000:g} Gbit/s"


def step_text(row):
    """Seconds; * where the case is not VALID or doubted."""
    return f"{number(row, 'median_s'):.2f}{'' if row['verdict'] == 'VALID' else '*'}"


def name_of(row):
    name, options = row["schedule"].partition(":")[::2]
    kept = [option for option in options.split(":") if option and option not in KEEPS]
    text = f"`{':'.join([name, *kept])}`"
    if KEEPS[0] in options:
        text += ", kept in the group"
    return text + (", one replica per node" if int(row["replicas"]) > 1 else "")


def bound_of(row):
    """Seconds."""
    return 8 * number(row, "busiest") / bits_of(row["rate"])


def cell_of_links(row):
    if row is None:
        return "-"
    bound = bound_of(row)
    ratio = f" ({number(row, 'median_s') / bound:.2f})" if bound else ""
    return (
        f"{number(row, 'median_s'):.2f}{ratio}{'' if row['verdict'].startswith('VALID') else '*'}"
    )


def print_links(rows):
    """For each number of nodes: rows of schedules, columns of rates."""
    print("# docs/performance.md\n\n## Slow links between nodes\n")
    for nodes in in_order(rows, "nodes"):
        here = [row | {"name": name_of(row)} for row in rows if row["nodes"] == nodes]
        here = [r for r in here if r["rate"] in PRINTED and r["schedule"] not in LEFT_OUT]
        found = by(here, "name", "rate")
        bytes_of = {row["name"]: number(row, "bytes_between") for row in here}
        lines = []
        for name in sorted(bytes_of, key=lambda name: (bytes_of[name], name.replace("`", ""))):
            cells = [cell_of_links(found.get((name, rate))) for rate in PRINTED]
            lines.append([name, f"{bytes_of[name] / MIB:.1f}", *cells])
        head = [f"{nodes} nodes of 2 ranks", "between nodes, MiB", *map(rate_text, PRINTED)]
        print_table(head, lines)
    print_ablations(rows)


def print_ablations(rows):
    """Steps relative to TawPipe's, measured before them."""
    cells, last = {}, {}
    for row in rows:
        place = row["nodes"], row["rate"]
        if row["schedule"] == "tawpipe" and row["replicas"] == "1":
            last[place] = number(row, "median_s")
        if row["schedule"] in ABLATIONS:
            cells[row["schedule"], place] = f"{number(row, 'median_s') / last[place]:.2f}"
    places = sorted({place for _, place in cells}, key=lambda place: (place[0], bits_of(place[1])))
    lines = [
        [f"`{schedule}`", *(cells.get((schedule, place), "-") for place in places)]
        for schedule in ABLATIONS
    ]
    print_table(["", *(f"{nodes} nodes, {rate_text(rate)}" for nodes, rate in places)], lines)


def print_long(rows):
    """For each link and length: the step of two ranks a sequence, and its speed-up over one."""
    print("# docs/long.md\n\n## Measured: two nodes\n")
    found = by(rows, "rate", "seq", "schedule", "context")
    schedules, lines = in_order(rows, "schedule"), []
    for rate, seq in sorted(by(rows, "rate", "seq"), key=lambda at: (bits_of(at[0]), int(at[1]))):
        cells = []
        for schedule in schedules:
            pair = [found.get((rate, seq, schedule, n)) for n in ("1", "2")]
            cells.append("-")
            if all(pair):
                ratio = number(pair[0], "median_s") / number(pair[1], "median_s")
                cells[-1] = f"{step_text(pair[1])} ({ratio:.2f})"
        lines.append([rate_text(rate), count_text(int(seq)), *cells])
    print_table(["links", "S", *(f"`{schedule}`" for schedule in schedules)], lines)


def print_slices(rows):
    """For each schedule the step of every place, and memory of the last one."""
    print("# docs/long.md\n\n## Measured: pipelines that pass slices\n")
    found = by(rows, "ranks", "rate", "seq", "schedule")
    places = list(dict.fromkeys((row["ranks"], row["rate"], row["seq"]) for row in rows))
    lines = []
    for schedule in in_order(rows, "schedule"):
        here = [found[(*place, schedule)] for place in places]
        memory = number(here[-1], "memory_measured") / MIB
        lines.append([f"`{schedule}`", *map(step_text, here), f"{memory:.1f}"])
    head = [
        f"{ranks} nodes, {rate_text(rate)}, {count_text(int(seq))}" for ranks, rate, seq in places
    ]
    print_table(["schedule", *head, "memory, MiB"], lines)


@dataclass
class Part:
    deck: str
    launches: object  # generator of Launch
    print: object  # (rows)


PARTS = {
    "links": Part("nodes", launches_of_links, print_links),
    "long": Part("long", launches_of_long, print_long),
    "slices": Part("slices", launches_of_slices, print_slices),
}


def tables(options):
    PARTS[options.part].print(read_table(options.table))


# The picture.


def draw_panel(panel, rows, colours, places):
    """Tokens/s over the rate, and dotted what the adapter allows."""
    found = by(rows, "name", "rate")
    shown = []
    for name, colour in colours.items():
        line = [found[name, rate] for rate in places if (name, rate) in found]
        steps = [(places[row["rate"]], number(row, "tokens_per_s")) for row in line]
        bounds = [
            (x, rate * number(row, "median_s") / bound_of(row))
            for (x, rate), row in zip(steps, line)
            if bound_of(row)
        ]
        shown += [rate for _, rate in steps]
        width = 2.2 if name == "`tawpipe`" else 1.3
        panel.plot(
            *zip(*steps),
            "o-",
            color=colour,
            label=name.replace("`", ""),
            linewidth=width,
            markersize=4,
        )
        panel.plot(*zip(*bounds), ":", color=colour, linewidth=1)
    panel.set(
        xscale="log",
        yscale="log",
        ylim=(0.7 * min(shown), 1.5 * max(shown)),
        xlabel="adapter of each node, Mbit/s",
    )
    names = [UNSHAPED if rate == UNSHAPED else f"{x:g}" for rate, x in places.items()]
    panel.set_xticks(list(places.values()), names)
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    panel.yaxis.set_minor_formatter(ticker.NullFormatter())
    panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.grid(True, **GRID)


def draw(options):
    rows = [row | {"name": name_of(row)} for row in read_table(options.table)]
    rows = [row for row in rows if row["schedule"] not in LEFT_OUT]
    names = sorted(in_order(rows, "name"), key=lambda name: ("tawpipe" not in name, name))
    colours = {name: f"C{index}" for index, name in enumerate(names)}
    drawn = new_figure(10, 4.4)
    counts = in_order(rows, "nodes")
    panels = drawn.subplots(1, len(counts), squeeze=False)[0]
    for panel, nodes in zip(panels, counts):
        here = [row for row in rows if row["nodes"] == nodes]
        rates = sorted(in_order(here, "rate"), key=bits_of)
        # Unshaped links stand to the right of the fastest shaped ones.
        places = {rate: min(bits_of(rate), 2e9) / MEGA for rate in rates}
        known = set(in_order(here, "name"))
        draw_panel(panel, here, {name: colours[name] for name in names if name in known}, places)
        panel.set_title(f"{nodes} nodes of 2 ranks")
    panels[0].set_ylabel("tokens/s (dotted: what the adapter allows)")
    handles = panels[0].get_legend_handles_labels()
    drawn.legend(*handles, loc="outside lower center", ncols=5, fontsize=8)
    save(drawn, options.picture)


def main():
    parser = parser_of(__doc__)
    verbs = parser.add_subparsers(required=True)
    for work in (measure, tables, draw):
        verb = verbs.add_parser(work.__name__)
        verb.set_defaults(work=work)
        if work != draw:
            verb.add_argument("part", choices=list(PARTS))
        verb.add_argument("table", type=pathlib.Path)
        if work == measure:
            verb.add_argument("--nodes", type=lambda text: text.split(","), default=["2", "3"])
            verb.add_argument("--rates", type=lambda text: text.split(","), default=RATES)
        if work == draw:
            verb.add_argument("picture")
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    end(main)
