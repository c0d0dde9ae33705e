#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The predicted numbers of docs/paper.md (`tables`, two minutes) and the plan in docs/plan.md
(`plan`): their tables and some of their sentences, as they stand there.

    scripts/env benchmarks/results/paper.py [tables|plan|fit]

`fit` prints the constants of inputs/machines/tawpipe-paper.toml that come closest to the published
rates of TawPipe and WeiPipe (minutes).
"""

import functools
import tomllib
from dataclasses import dataclass

import numpy
from pages import (
    DECKS,
    MACHINES,
    add_program,
    cases_of,
    end,
    parser_of,
    predict,
    print_table,
    rate_of,
    set_words,
)
from scipy.optimize import least_squares

GB = 1e9
GIB = 2**30
K = 1024
CLOSE = 0.1  # relative error of what counts as near
RUNS = 7  # steps of each case, warm-up and all

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
# Micro-batches of 64K tokens that are 1536 sequences of the table, by their length (K).
MICRO_BATCHES = {4: 96, 8: 192, 16: 384}
BASELINES = ("1f1b", "fsdp", "fsdp:hierarchical=on", "tawpipe")
SLICED = ("1f1b:slices=8", "zb1:slices=8")
ZERO_BUBBLE = ("zb1", "zb2")
SCALED = ("1f1b", "fsdp", "fsdp:hierarchical=on", "weipipe", "tawpipe")
GROUPED = ("tawpipe", "tawpipe:dbs=off")
FSDP_READINGS = (
    ("fsdp:prefetch=0",),
    ("fsdp",),
    ("fsdp:prefetch=0", "recompute=none"),
)


@dataclass
class Change:
    """Something that may load the adapters more."""

    title: str
    schedule: str
    machine: tuple = ()


EARLY = "tawpipe:prefetch=4:grad_ticks=6"
BOTTLENECK = [
    Change("TawPipe", "tawpipe"),
    Change("`prefetch=4:grad_ticks=6`, `between.messages=2`", EARLY, ("between.messages=2",)),
    Change("hierarchical FSDP", "fsdp:hierarchical=on"),
]
LINKS = (1, 2.5, 5, 10, 100)  # Gbit/s between nodes
INSIDE = (10, 1200)
LINKED = ("fsdp:hierarchical=on", "tawpipe")
CONSTANTS = {
    "device.bf16.products": "TFLOP/s",
    "device.bf16.attention": "TFLOP/s",
    "device.memory_rate": "GB/s",
}


class Paper:
    """The decks of inputs/paper as the program predicts them on 24 GPUs."""

    def __init__(self, program):
        self.program = program
        self.machine = MACHINES / "tawpipe-paper.toml"
        self.errors = {}  # {kind of figure: relative errors}
        self.cases = functools.cache(self.predict)

    def predict(self, deck, *settings, changes=()):
        return predict(self.program, DECKS / f"{deck}.toml", self.machine, settings, changes)

    def plan(self, deck, *settings):
        return cases_of(self.program, "plan", DECKS / f"{deck}.toml", *set_words(settings))

    def case(self, deck, schedule, settings=(), **values):
        wanted = {"schedule": schedule} | {key: str(value) for key, value in values.items()}
        cases = self.cases(deck, *settings)
        return next(case for case in cases if wanted.items() <= case["settings"].items())

    def row(self, deck, hidden, seq, schedules, *settings):
        """Of each schedule the case of this width and length (K)."""
        settings = *settings, *of_length(seq)
        return [self.case(deck, name, settings, hidden=hidden, seq=seq * K) for name in schedules]

    def beside(self, kind, published, predicted):
        """ "published / predicted (error in %)", which counts among the errors of its kind."""
        self.add_error(kind, published, predicted)
        digits = 0 if predicted >= 500 else 1
        return f"{published:g} / {predicted:.{digits}f} ({gain(predicted, published):+})"

    def add_error(self, kind, published, predicted):
        self.errors.setdefault(kind, []).append(predicted / published - 1)

    def close(self, kind):
        errors = self.errors[kind]
        close = sum(abs(error) <= CLOSE for error in errors)
        return f"- {close} of {len(errors)} {kind} are within 10 %\n"


def of_length(seq):
    """Settings of sequences of so many K; of 16 a deck has them."""
    return () if seq == 16 else (f"seq={seq}K", f"micro_batches={MICRO_BATCHES[seq]}")


def gain(value, base):
    """In whole percent."""
    return round(100 * (value / base - 1))


def share_text(share, digits=0):
    return f"{100 * share:.{digits}f} %"


def memory_of(case):
    return case["memory_bytes"] / GB


def key_of(case):
    return tuple(case["settings"][name] for name in ("hidden", "seq", "schedule"))


def rate_text(case):
    return f"{rate_of(case):.0f}"


def rate_and_overlap(case):
    """Of transfer time, how many percent the rank computes."""
    return f"{rate_text(case)} ({100 * case['overlap']:.0f})"


# The constants of the machine.


def known_rates():
    """{(hidden, seq, schedule): tokens/s of a GPU} of WeiPipe and TawPipe."""
    known = {("2048", "16384", "tawpipe"): ABLATIONS["tawpipe"][1]}
    for (hidden, seq), rates in PUBLISHED.items():
        for name, rate in zip(METHODS, rates):
            if name in ("WeiPipe", "TawPipe"):
                known[str(hidden), str(seq * K), METHODS[name]] = rate
    return known


def fit(page):
    """Finds the constants that come closest to the rates of TawPipe and WeiPipe, by least squares
    of their logarithms."""
    known = known_rates()
    content = tomllib.loads(page.machine.read_text(encoding="utf-8"))
    start = [functools.reduce(dict.get, key.split("."), content) for key in CONSTANTS]
    start = numpy.array([float(value.split()[0]) for value in start])

    def excess(factors):
        values = zip(CONSTANTS.items(), start * numpy.exp(factors))
        changes = [f"{key}={value} {unit}" for (key, unit), value in values]
        cases = []
        for hidden, seq in (("1024", 4), ("1024", 8), ("1024,2048,4096", 16)):
            settings = "schedule=weipipe,tawpipe", f"hidden={hidden}", *of_length(seq)
            cases += page.predict("table", *settings, changes=changes)
        rates = [(rate_of(case), known[key_of(case)]) for case in cases if key_of(case) in known]
        return [numpy.log(rate / published) for rate, published in rates]

    found = least_squares(excess, [0.0] * len(start), diff_step=0.02, xtol=1e-3, ftol=1e-3)
    values = zip(CONSTANTS.items(), start * numpy.exp(found.x))
    print("fitted: " + ", ".join(f"{key} = {value:.0f} {unit}" for (key, unit), value in values))
    error = numpy.sqrt(numpy.mean(numpy.square(found.fun)))
    print(f"root mean square of the errors: {100 * error:.1f} %, of {len(known)} rates\n")


# Tables, in the order of the page.


def ablation_gains(page, name):
    """By how much the whole TawPipe is ahead, at each width."""
    gains = []
    for hidden in WIDTHS:
        full, without = map(rate_of, page.row("ablations", hidden, 16, ("tawpipe", name)))
        gains.append(str(gain(full, without)))
    return ", ".join(gains)


def claims_on_speed(page):
    tawpipe = rate_of(page.case("table", "tawpipe", hidden=4096, seq=16 * K))
    others = (*METHODS.values(), "fsdp", "fsdp:hierarchical=on")
    cases = page.row("table", 4096, 16, others)
    pipeline, fsdp, weipipe, _, prefetching, hierarchical = (
        gain(tawpipe, rate_of(case)) for case in cases
    )
    yield (
        "lead over FSDP, %",
        f"{fsdp} without prefetch, {prefetching} with it, {hierarchical} over hierarchical FSDP",
    )
    yield "lead over WeiPipe, %", weipipe
    yield "lead over 1F1B, %", pipeline
    yield "gain of grouping (GWPS), %", ablation_gains(page, "tawpipe:gwps=off")
    yield "gain of overlap (CCO), %", ablation_gains(page, "tawpipe:cco=off")


def claims_on_memory(page):
    plans = page.plan("ablations", "schedule=tawpipe,tawpipe:dbs=off", "hidden=1024")
    slots = sorted({plan["slots"]["w"] for plan in plans})
    yield (
        "weight buffers with device-bound storage",
        f"{' or '.join(map(str, slots))} slots, as without it",
    )
    first, second = map(memory_of, page.row("table", 4096, 16, ZERO_BUBBLE))
    yield "zero bubble at H = 4096", f"{first:.0f}, {second:.0f} of 80 GB"


def claims_on_order(page):
    plans = page.plan("table", "schedule=tawpipe,weipipe", "hidden=1024")
    tawpipe, weipipe = (plan["bytes_per_step"]["between"]["total"] / GB for plan in plans)
    yield (
        "bytes between nodes over WeiPipe's",
        f"{tawpipe:.1f} / {weipipe:.1f} GB: {tawpipe / weipipe:.2f}",
    )
    ticks = plans[0]["ticks"]["total"]
    idle = 1 - plans[0]["ticks"]["computing_per_rank"][0] / ticks
    yield "bubble ((D-1)P+N)/((3N+D-1)P+N), N = 16", share_text(idle, 1)
    kernels = page.case("table", "tawpipe", hidden=1024, seq=16 * K)
    data = kernels["adapter_busy"] * kernels["step_s"]
    yield (
        "time in NCCL kernels, s",
        f"{data:.0f} for the data, {kernels['transfer_s']:.0f} with waits",
    )


def claims_on_scaling(page):
    few, many = (rate_of(page.case("weak-scaling", "tawpipe", ranks=n)) for n in (8, 24))
    yield "weak scaling, 8 to 24 GPUs", share_text(many / few)
    names = ("tawpipe", "fsdp:hierarchical=on")
    cases = [page.case("strong-scaling", name, ranks=24) for name in names]
    tawpipe, hierarchical = (f"{rate_of(case):.0f}" for case in cases)
    yield "strong scaling, 8 to 24 GPUs", f"{tawpipe}, hierarchical FSDP {hierarchical}"


def claims(page):
    for part in (claims_on_speed, claims_on_memory, claims_on_order, claims_on_scaling):
        yield from part(page)


ORDER = (
    ("weak-scaling", "strong-scaling"),
    ("groups",),
    ("table",),
    ("ablations",),
)


def every_case(page, deck):
    """Of the table, those of all lengths."""
    lengths = MICRO_BATCHES if deck == "table" else (16,)
    return [case for seq in lengths for case in page.cases(deck, *of_length(seq))]


def hours(page):
    """What each part of the page takes on 24 GPUs."""
    for decks in ORDER:
        cases = [case for deck in decks for case in every_case(page, deck)]
        steps = [case["step_s"] for case in cases if case["fits"]]
        rest = len(cases) - len(steps)
        count = f"{len(steps)}, and {rest} that do not fit" if rest else str(len(steps))
        every, longest = (RUNS * seconds / 3600 for seconds in (sum(steps), max(steps)))
        yield ", ".join(f"`{deck}.toml`" for deck in decks), count, f"{every:.0f}", f"{longest:.1f}"


def print_throughput(page):
    rows = []
    for (hidden, seq), published in PUBLISHED.items():
        pairs = zip(published, page.row("table", hidden, seq, METHODS.values()))
        cells = [page.beside("rates", rate, rate_of(case)) for rate, case in pairs]
        rows.append([f"{hidden}, {seq}K", *cells])
    pairs = zip(PUBLISHED_MEMORY, page.row("table", 4096, 16, METHODS.values()))
    memory = [page.beside("memory", size, memory_of(case)) for size, case in pairs]
    print_table(("H, S", *METHODS), [*rows, ["memory at 4096, 16K, GB", *memory]])
    print(page.close("rates"))


def print_readings(page):
    """What else FSDP of the paper may be: errors of its rates, and the most memory of the last."""
    for name, *settings in FSDP_READINGS:
        errors, memory = [], []
        for (hidden, seq), published in PUBLISHED.items():
            sizes = f"schedule={name}", f"hidden={hidden}"
            (case,) = page.row("table", hidden, seq, [name], *sizes, *settings)
            errors.append(gain(rate_of(case), published[1]))
            memory.append(memory_of(case))
        title = " with ".join(f"`{text}`" for text in (name, *settings))
        print(f"- {title} {min(errors):+} to {max(errors):+} %")
    print(f"- {max(memory):.1f} GB at H = 4096\n")


def print_ablations(page):
    names = {**ABLATIONS, "tawpipe:dbs=off": ("-",) * len(WIDTHS)}
    rows = []
    for i, hidden in enumerate(WIDTHS):
        row = [str(hidden)]
        for case in page.row("ablations", hidden, 16, names):
            name = case["settings"]["schedule"]
            published = names[name][i]
            if name in ABLATIONS and ":" in name:
                page.add_error("ablations", published, rate_of(case))
            row.append(f"{published} / {rate_and_overlap(case)}")
        rows.append(row)
    print_table(["H", *(f"`{name}`" for name in names)], rows)
    print(page.close("ablations"))


def print_kernels(page):
    rows = []
    cases = page.row("table", 1024, 16, METHODS.values())
    for name, published, case in zip(METHODS, PUBLISHED_NCCL, cases):
        moving = case["adapter_busy"] * case["step_s"]
        rows.append([name, page.beside("NCCL", published, case["transfer_s"]), f"{moving:.1f}"])
    print_table(["method", "published / predicted: kernels", "an adapter moves data"], rows)


def print_baselines(page):
    rows, idle, sizes = [], [], []
    for hidden, seq in PUBLISHED:
        cases = page.row("table", hidden, seq, BASELINES)
        cases += page.row("table", hidden, seq, SLICED, "schedule=" + ",".join(SLICED))
        rows.append([f"{hidden}, {seq}K", *map(rate_text, cases)])
        plans = page.plan("table", "schedule=1f1b", f"hidden={hidden}", *of_length(seq))
        idle += [100 * plan["idle"]["share"] for plan in plans]
        sizes.append([*map(memory_of, page.row("table", hidden, seq, ZERO_BUBBLE))])
    print_table(("H, S", *(f"`{name}`" for name in (*BASELINES, *SLICED))), rows)
    print(f"- idles for {min(idle):.0f} to {max(idle):.0f} %")
    first, second = (f"{min(found):.0f} to {max(found):.0f} GB" for found in zip(*sizes))
    print(f"- `zb1` needs {first}, `zb2` {second}")
    print()


def bottleneck(page):
    """TawPipe with its adapters as bottleneck, and what would load them more."""
    sizes = ("hidden=1024", "seq=8K", "micro_batch=4", "micro_batches=96")
    for change in BOTTLENECK:
        machine = ["between.rate=6 Gbit/s", *change.machine]
        settings = f"schedule={change.schedule}", *sizes
        (case,) = page.predict("table", *settings, changes=machine)
        yield change.title, f"{case['step_s']:.1f}", share_text(case["adapter_busy"])


def of_schedules(cases, names):
    """Where an option has no effect, the case is that of the schedule without it."""
    found = {case["settings"]["schedule"]: case for case in cases}
    return [found.get(name) or found[name.partition(":")[0]] for name in names]


def print_groups(page):
    columns = {}
    for case in page.cases("groups"):
        columns.setdefault(case["settings"]["groups"].count("+") + 1, []).append(case)
    cells = [map(rate_text, of_schedules(cases, GROUPED)) for cases in columns.values()]
    rows = [[f"`{name}`", *rates] for name, rates in zip(GROUPED, zip(*cells))]
    print_table(["groups", *columns], rows)


def print_scaling(page):
    """With all GPUs both have the same step."""
    rows = []
    for title, deck, ranks in (
        ("strong, 8", "strong-scaling", "8"),
        ("weak, 8", "weak-scaling", "8"),
        ("both, 24", "strong-scaling", "24"),
    ):
        cases = [case for case in page.cases(deck) if case["settings"]["ranks"] == ranks]
        rows.append([title, *map(rate_text, of_schedules(cases, SCALED))])
    print_table(["GPUs", *(f"`{name}`" for name in SCALED)], rows)


def print_links(page):
    settings = "groups=3", f"schedule={','.join(LINKED)}"
    columns = []
    for rate in LINKS:
        cases = page.predict("groups", *settings, changes=[f"between.rate={0.94 * rate} Gbit/s"])
        columns.append(map(rate_text, cases))
    rows = [[f"`{name}`", *rates] for name, rates in zip(LINKED, zip(*columns))]
    print_table(["between nodes, Gbit/s", *LINKS], rows)
    slow, fast = (
        page.predict("groups", *settings, "hidden=4096", changes=[f"inside.rate={rate} Gbit/s"])
        for rate in INSIDE
    )
    lost = [-gain(rate_of(few), rate_of(many)) for few, many in zip(slow, fast)]
    print(f"- {INSIDE[0]} Gbit/s instead of {INSIDE[1]} cost TawPipe {lost[1]} %, "
          f"hierarchical FSDP {lost[0]} %\n")  # fmt: skip


def plans(page):
    for plan in page.plan("plan", "schedule=tawpipe,fsdp:hierarchical=on,fsdp,weipipe,1f1b"):
        inside = plan["bytes_per_step"]["inside"]["total"] / plan["settings"]["ranks"]
        yield (
            f"`{plan['settings']['schedule']}`",
            f"{plan['busiest_out']['bytes'] / GIB:.1f}",
            f"{inside / GIB:.1f}",
            f"{plan['memory_bytes']['worst']['total'] / GIB:.2f}",
            f"{100 * plan['idle']['share']:.1f}%",
        )


PLAN_HEAD = ("schedule", "busiest node, out", "inside nodes, per rank", "memory, worst rank",
             "idle by order")  # fmt: skip


def print_tables(page):
    print("# docs/paper.md\n\n## Claim by claim\n")
    print_table(("claim", "predicted"), claims(page))
    print("## Repeat it on 24 GPUs\n")
    print_table(("deck", "cases", "hours", "longest case"), hours(page))
    print("## Throughput\n")
    print_throughput(page)
    print_readings(page)
    print("## Ablations\n")
    print_ablations(page)
    print("## Time in NCCL kernels\n")
    print_kernels(page)
    print("## Better baselines\n")
    print_baselines(page)
    print("## Why hierarchical FSDP is ahead\n")
    print_table(("change", "step, s", "busiest adapter"), bottleneck(page))
    print("## Groups\n")
    print_groups(page)
    print("## Scaling\n")
    print_scaling(page)
    print("## Links\n")
    print_links(page)


def print_plan(page):
    print("# docs/plan.md\n\n## An example\n")
    print_table(PLAN_HEAD, plans(page))


WORK = {"tables": print_tables, "plan": print_plan, "fit": fit}


def main():
    parser = parser_of(__doc__)
    add_program(parser)
    parser.add_argument("what", nargs="?", choices=list(WORK), default="tables")
    options = parser.parse_args()
    WORK[options.what](Paper(options.minitaw))


if __name__ == "__main__":
    end(main)
