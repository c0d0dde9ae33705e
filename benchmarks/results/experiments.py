#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Three experiments and three checks that TawPipe's paper proposes (docs/paper.md), measured on
nodes made of one machine and predicted for 24 GPUs.

    scripts/env python3 benchmarks/results/experiments.py measure FOLDER [NAME ...]
    scripts/env python3 benchmarks/results/experiments.py tables FOLDER [NAME ...]
        [--picture FILE.png]

`measure` runs inputs/small/groups.toml on clusters of this machine (docs/cluster.md), one launch
for each point that is no axis of a deck, and keeps FOLDER/NAME-NUMBER.h5; that takes half an hour,
and resumes what is there. `tables` predicts the decks of inputs/paper on
inputs/machines/tawpipe-paper.toml and prints both.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from dataclasses import dataclass

from pages import (
    DECKS,
    MACHINES,
    ROOT,
    add_program,
    cluster_words,
    end,
    one_thread,
    parser_of,
    predict,
    print_table,
    set_words,
)
from minitaw.command import BadInput
from minitaw.drawing import COLOURS, DASHES, MARKERS, new_figure, save
from minitaw.record import load

SLICE = 0.02  # seconds that the slow node waits, and runs
LOOK_AGAIN = 1  # seconds after which new ranks of it are looked for
LABELS = {
    "rate": "relative rate",
    "overlap": "hidden share of transfers",
    "compute": "share of computing",
}
SMALL = ["hidden=128", "layers=12", "micro_batches=12", "steps=3", "repeats=2"]
TWO_NODES = ["hidden=256", "layers=8", "micro_batches=8", "steps=3", "repeats=2", "groups=2"]
UNEQUAL = 'exceptions=[{ranks="0-7",device.speed=0.5},{ranks="16-23",device.speed=1.5}]'
PIPELINE_TOO = "schedule=1f1b,fsdp,fsdp:hierarchical=on,weipipe,tawpipe"
METHODS = "schedule=fsdp,fsdp:hierarchical=on,weipipe,tawpipe"


@dataclass
class Point:
    """A launch."""

    settings: list  # of the deck
    changes: tuple = ()  # of the machine that is predicted
    nodes: tuple = (3, 2, "200mbit")  # of the machine that is measured: nodes, ranks on each, rate
    slow: bool = False  # the last node is half as fast


@dataclass
class Experiment:
    title: str
    axis: str  # a column of the cases, else the name of the point
    deck: str
    predicted: dict
    measured: dict
    reference: tuple  # schedule and point whose rate others are divided by; None: their own
    shows: str = "overlap"  # the figure in brackets
    draws: str = "rate"  # or the figure in brackets


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
                    "schedule=fsdp:hierarchical=on,tawpipe,tawpipe:cco=off",
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
                    "schedule=fsdp:hierarchical=on,tawpipe,tawpipe:cco=off",
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
    last = {max(os.sched_getaffinity(0))}
    command = [word.encode() for word in words]
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found = (folder / "cmdline").read_bytes().split(b"\0")
            if found[: len(words)] == command and os.sched_getaffinity(int(folder.name)) == last:
                yield int(folder.name)


def halve_speed(launch, words):
    """Until the launch ends, its ranks of the last node run in every other slice of time; what they
    send waits as well."""
    ranks, asked = [], 0.0
    while launch.poll() is None:
        if time.monotonic() > asked + LOOK_AGAIN:
            ranks, asked = list(ranks_of_last_node(words)), time.monotonic()
        for sent in (signal.SIGSTOP, signal.SIGCONT):
            for rank in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, sent)
            time.sleep(SLICE)


def measure_point(program, point, output):
    nodes, ranks, rate = point.nodes
    words = [program, "run", "inputs/small/groups.toml", "-o", str(output)]
    settings = set_words([f"ranks={nodes * ranks}", *point.settings])
    command = [*cluster_words(nodes, ranks, rate), *words, *settings]
    launch = subprocess.Popen(command, cwd=ROOT, env=one_thread())
    if point.slow:
        halve_speed(launch, words)
    if launch.wait():
        raise BadInput(f"{' '.join(command)}: exit code {launch.returncode}")


def measure(options):
    """Relative paths, because a record keeps its command and is passed on."""
    folder = pathlib.Path(os.path.relpath(options.folder, ROOT))
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    program = os.path.relpath(options.minitaw, ROOT)
    for name in options.names:
        for number, point in enumerate(EXPERIMENTS[name].measured.values()):
            measure_point(program, point, folder / f"{name}-{number}.h5")


@dataclass
class Figures:
    """Of a case, predicted or measured."""

    point: object  # where it is on the axis: text or number
    schedule: str
    rate: float  # tokens/s
    memory: int = 0  # bytes
    overlap: float = 0  # and all below: shares
    idle: float = 0
    compute: float = 0


