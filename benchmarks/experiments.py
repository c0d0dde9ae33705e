#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Three experiments and three checks that TawPipe's paper proposes (docs/paper.md), measured on
nodes made of one machine and predicted for 24 GPUs.

    scripts/env python3 benchmarks/experiments.py measure FOLDER [NAME ...]          # half an hour; resumes what is there
    scripts/env python3 benchmarks/experiments.py tables FOLDER [NAME ...] [--picture FILE.png]

`measure` runs inputs/small/groups.toml on clusters of this machine (docs/cluster.md), one launch
for each point that is no axis of a deck, and keeps FOLDER/NAME-NUMBER.h5. `tables` predicts the
decks of inputs/paper on inputs/machines/tawpipe-paper.toml and prints both.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from predictions import DECKS, MACHINES, ROOT, table
from predictions import predict as predicted_cases

from minitaw.command import BadInput
from minitaw.figures import COLOURS, DASHES, MARKERS, new_figure, save
from minitaw.record import load

SMALL = ["hidden=128", "layers=12", "micro_batches=12", "steps=3", "repeats=2"]
TWO_NODES = ["hidden=256", "layers=8", "micro_batches=8", "steps=3", "repeats=2", "groups=2"]
UNEQUAL = 'exceptions=[{ranks="0-7",device.speed=0.5},{ranks="16-23",device.speed=1.5}]'
PIPELINE_TOO = "schedule=1f1b,fsdp,fsdp:hierarchical=on,weipipe,tawpipe"
METHODS = "schedule=fsdp,fsdp:hierarchical=on,weipipe,tawpipe"


@dataclass
class Point:
    """A launch. `settings` of the deck; `changes` of the machine predicted on, or `nodes`, ranks on
    each, rate, and if the last one is half as fast."""

    settings: list
    changes: tuple = ()
    nodes: tuple = (3, 2, "200mbit")
    slow: bool = False


@dataclass
class Experiment:
    """`axis`: a column of the cases, else the name of the point. `reference`: the schedule and
    place on the axis whose rate others are divided by; None: their own. `shows`: the figure in
    brackets; `draws`: it, or the rate."""

    title: str
    axis: str
    deck: str
    predicted: dict
    measured: dict
    reference: tuple
    shows: str = "overlap"
    draws: str = "rate"


EXPERIMENTS = {
    "groups": Experiment(
        "Groups",
        "groups",
        "groups",
        {"": Point(["schedule=tawpipe,tawpipe:dbs=off"])},
        {"": Point([*SMALL, "schedule=tawpipe,tawpipe:dbs=off", "groups=1,2,3,6"])},
        ("tawpipe", 3),
    ),
    "storage": Experiment(
        "Device-bound storage",
        "hidden",
        "ablations",
        {"": Point(["schedule=tawpipe,tawpipe:dbs=off"])},
        {
            "": Point(
                [*SMALL[1:], "schedule=tawpipe,tawpipe:dbs=off", "groups=3", "hidden=64,128,256"]
            )
        },
        ("tawpipe:dbs=off", None),
        "memory",
    ),
    "overlap": Experiment(
        "Hidden communication",
        "between nodes, Gbit/s",
        "groups",
        {
            f"{rate:g}": Point(
                [
                    "groups=3",
                    "schedule=fsdp:hierarchical=on,tawpipe,tawpipe:cco=off,tawpipe:cco=serial",
                ],
                (f"between.rate={0.94 * rate} Gbit/s",),
            )
            for rate in (1, 2.5, 5, 10, 25, 100)
        },
        {
            f"{rate / 1000:g}": Point(
                [
                    *SMALL,
                    "groups=3",
                    "schedule=fsdp:hierarchical=on,tawpipe,tawpipe:cco=off,tawpipe:cco=serial",
                ],
                nodes=(3, 2, f"{rate}mbit"),
            )
            for rate in (50, 100, 200, 400, 1000)
        },
        ("tawpipe", None),
        draws="overlap",
    ),
    "devices": Experiment(
        "Unequal devices",
        "micro-batches",
        "heterogeneous",
        {
            "equal devices": Point(["ffn=2816", "micro_batch=4", METHODS]),
            "the same for all": Point(["ffn=2816", "micro_batch=4", METHODS], (UNEQUAL,)),
            "by speed": Point(["ffn=2816", METHODS], (UNEQUAL,)),
        },
        {
            "equal devices": Point([*TWO_NODES, "micro_batch=3", METHODS], nodes=(2, 2, "1gbit")),
            "the same for all": Point(
                [*TWO_NODES, "micro_batch=3", METHODS], nodes=(2, 2, "1gbit"), slow=True
            ),
            "by speed": Point(
                [*TWO_NODES, "micro_batch_per_rank=[4,4,2,2]", METHODS],
                nodes=(2, 2, "1gbit"),
                slow=True,
            ),
        },
        (None, "equal devices"),
        "compute",
        "compute",
    ),
    "inside": Experiment(
        "Links inside nodes",
        "rate inside over between nodes",
        "groups",
        {
            f"{rate / 10:g}": Point(
                ["groups=3", "hidden=4096", METHODS], (f"inside.rate={rate} Gbit/s",)
            )
            for rate in (10, 20, 30, 50, 1200)
        },
        {
            "1": Point([*SMALL, "groups=3", METHODS], nodes=(6, 1, "100mbit")),
            "memory": Point([*SMALL, "groups=3", METHODS], nodes=(3, 2, "100mbit")),
        },
        (None, -1),
    ),
    "layers": Experiment(
        "Irregular blocks",
        "blocks",
        "heterogeneous",
        {
            "equal": Point(["ffn=2816", "micro_batch=1", PIPELINE_TOO]),
            "three widths": Point(["micro_batch=1", PIPELINE_TOO]),
        },
        {
            "equal": Point([*SMALL, "groups=3", "ffn=512", PIPELINE_TOO]),
            "three widths": Point(
                [
                    *SMALL,
                    "groups=3",
                    "ffn_per_layer=[512,512,512,512,256,256,256,256,768,768,768,768]",
                    PIPELINE_TOO,
                ]
            ),
        },
        (None, "equal"),
        "idle",
    ),
}


