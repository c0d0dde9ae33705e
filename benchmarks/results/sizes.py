#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The table of sizes in docs/run-rules.md: hours and rating of every size of the acceptance test on
machines from 8 to 2560 devices, and what half a network costs, predicted for DGX H100.

    scripts/env benchmarks/results/sizes.py predict results/predicted/sizes.csv     # seven minutes
    scripts/env benchmarks/results/sizes.py check results/predicted/sizes.csv --every 13
    scripts/env benchmarks/results/sizes.py tables results/predicted/sizes.csv
"""

import concurrent.futures
import csv
import math
import os
import pathlib
import statistics

from pages import MACHINES, ROOT, add_program, end, parser_of, predict, print_table, read_table
from minitaw.check_rules import least_seconds, read_size
from minitaw.command import BadInput

NODE = 8  # devices
MACHINE = MACHINES / "dgx-h100.toml"
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
COLUMNS = ("devices", "size", "replicas", "links", "seq", "schedule", "steps",
           "tokens_per_s", "all_seconds", "least_memory", "most_memory")  # fmt: skip
GIB = 2**30
SPARE = 1.1  # steps beyond the least time


def steps_of(case, size):
    """Timed steps of a repetition, with which a case lasts as long as the run rules demand."""
    timed = math.ceil(SPARE * least_seconds(size) / (case["step_s"] * size["repeats"]))
    return max(size["steps"], timed)


def rows_for(options, devices, name, replicas, links):
    """A row for each length: its fastest schedule, timed steps of a repetition, the seconds of all
    schedules, and GiB of the worst rank of the one that needs least, and most."""
    size, (inside, between) = read_size(name), LINKS[links]
    changes = [
        f"nodes={devices // NODE}",
        f"inside.rate={inside} GB/s",
        f"between.rate={between} Gbit/s",
    ]
    settings = [f"ranks={devices}", f"group_size={NODE}", f"replicas={replicas}"]
    deck = ROOT / f"inputs/acceptance/{name}.toml"
    cases = predict(options.minitaw, deck, MACHINE, settings, changes, ["--fitting"])
    rows = []
    for seq in size["seq"]:
        some = [case for case in cases if int(case["settings"]["seq"]) == seq]
        if not some:
            raise BadInput(f"{name} on {devices} devices: no schedule fits at {seq} tokens")
        best = max(some, key=lambda case: case["tokens_per_s"])
        steps = max(steps_of(case, size) for case in some)
        each = size["repeats"] * (size["warmup"] + steps)
        seconds = sum(each * case["step_s"] for case in some)
        rate, schedule = best["tokens_per_s"], best["settings"]["schedule"]
        memory = [case["memory_bytes"] / GIB for case in some]
        figures = rate, seconds, min(memory), max(memory)
        rows.append(
            [
                *map(str, (devices, name, replicas, links, seq, schedule, steps)),
                *(f"{figure:.6g}" for figure in figures),
            ]
        )
    return rows


def predict_all(options):
    places = [(*size, links) for size in SIZES for links in LINKS]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        lists = pool.map(lambda place: rows_for(options, *place), places)
        options.table.parent.mkdir(parents=True, exist_ok=True)
        with open(options.table, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for rows in lists:
                writer.writerows(rows)
                file.flush()


def read(path):
    """{(devices, size, replicas): {links: rows}}, in the order of SIZES."""
    found = {}
    for row in read_table(path):
        place = int(row["devices"]), row["size"], int(row["replicas"])
        found.setdefault(place, {}).setdefault(row["links"], []).append(row)
    return found


def check(options):
    """Predicts some places of a table again."""
    found = read(options.table)
    places = [(*size, links) for size, of_links in found.items() for links in of_links]
    for *size, links in places[:: options.every]:
        then = [list(row.values()) for row in found[tuple(size)][links]]
        now = rows_for(options, *size, links)
        if then != now:
            raise BadInput(f"{options.table}: {then} is now {now}")
    print(f"{len(places[:: options.every])} places are predicted as they stand there")


def rating(rows):
    """Of a size: the geometric mean over its lengths (docs/run-rules.md, figure of merit)."""
    return statistics.geometric_mean(float(row["tokens_per_s"]) for row in rows)


def loss_text(whole, half):
    return f"{100 * (1 - rating(half) / rating(whole)):.1f} %"


def print_tables(options):
    lines = []
    for (devices, size, replicas), of_links in read(options.table).items():
        whole = of_links["whole"]
        hours = sum(float(row["all_seconds"]) for row in whole) / 3600
        first, last = (whole[i]["schedule"].split(":rails")[0] for i in (0, -1))
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
                " to ".join(
                    f"{float(whole[-1][name]):.1f}" for name in ("least_memory", "most_memory")
                ),
            ]
        )
    print("# docs/run-rules.md\n\n## Which size for which machine\n")
    head = ["devices", "nodes", "size", "`replicas`", "steps at 1K", "hours", "rating, tokens/s"]
    head += ["half between", "half inside", "fastest", "memory, GiB"]
    print_table(head, lines)


def main():
    parser = parser_of(__doc__)
    verbs = parser.add_subparsers(required=True)
    for name, work in (("predict", predict_all), ("check", check), ("tables", print_tables)):
        verb = verbs.add_parser(name)
        verb.set_defaults(work=work)
        verb.add_argument("table", type=pathlib.Path)
        if name != "tables":
            add_program(verb)
        if name == "check":
            verb.add_argument("--every", type=int, default=1, help="only every so many places")
    options = parser.parse_args()
    options.work(options)
    return 0


if __name__ == "__main__":
    end(main)