def predictions(experiment, program):
    deck, machine = DECKS / f"{experiment.deck}.toml", MACHINES / "tawpipe-paper.toml"
    for name, point in experiment.predicted.items():
        for case in predict(program, deck, machine, point.settings, point.changes):
            settings = case["settings"] | {"groups": case["settings"]["groups"].count("+") + 1}
            yield Figures(
                point=int(settings[experiment.axis]) if experiment.axis in settings else name,
                schedule=settings["schedule"],
                rate=case["tokens_per_s"],
                memory=case["memory_bytes"],
                overlap=case["overlap"],
                idle=case["idle"],
                compute=case["compute"],
            )


def measurements(experiment, folder, name):
    for number, point in enumerate(experiment.measured):
        for case in load(str(folder / f"{name}-{number}.h5")).cases:
            settings = {"groups": case["group_count"], "hidden": case["hidden"]}
            yield Figures(
                point=settings.get(experiment.axis, point),
                schedule=case["schedule"],
                rate=case["tokens_per_s"],
                memory=case["memory_measured"],
                overlap=case["overlap"],
                idle=case["idle_share"],
                compute=1 - case["exposed_share"] - case["idle_share"],
            )


def points_of(found):
    """Those of all schedules, in the order of their first appearance."""
    return list(dict.fromkeys(point for cells in found.values() for point in cells))


def relative(experiment, cases):
    """{schedule: {point: (rate over that of the reference, the other figure)}}"""
    points = list(dict.fromkeys(case.point for case in cases))
    rates = {(case.schedule, case.point): case.rate for case in cases}
    schedule, point = experiment.reference
    point = points[point] if point == -1 else point
    found = {}
    for case in cases:
        reference = rates[schedule or case.schedule, case.point if point is None else point]
        cell = case.rate / reference, getattr(case, experiment.shows)
        found.setdefault(case.schedule, {})[case.point] = cell
    return found


def cell_text(experiment, cell):
    if cell is None:
        return "-"
    rate, other = cell
    shown = f"{100 * other:.0f} %"
    if experiment.shows == "memory":
        shown = f"{other / 1e6:.0f} MB"
    return f"{rate:.2f} ({shown})"


def print_experiment(experiment, found):
    rows = []
    for point in points_of(found):
        texts = [cell_text(experiment, cells.get(point)) for cells in found.values()]
        rows.append([point, *texts])
    print_table([experiment.axis, *(f"`{name}`" for name in found)], rows)


def is_number(point):
    return isinstance(point, int) or point.replace(".", "").isdigit()


def draw(axes, experiment, sides):
    """Both sides on one axis, in the order of the points; what is predicted is solid."""
    names = list(dict.fromkeys(name for found in sides for name in found))
    points = list(dict.fromkeys(point for found in sides for point in points_of(found)))
    if all(map(is_number, points)):
        points.sort(key=float)
    which = 0 if experiment.draws == "rate" else 1  # of a cell
    for dash, found in zip(DASHES, sides):
        for name, cells in found.items():
            style = names.index(name)
            axes.plot(
                [points.index(point) for point in cells],
                [cell[which] for cell in cells.values()],
                dash,
                marker=MARKERS[style],
                color=COLOURS[style],
                markersize=4,
                label=name if dash == "-" else None,
            )
    labels = [str(point).replace(", ", ",\n") for point in points]
    axes.set_xticks(range(len(points)), labels, fontsize=7)
    axes.set(title=experiment.title, xlabel=experiment.axis, ylabel=LABELS[experiment.draws])
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=6)


def tables(options):
    drawn = new_figure(11, 6)
    for number, name in enumerate(options.names, 1):
        experiment = EXPERIMENTS[name]
        sides = [
            relative(experiment, list(predictions(experiment, options.minitaw))),
            relative(experiment, list(measurements(experiment, options.folder, name))),
        ]
        print(f"### {experiment.title}\n\n24 GPUs, predicted; then measured here:\n")
        for found in sides:
            print_experiment(experiment, found)
        draw(drawn.add_subplot(2, 3, number), experiment, sides)
    if options.picture:
        save(drawn, options.picture)


def main():
    parser = parser_of(__doc__)
    add_program(parser)
    verbs = parser.add_subparsers(required=True)
    for work in (measure, tables):
        verb = verbs.add_parser(work.__name__)
        verb.set_defaults(work=work)
        verb.add_argument("folder", type=pathlib.Path)
        verb.add_argument(
            "names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)} (default: all)"
        )
        if work == tables:
            verb.add_argument("--picture", help="draw both, predicted solid")
    options = parser.parse_args()
    options.names = options.names or list(EXPERIMENTS)
    options.work(options)


if __name__ == "__main__":
    end(main)