def ranks_of_last_node(words):
    """Processes of a launch that may only use the last core, which the last of two nodes has."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().split(b"\0")[: len(words)] == [
                word.encode() for word in words
            ]:
                if os.sched_getaffinity(int(folder.name)) == {max(os.sched_getaffinity(0))}:
                    yield int(folder.name)


def halve_speed(launch, words):
    """Until the launch ends, its ranks of the last node run in every other slice of 20 ms; what
    they send waits as well."""
    ranks, asked = [], 0.0
    while launch.poll() is None:
        if time.monotonic() > asked + 1:
            ranks, asked = list(ranks_of_last_node(words)), time.monotonic()
        for sent in (signal.SIGSTOP, signal.SIGCONT):
            for rank in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, sent)
            time.sleep(0.02)


def measure(options):
    """Relative paths, because a record keeps its command and is passed on."""
    folder = pathlib.Path(os.path.relpath(options.folder, ROOT))
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    for name in options.names:
        for number, point in enumerate(EXPERIMENTS[name].measured.values()):
            nodes, ranks, rate = point.nodes
            words = [
                os.path.relpath(options.minitaw, ROOT),
                "run",
                "inputs/small/groups.toml",
                "-o",
                f"{folder}/{name}-{number}.h5",
            ]
            command = [
                "scripts/cluster",
                "--nodes",
                str(nodes),
                "--ranks-per-node",
                str(ranks),
                "--rate",
                rate,
                "--",
                *words,
            ]
            command += [
                word
                for setting in [f"ranks={nodes * ranks}", *point.settings]
                for word in ("--set", setting)
            ]
            launch = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
            if point.slow:
                halve_speed(launch, words)
            if launch.wait():
                raise BadInput(f"{' '.join(command)}: exit code {launch.returncode}")


def figures(axis, name, settings, rate, **others):
    """Of a case: where it is on the axis, its schedule, tokens/s, and what else is shown."""
    place = int(settings[axis]) if axis in settings else name
    return {"place": place, "schedule": settings["schedule"], "rate": rate, **others}


def predictions(experiment, program):
    for name, point in experiment.predicted.items():
        for case in predicted_cases(
            program,
            DECKS / f"{experiment.deck}.toml",
            MACHINES / "tawpipe-paper.toml",
            point.settings,
            point.changes,
        ):
            settings = case["settings"] | {"groups": case["settings"]["groups"].count("+") + 1}
            yield figures(
                experiment.axis,
                name,
                settings,
                case["tokens_per_s"],
                memory=case["memory_bytes"],
                **{name: case[name] for name in ("overlap", "idle", "compute")},
            )


def measurements(experiment, folder, name):
    for number, point in enumerate(experiment.measured):
        for case in load(str(folder / f"{name}-{number}.h5")).cases:
            settings = {
                "schedule": case["schedule"],
                "groups": case["group_count"],
                "hidden": case["hidden"],
            }
            yield figures(
                experiment.axis,
                point,
                settings,
                case["tokens_per_s"],
                memory=case["memory_measured"],
                overlap=case["overlap"],
                idle=case["idle_share"],
                compute=1 - case["exposed_share"] - case["idle_share"],
            )


def relative(experiment, cases):
    """{schedule: {place: (rate over that of the reference, the other figure)}}"""
    places = list(dict.fromkeys(case["place"] for case in cases))
    rates = {(case["schedule"], case["place"]): case["rate"] for case in cases}
    schedule, place = experiment.reference
    place = places[place] if place == -1 else place
    found = {}
    for case in cases:
        reference = rates[schedule or case["schedule"], case["place"] if place is None else place]
        found.setdefault(case["schedule"], {})[case["place"]] = (
            case["rate"] / reference,
            case[experiment.shows],
        )
    return found


def text(experiment, cell):
    if cell is None:
        return "-"
    rate, other = cell
    return (
        f"{rate:.2f} ("
        + (f"{other / 1e6:.0f} MB" if experiment.shows == "memory" else f"{100 * other:.0f} %")
        + ")"
    )


def print_table(experiment, found):
    places = list(dict.fromkeys(place for cells in found.values() for place in cells))
    table(
        [experiment.axis, *(f"`{name}`" for name in found)],
        [
            [str(place), *(text(experiment, cells.get(place)) for cells in found.values())]
            for place in places
        ],
    )


def draw(axes, experiment, sides):
    """Both sides on one axis, in the order of the places; what is predicted is solid."""
    names = list(dict.fromkeys(name for found in sides for name in found))
    places = list(
        dict.fromkeys(place for found in sides for cells in found.values() for place in cells)
    )
    if all(isinstance(place, int) or place.replace(".", "").isdigit() for place in places):
        places.sort(key=float)
    for dash, found in zip(DASHES, sides):
        for name, cells in found.items():
            style = names.index(name)
            axes.plot(
                [places.index(place) for place in cells],
                [cell[experiment.draws != "rate"] for cell in cells.values()],
                dash,
                marker=MARKERS[style],
                color=COLOURS[style],
                markersize=4,
                label=name if dash == "-" else None,
            )
    axes.set_xticks(
        range(len(places)), [str(place).replace(", ", ",\n") for place in places], fontsize=7
    )
    axes.set(
        title=experiment.title,
        xlabel=experiment.axis,
        ylabel={
            "rate": "relative rate",
            "overlap": "hidden share of transfers",
            "compute": "share of computing",
        }[experiment.draws],
    )
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=6)


def tables(options):
    drawn = new_figure(11, 6)
    for number, name in enumerate(options.names):
        experiment = EXPERIMENTS[name]
        sides = [
            relative(experiment, list(cases))
            for cases in (
                predictions(experiment, options.minitaw),
                measurements(experiment, options.folder, name),
            )
        ]
        print(f"### {experiment.title}\n\n24 GPUs, predicted; then measured here:\n")
        for found in sides:
            print_table(experiment, found)
        draw(drawn.add_subplot(2, 3, number + 1), experiment, sides)
    if options.picture:
        save(drawn, options.picture)


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
    for name, run in (("measure", measure), ("tables", tables)):
        verb = verbs.add_parser(name)
        verb.set_defaults(run=run)
        verb.add_argument("folder", type=pathlib.Path)
        verb.add_argument(
            "names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)} (default: all)"
        )
        if run == tables:
            verb.add_argument("--picture", help="draw both, predicted solid")
    options = parser.parse_args()
    options.names = options.names or list(EXPERIMENTS)
    try:
        options.run(options)
    except BadInput as sentence:
        sys.exit(f"experiments: {sentence}")


if __name__ == "__main__":
    main()
