#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who is fastest where, predicted: the map of docs/long.md (`rivals`), the sizes of the acceptance
test (`sizes`, docs/run-rules.md), and what long sequences cost (`long`).

    scripts/env benchmarks/results/fastest.py predict rivals     # under ten minutes; sizes: seven
    scripts/env benchmarks/results/fastest.py check rivals --every 197
    scripts/env benchmarks/results/fastest.py tables rivals
    scripts/env benchmarks/results/fastest.py picture rivals.png

`predict` writes results/predicted/NAME.csv, `check` predicts some of its rows again, `tables`
prints what pages show of it. `long` has no file: its tables are predicted as they are printed.
"""

import concurrent.futures
import itertools
import math
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

import families
import sequences
from families import FAMILIES, GBITS, LENGTHS, MODELS, NODE, NODES, TOKENS
from matplotlib.patches import Patch, Rectangle
from pages import (
    MACHINES,
    ROOT,
    add_program,
    end,
    parser_of,
    predict,
    print_table,
    read_table,
    write_table,
)
from minitaw.check_rules import least_seconds, read_size
from minitaw.command import BadInput
from minitaw.drawing import SCHEDULES, new_figure, save
from minitaw.numbers import count_text

GIB = 2**30
SPARE = 1.1  # steps beyond the least time
CLOSE = 0.02  # a lead that the prediction does not tell from none
COLOUR_OF = {name: SCHEDULES.get(name.lower(), SCHEDULES["zbv"]) for name in FAMILIES}
INSIDE, BETWEEN = 400, 400  # GB/s of a device, Gbit/s of an adapter
LINKS = {  # what has half of its rate
    "whole": (INSIDE, BETWEEN),
    "half between": (INSIDE, BETWEEN // 2),
    "half inside": (INSIDE // 2, BETWEEN),
}
SIZES = [  # devices, size, replicas
    (8, "medium", 1),
    (8, "8b", 1),
    (16, "medium", 1),
    (16, "8b", 1),
    (32, "medium", 1),
    (32, "8b", 1),
    (80, "large", 1),
    (80, "70b", 1),
    (160, "large", 2),
    (160, "70b", 2),
    (512, "8b", 16),
    (1024, "8b", 32),
    (1024, "405b", 1),
    (2560, "8b", 80),
]


# The map: who is fastest.


def ranking(rows):
    """{(model, nodes, seq, gbits): rows of its families, the fastest first}."""
    found = {}
    for row in rows:
        place = row["model"], int(row["nodes"]), int(row["seq"]), int(row["gbits"])
        found.setdefault(place, []).append(row)
    for of_place in found.values():
        of_place.sort(key=lambda row: -float(row["tokens_per_s_gpu"]))
    return found


def lead_of(of_place):
    """By how much the first is faster than the second; None without one."""
    if len(of_place) < 2:
        return None
    first, second = (float(row["tokens_per_s_gpu"]) for row in of_place[:2])
    return first / second - 1


def cell_text(of_place):
    """The two fastest and their rates."""
    said = [f"{row['family']} {float(row['tokens_per_s_gpu']):.0f}" for row in of_place[:2]]
    return ", ".join(said) or "-"


def print_rivals(rows):
    found = ranking(rows)
    print("# docs/long.md\n\n## Predicted: who is fastest where\n")
    for model in MODELS:
        lines = []
        for nodes, seq in itertools.product(NODES, LENGTHS):
            cells = [cell_text(found.get((model, nodes, seq, gbits), [])) for gbits in GBITS]
            lines.append([f"{nodes} nodes, {count_text(seq)}", *cells])
        print_table([f"{model} parameters", *(f"{gbits} Gbit/s" for gbits in GBITS)], lines)


def draw_cell(axes, x, y, of_place):
    colour, lead = "0.85", None
    if of_place:
        colour, lead = COLOUR_OF[of_place[0]["family"]], lead_of(of_place)
    close = lead is not None and lead < CLOSE
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, alpha=0.35 if close else 0.8))
    if close:
        axes.plot(x, y, "s", color=COLOUR_OF[of_place[1]["family"]], markersize=6)
    elif of_place:
        text = "alone" if lead is None else f"+{100 * lead:.0f} %"
        axes.text(x, y, text, ha="center", va="center", fontsize=7)


def picture(options):
    found = ranking(read_table(STUDIES["rivals"].path))
    drawn = new_figure(10, 6.4)
    for number, (model, nodes) in enumerate(itertools.product(MODELS, NODES)):
        axes = drawn.add_subplot(len(MODELS), len(NODES), number + 1)
        for (x, seq), (y, gbits) in itertools.product(enumerate(LENGTHS), enumerate(GBITS)):
            draw_cell(axes, x, y, found.get((model, nodes, seq, gbits), []))
        axes.set(
            xlim=(-0.5, len(LENGTHS) - 0.5),
            ylim=(-0.5, len(GBITS) - 0.5),
            xticks=range(len(LENGTHS)),
            yticks=range(len(GBITS)),
            xticklabels=[count_text(seq) for seq in LENGTHS],
            yticklabels=GBITS if nodes == NODES[0] else [],
        )
        axes.tick_params(length=0)
        if model == next(iter(MODELS)):
            axes.set_title(f"{nodes} nodes of 8 H200", fontsize=9)
        if nodes == NODES[0]:
            axes.set_ylabel(f"{model} parameters\nGbit/s a node")
        if model == list(MODELS)[-1]:
            axes.set_xlabel("tokens a sequence")
    patches = [Patch(color=colour, alpha=0.8, label=name) for name, colour in COLOUR_OF.items()]
    patches.append(Patch(color="0.85", label="nothing fits"))
    drawn.legend(handles=patches, loc="outside lower center", ncols=5)
    drawn.suptitle(
        f"fastest family, about {count_text(TOKENS)} tokens a step; number: lead over the next "
        f"family, square: the next one, within {100 * CLOSE:.0f} %; alone: no other fits",
        fontsize=9,
    )
    save(drawn, options.picture)


# Sizes of the acceptance test.


def steps_of(case, size):
    """Timed steps of a repetition, with which a case lasts as long as the run rules demand."""
    timed = math.ceil(SPARE * least_seconds(size) / (case["step_s"] * size["repeats"]))
    return max(size["steps"], timed)


def size_rows(program, devices, name, replicas, links, seq):
    """A row: its fastest schedule, timed steps of a repetition, the seconds of all schedules, and
    GiB of the worst rank of the one that needs least, and most."""
    size, (inside, between) = read_size(name), LINKS[links]
    changes = [
        f"nodes={devices // NODE}",
        f"inside.rate={inside} GB/s",
        f"between.rate={between} Gbit/s",
    ]
    settings = [f"ranks={devices}", f"group_size={NODE}", f"replicas={replicas}", f"seq={seq}"]
    deck = ROOT / f"inputs/acceptance/{name}.toml"
    machine = MACHINES / "dgx-h100.toml"
    cases = predict(program, deck, machine, settings, changes, ["--fitting"])
    if not cases:
        raise BadInput(f"{name} on {devices} devices: no schedule fits at {seq} tokens")
    best = max(cases, key=lambda case: case["tokens_per_s"])
    steps = max(steps_of(case, size) for case in cases)
    memory = [case["memory_bytes"] / GIB for case in cases]
    each = size["repeats"] * (size["warmup"] + steps)
    figures = {
        "tokens_per_s": best["tokens_per_s"],
        "all_seconds": sum(each * case["step_s"] for case in cases),
        "least_memory": min(memory),
        "most_memory": max(memory),
    }
    row = {
        "devices": str(devices),
        "size": name,
        "replicas": str(replicas),
        "links": links,
        "seq": str(seq),
        "schedule": best["settings"]["schedule"],
        "steps": str(steps),
    }
    return [row | {name: f"{figure:.6g}" for name, figure in figures.items()}]


def size_places():
    return [
        (*size, links, seq)
        for size in SIZES
        for links in LINKS
        for seq in read_size(size[1])["seq"]
    ]


def size_again(program, row):
    place = int(row["devices"]), row["size"], int(row["replicas"]), row["links"], int(row["seq"])
    return size_rows(program, *place)[0]


def rating(rows):
    """Of a size: the geometric mean over its lengths (docs/run-rules.md, figure of merit)."""
    return statistics.geometric_mean(float(row["tokens_per_s"]) for row in rows)


def loss_text(whole, half):
    return f"{100 * (1 - rating(half) / rating(whole)):.1f} %"


def print_sizes(rows):
    found = {}  # {(devices, size, replicas): {links: rows}}
    for row in rows:
        size = int(row["devices"]), row["size"], row["replicas"]
        found.setdefault(size, {}).setdefault(row["links"], []).append(row)
    lines = []
    for (devices, size, replicas), of_links in found.items():
        whole = of_links["whole"]
        hours = sum(float(row["all_seconds"]) for row in whole) / 3600
        first, last = (whole[i]["schedule"].split(":rails")[0] for i in (0, -1))
        memory = [float(whole[-1][name]) for name in ("least_memory", "most_memory")]
        lines.append(
            [
                devices,
                devices // NODE,
                f"`{size}`",
                replicas,
                whole[0]["steps"],
                f"{hours:.1f}",
                f"{rating(whole):.3g}",
                loss_text(whole, of_links["half between"]) if devices > NODE else "-",
                loss_text(whole, of_links["half inside"]),
                f"`{first}`" if first == last else f"`{first}`, `{last}`",
                f"{memory[0]:.1f} to {memory[1]:.1f}",
            ]
        )
    print("# docs/run-rules.md\n\n## Which size for which machine\n")
    head = ["devices", "nodes", "size", "`replicas`", "steps at 1K", "hours", "rating, tokens/s"]
    head += ["half between", "half inside", "fastest", "memory, GiB"]
    print_table(head, lines)


# Both.


@dataclass
class Study:
    name: str
    places: list  # arguments of rows_for, in the order of the table
    rows_for: Callable  # (program, *place)
    again: Callable  # (program, row): as it is predicted now
    print: Callable  # (rows)

    @property
    def path(self):
        return ROOT / f"results/predicted/{self.name}.csv"


STUDIES = {
    study.name: study
    for study in (
        Study(
            "rivals",
            list(itertools.product(MODELS, NODES, LENGTHS)),
            families.rows_for,
            families.again,
            print_rivals,
        ),
        Study("sizes", size_places(), size_rows, size_again, print_sizes),
    )
}


def predict_all(options):
    study = STUDIES[options.name]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        lists = pool.map(lambda place: study.rows_for(options.minitaw, *place), study.places)
        for done, of_place in enumerate(lists, 1):
            rows += of_place
            print(f"\r{done} of {len(study.places)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    write_table(study.path, rows)


def check(options):
    study = STUDIES[options.name]
    rows = read_table(study.path)[:: options.every]
    for row in rows:
        now = study.again(options.minitaw, row)
        if now != row:
            raise BadInput(f"{study.path}: {list(row.values())} is now {list(now.values())}")
    print(f"{len(rows)} rows are predicted as they stand there")


def tables(options):
    if options.name == "long":
        sequences.print_tables(options.minitaw)
    else:
        study = STUDIES[options.name]
        study.print(read_table(study.path))


def main():
    parser = parser_of(__doc__)
    verbs = parser.add_subparsers(required=True)
    for verb, work, names in (
        ("predict", predict_all, STUDIES),
        ("check", check, STUDIES),
        ("tables", tables, [*STUDIES, "long"]),
        ("picture", picture, []),
    ):
        words = verbs.add_parser(verb)
        words.set_defaults(work=work)
        if names:
            words.add_argument("name", choices=list(names))
            add_program(words)
        else:
            words.add_argument("picture")
        if work == check:
            words.add_argument("--every", type=int, default=1, metavar="ROWS")
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    end(main)
