#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The predicted numbers of docs/paper.md, and the plan in the README: their tables and some of
their sentences, as they stand there.

    scripts/env benchmarks/paper.py [--fit]

--fit also prints the constants that come closest to the published rates of TawPipe and WeiPipe (minutes).
"""

import argparse
import functools
import json
import subprocess
import sys
import tomllib

import numpy
from scipy.optimize import least_squares

from predictions import DECKS, MACHINES, ROOT, BadInput, predict, table

METHODS = {
    "1F1B": "1f1b:blocking=on",
    "FSDP": "fsdp:hierarchical=on:prefetch=0",
    "WeiPipe": "weipipe",
    "TawPipe": "tawpipe",
}
PUBLISHED = {  # H, S in K: tokens/s of a GPU
    (4096, 16): (1114.2, 956.1, 1232.4, 1377.6),
    (1024, 16): (5594, 6751, 8412, 8914),
    (1024, 8): (6636, 8826, 10663, 11738),
    (1024, 4): (7212, 10559, 12055, 13629),
}
PUBLISHED_MEMORY = (62.3, 52.0, 57.8, 56.7)  # GB, the first row
PUBLISHED_NCCL = (105.1, 41.7, 194.0, 34.7)  # s of a step, the second row
ABLATIONS = {  # S = 16K, H = 1024, 2048, 4096
    "tawpipe": (8910, 4180, 1380),
    "tawpipe:gwps=off": (8590, 3910, 1260),
    "tawpipe:cco=off": (8220, 3470, 1140),
}
WIDTHS = (1024, 2048, 4096)
UNPUBLISHED = [(2048, 4), (2048, 8), (2048, 16), (4096, 4), (4096, 8)]
BASELINES = ("1f1b", "zb1", "zb2", "fsdp", "fsdp:hierarchical=on", "tawpipe")
FSDP_READINGS = (
    ("fsdp:hierarchical=on:prefetch=0",),
    ("fsdp:prefetch=0",),
    ("fsdp",),
    ("fsdp:prefetch=0", "recompute=none"),
)
BOTTLENECK = (
    ("TawPipe", ("tawpipe",)),
    ("`prefetch=4:grad_ticks=6`", ("tawpipe:prefetch=4:grad_ticks=6",)),
    ("`rails=2`, `rails=8` with one adapter", ("tawpipe:rails=2", "tawpipe:rails=8")),
    ("two messages of a lane at once (`between.messages = 2`)", ("tawpipe",), "between.messages=2"),
    (
        "two messages, `prefetch=4:grad_ticks=6`",
        ("tawpipe:prefetch=4:grad_ticks=6",),
        "between.messages=2",
    ),
    ("hierarchical FSDP", ("fsdp:hierarchical=on",)),
)
CONSTANTS = {
    "device.bf16.products": "TFLOP/s",
    "device.bf16.attention": "TFLOP/s",
    "device.memory_rate": "GB/s",
}


class Paper:
    def __init__(self, program):
        self.program, self.machine, self.errors = program, MACHINES / "tawpipe-paper.toml", {}
        self.cases = functools.cache(self.predict)

    def predict(self, deck, *settings, changes=()):
        return predict(self.program, DECKS / f"{deck}.toml", self.machine, settings, changes)

    def case(self, deck, schedule, settings=(), **values):
        wanted = {"schedule": schedule, **{key: str(value) for key, value in values.items()}}
        return next(
            case
            for case in self.cases(deck, *settings)
            if wanted.items() <= case["settings"].items()
        )

    def row(self, deck, hidden, seq, schedules, *settings):
        return [
            self.case(deck, schedule, settings, hidden=hidden, seq=seq * 1024)
            for schedule in schedules
        ]

    def plan(self, deck, *settings):
        words = [word for setting in settings for word in ("--set", setting)]
        done = subprocess.run(
            [self.program, "plan", str(DECKS / f"{deck}.toml"), *words, "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)["cases"]

    def beside(self, kind, published, predicted):
        self.errors.setdefault(kind, []).append(predicted / published - 1)
        return f"{published:g} / {predicted:.{0 if predicted >= 500 else 1}f} ({percent(predicted, published)})"

    def fit(self):
        """Finds the constants that come closest to the rates of TawPipe and WeiPipe, by least
        squares of their logarithms."""
        known = {
            (str(hidden), str(seq * 1024), METHODS[name]): rate
            for (hidden, seq), row in PUBLISHED.items()
            for name, rate in list(zip(METHODS, row))[2:]
        } | {("2048", "16384", "tawpipe"): ABLATIONS["tawpipe"][1]}

        def excess(factors):
            changes = [
                f"{key}={start * factor} {CONSTANTS[key]}"
                for (key, start), factor in zip(start_of.items(), numpy.exp(factors))
            ]
            cases = [
                case
                for sizes in (("hidden=1024",), ("hidden=2048,4096", "seq=16K"))
                for case in self.predict(
                    "table", "schedule=weipipe,tawpipe", *sizes, changes=changes
                )
            ]
            return [
                numpy.log(rate_of(case) / known[key])
                for case in cases
                if (key := key_of(case)) in known
            ]

        content = tomllib.loads(self.machine.read_text(encoding="utf-8"))
        start_of = {
            key: float(functools.reduce(dict.get, key.split("."), content).split()[0])
            for key in CONSTANTS
        }
        found = least_squares(excess, [0.0] * len(start_of), diff_step=0.02, xtol=1e-3, ftol=1e-3)
        print(
            "fitted: "
            + ", ".join(
                f"{key} = {start * factor:.0f} {CONSTANTS[key]}"
                for (key, start), factor in zip(start_of.items(), numpy.exp(found.x))
            )
        )
        print(
            f"root mean square of the errors: {100 * numpy.sqrt(numpy.mean(numpy.square(found.fun))):.1f} %, of {len(known)} rates\n"
        )


def percent(value, base):
    return f"{100 * (value / base - 1):+.0f} %"


def rate_of(case):
    """Tokens/s of a GPU."""
    return case["tokens_per_s"] / int(case["settings"]["ranks"])


def key_of(case):
    return tuple(case["settings"][name] for name in ("hidden", "seq", "schedule"))


def rate_text(case):
    return (
        f"{rate_of(case):.0f}"
        if case["fits"]
        else f"does not fit: {case['memory_bytes'] / 1e9:.0f} GB"
    )


def pivot(cases, key):
    lines = {}
    for case in cases:
        value = case["settings"][key]
        text = rate_text(case) + (f" ({100 * case['overlap']:.0f} %)" if case["fits"] else "")
        lines.setdefault(str(value.count("+") + 1) if key == "groups" else value, {})[
            case["settings"]["schedule"]
        ] = text
    table(
        [key, *(f"`{name}`" for name in next(iter(lines.values())))],
        [[value, *line.values()] for value, line in lines.items()],
    )


def adapter_of(case):
    """Share of the step for which the busiest direction of an adapter moves data."""
    return max(max(use["out_busy"], use["in_busy"]) for use in case["adapters"])


def claims(page):
    methods, tawpipe = page.row("table", 4096, 16, METHODS.values()), page.case(
        "table", "tawpipe", hidden=4096, seq=16384
    )
    gains = [
        percent(rate_of(tawpipe), rate_of(case))
        for case in [*methods, *page.row("table", 4096, 16, ("fsdp", "fsdp:hierarchical=on"))]
    ]
    memory = [f"{methods[i]['memory_bytes'] / 1e9:.1f}" for i in (3, 2, 1, 0)]
    zero_bubble = [
        f"{case['memory_bytes'] / 1e9:.0f}" for case in page.row("table", 4096, 16, ("zb1", "zb2"))
    ]
    plans = page.plan("table", "schedule=tawpipe,weipipe", "hidden=1024", "seq=16K")
    between = [plan["bytes_per_step"]["between"]["total"] / 1e9 for plan in plans]
    ticks, computing = plans[0]["ticks"]["total"], plans[0]["ticks"]["computing_per_rank"][0]
    slots = {
        plan["slots"]["w"]
        for plan in page.plan("ablations", "schedule=tawpipe,tawpipe:dbs=off", "hidden=1024")
    }
    kernels = page.case("table", "tawpipe", hidden=1024, seq=16384)
    weak = [rate_of(page.case("weak-scaling", "tawpipe", ranks=ranks)) for ranks in (8, 24)]
    strong = [
        f"{rate_of(page.case('strong-scaling', name, ranks=24)):.0f}"
        for name in ("tawpipe", "weipipe", "fsdp", "fsdp:hierarchical=on")
    ]

    def gain_over(name):
        rates = [
            [rate_of(case) for case in page.row("ablations", hidden, 16, ("tawpipe", name))]
            for hidden in WIDTHS
        ]
        return ", ".join(str(round(100 * (full / without - 1))) for full, without in rates) + " %"

    return [
        (
            "faster than FSDP",
            f"{gains[1]} over FSDP without prefetch, {gains[4]} with it, {gains[5]} against hierarchical FSDP",
        ),
        ("faster than WeiPipe", gains[2]),
        ("faster than 1F1B", gains[0]),
        ("grouping (GWPS) gains", gain_over("tawpipe:gwps=off")),
        ("overlap (CCO) gains", gain_over("tawpipe:cco=off")),
        (
            "device-bound storage halves weight buffers",
            f"{' or '.join(map(str, sorted(slots)))} weight slots on a rank with it and without it",
        ),
        (
            "memory is modest",
            f"{memory[0]} GB, WeiPipe {memory[1]}, FSDP {memory[2]}; 1F1B {memory[3]}",
        ),
        ("zero bubble runs out of memory at H = 4096", f"{' and '.join(zero_bubble)} GB of 80"),
        (
            "bytes of a block, 36 H^2 in WeiPipe, 24 H^2 in TawPipe",
            f"{between[0]:.1f} / {between[1]:.1f} GB a step between nodes: {between[0] / between[1]:.2f}",
        ),
        (
            "bubble ((D-1)P+N)/((3N+D-1)P+N), N = 16",
            f"{ticks - computing} of {ticks} ticks: {100 * (1 - computing / ticks):.1f} %",
        ),
        (
            "least time in NCCL kernels",
            f"{adapter_of(kernels) * kernels['step_s']:.0f} s for the data; {kernels['transfer_s']:.0f} s if kernels wait for them",
        ),
        ("near-linear weak scaling, 8 to 24", f"{100 * weak[1] / weak[0]:.0f} %"),
        (
            "best strong scaling, 8 to 24",
            f"{strong[0]} token/s a GPU; WeiPipe {strong[1]}, FSDP {strong[2]}, hierarchical FSDP {strong[3]}",
        ),
    ]


def hours(page):
    for number, decks in enumerate(
        (
            ("weak-scaling", "strong-scaling"),
            ("groups",),
            ("table",),
            ("heterogeneous",),
            ("ablations",),
        ),
        1,
    ):
        cases = [case for deck in decks for case in page.cases(deck)]
        fit = [case for case in cases if case["fits"]]
        yield (
            str(number),
            str(len(fit))
            + (f", and {len(cases) - len(fit)} that do not fit" if len(fit) < len(cases) else ""),
            f"{7 * sum(case['step_s'] for case in fit) / 3600:.0f}",
            f"{7 * max(case['step_s'] for case in fit) / 3600:.1f}",
        )


def throughput(page):
    lines = [
        [
            f"{hidden}, {seq}K",
            *(
                page.beside("rates", p, rate_of(case))
                for p, case in zip(published, page.row("table", hidden, seq, METHODS.values()))
            ),
        ]
        for (hidden, seq), published in PUBLISHED.items()
    ]
    lines += [
        [
            f"{hidden}, {seq}K",
            *(
                f"- / {rate_text(case)}"
                for case in page.row("table", hidden, seq, METHODS.values())
            ),
        ]
        for hidden, seq in UNPUBLISHED
    ]
    memory = [
        page.beside("memory", p, case["memory_bytes"] / 1e9)
        for p, case in zip(PUBLISHED_MEMORY, page.row("table", 4096, 16, METHODS.values()))
    ]
    table(("H, S", *METHODS), [*lines, ["memory at 4096, 16K, GB", *memory]])
    print(f"- {within(page.errors['rates'])} rates are within 10 %\n")
    readings = {
        f"`{name}`"
        + ("".join(f", `{setting}`" for setting in settings)): [
            (
                page.row(
                    "table",
                    hidden,
                    seq,
                    [name],
                    f"schedule={name}",
                    f"hidden={hidden}",
                    f"seq={seq}K",
                    *settings,
                )[0],
                published[1],
            )
            for (hidden, seq), published in PUBLISHED.items()
        ]
        for name, *settings in FSDP_READINGS
    }
    table(
        ("FSDP is", *(f"{hidden}, {seq}K" for hidden, seq in PUBLISHED), "memory at 4096, 16K, GB"),
        [
            [
                name,
                *(percent(rate_of(case), rate) for case, rate in row),
                f"{row[0][0]['memory_bytes'] / 1e9:.1f}",
            ]
            for name, row in readings.items()
        ],
    )


def ablations(page):
    table(
        ["hidden", *(f"`{name}`" for name in ABLATIONS)],
        [
            [
                str(hidden),
                *(
                    page.beside(
                        "ablations" if ":" in name else "TawPipe again", published[i], rate_of(case)
                    )
                    for (name, published), case in zip(
                        ABLATIONS.items(), page.row("ablations", hidden, 16, ABLATIONS)
                    )
                ),
            ]
            for i, hidden in enumerate(WIDTHS)
        ],
    )
    print(f"- {within(page.errors['ablations'])} cells are within 10 %\n")
    pivot(page.cases("ablations"), "hidden")


def within(errors):
    return f"{sum(abs(error) <= 0.1 for error in errors)} of {len(errors)}"


def bottleneck(page):
    """TawPipe with its adapters as bottleneck, and what would load them more."""
    for title, schedules, *changes in BOTTLENECK:
        cases = page.predict(
            "table",
            "schedule=" + ",".join(schedules),
            "hidden=1024",
            "seq=8K",
            "micro_batch=4",
            "micro_batches=96",
            changes=("between.rate=6 Gbit/s", *changes),
        )
        yield title, ", ".join(
            f"{case['step_s']:.1f}" for case in cases
        ), f"{100 * adapter_of(cases[0]):.0f} %"


def print_tables(page):
    print("# docs/paper.md\n\n## Claim by claim\n")
    table(("claim", "predicted"), claims(page))
    print("## Repeat it on 24 GPUs\n")
    table(("order", "cases", "hours", "longest case"), hours(page))
    print("## Throughput\n")
    throughput(page)
    print("## Ablations\n")
    ablations(page)
    print("## Time in NCCL kernels\n")
    table(
        ["method", "published / predicted: kernels", "an adapter moves data"],
        [
            [
                name,
                page.beside("NCCL", p, case["transfer_s"]),
                f"{adapter_of(case) * case['step_s']:.1f}",
            ]
            for (name, p, case) in zip(
                METHODS, PUBLISHED_NCCL, page.row("table", 1024, 16, METHODS.values())
            )
        ],
    )
    print("## Better baselines\n")
    table(
        ("H, S", *(f"`{name}`" for name in BASELINES)),
        [
            [f"{hidden}, {seq}K", *map(rate_text, page.row("table", hidden, seq, BASELINES))]
            for hidden, seq in PUBLISHED
        ],
    )
    idle = [
        100 * plan["idle"]["share"]
        for hidden, seq in PUBLISHED
        for plan in page.plan("table", "schedule=1f1b", f"hidden={hidden}", f"seq={seq}K")
    ]
    print(f"- 1F1B idles for {min(idle):.0f} to {max(idle):.0f} %\n")
    print("## Why hierarchical FSDP is ahead\n")
    table(("change", "step, s", "busiest adapter"), bottleneck(page))
    for title, *decks in (("Groups", "groups"), ("Scaling", "strong-scaling", "weak-scaling")):
        print(f"## {title}\n")
        for deck in decks:
            pivot(page.cases(deck), deck if deck == "groups" else "ranks")
    print("# README.md\n\n## Plan before you run\n")
    table(
        (
            "schedule",
            "busiest node, out",
            "inside nodes, per rank",
            "memory, worst rank",
            "idle by order",
        ),
        [
            [
                f"`{plan['settings']['schedule']}`",
                f"{plan['busiest_out']['bytes'] / 2**30:.1f}",
                f"{plan['bytes_per_step']['inside']['total'] / plan['settings']['ranks'] / 2**30:.1f}",
                f"{plan['memory_bytes']['worst']['total'] / 2**30:.2f}",
                f"{100 * plan['idle']['share']:.1f}%",
            ]
            for plan in page.plan("plan", "schedule=tawpipe,fsdp:hierarchical=on,fsdp,weipipe,1f1b")
        ],
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minitaw",
        default=str(ROOT / "build/host/minitaw"),
        help="the program (default: build/host/minitaw)",
    )
    parser.add_argument(
        "--fit",
        action="store_true",
        help="fit the constants of inputs/machines/tawpipe-paper.toml anew and print them (minutes)",
    )
    options = parser.parse_args()
    page = Paper(options.minitaw)
    try:
        if options.fit:
            page.fit()
        print_tables(page)
    except BadInput as sentence:
        sys.exit(f"paper: {sentence}")


if __name__ == "__main__":
    main()
