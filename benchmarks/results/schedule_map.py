# SPDX-License-Identifier: BSD-3-Clause
"""The best schedule for 8 to 4096 devices and four rates of links (docs/predict.md): printed, and
drawn as a map."""

import itertools
import sys

from matplotlib.patches import Patch, Rectangle
from pages import DECKS, MACHINES, predict
from minitaw.drawing import COLOURS, new_figure, save
from minitaw.numbers import plural

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
NODE = 8  # devices
KINDS = {
    "tawpipe": "TawPipe",
    "fsdp": "FSDP",
    "1f1b": "1F1B, zero bubble",
    "zb1": "1F1B, zero bubble",
    "weipipe": "WeiPipe",
}
COLOUR_OF = dict(zip(dict.fromkeys(KINDS.values()), COLOURS))
KEEP_ALL, KEEP_IN_GROUP = (
    ":fetch=step:reduce=none:reshard=none",
    ":fetch=step:reduce=group:reshard=group",
)
INSIDE = ["1f1b", "zb1", "weipipe", "fsdp", "fsdp" + KEEP_ALL, "tawpipe", "tawpipe" + KEEP_ALL]
# Of replicas that are larger than a node.
ACROSS = ["fsdp:hierarchical=on", "fsdp:hierarchical=on" + KEEP_IN_GROUP, "tawpipe" + KEEP_IN_GROUP]


def best_of(cases):
    """Of cases that fit: the fastest of each kind of schedule, the fastest first, as (kind,
    tokens/s, case)."""
    fastest = {}
    for case in cases:
        kind = KINDS[case["settings"]["schedule"].partition(":")[0]]
        entry = kind, case["tokens_per_s"], case
        if case["fits"] and (kind not in fastest or entry[1] > fastest[kind][1]):
            fastest[kind] = entry
    return sorted(fastest.values(), key=lambda entry: -entry[1])


def replica_of(case):
    """Its ranks."""
    return int(case["settings"]["ranks"]) // int(case["settings"]["replicas"])


def cell(program, settings, replicas, ranks, gbits, adapters):
    cases = []
    for replica in (size for size in replicas if size <= ranks):
        schedules = INSIDE + (ACROSS if replica > NODE else [])
        job = [
            f"ranks={ranks}",
            f"replicas={ranks // replica}",
            f"micro_batches={4 * ranks}",
            "schedule=" + ",".join(schedules),
        ]
        links = [
            f"nodes={max(1, ranks // NODE)}",
            f"between.rate={gbits} Gbit/s",
            f"between.adapters={adapters}",
        ]
        machine = MACHINES / "dgx-h100.toml"
        cases += predict(program, DECKS / "map.toml", machine, [*settings, *job], links)
    return best_of(cases)


def draw_cell(axes, x, y, best):
    if not best:
        axes.text(x, y, "too\nlarge", ha="center", va="center", fontsize=6, color="0.5")
        return
    kind, rate, case = best[0]
    colour = COLOUR_OF[kind]
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, alpha=0.75))
    lead = f"+{100 * (rate / best[1][1] - 1):.0f} %" if len(best) > 1 else ""
    axes.text(x, y, f"{lead}\n{replica_of(case)}", ha="center", va="center", fontsize=6.5)


def draw_map(cells, path):
    drawn = new_figure(13, 6.2)
    for number, ((title, adapters), panel) in enumerate(cells.items()):
        axes = drawn.add_subplot(len(MODELS), len(ADAPTERS), number + 1)
        is_first = adapters == ADAPTERS[0]
        for (ranks, gbits), best in panel.items():
            draw_cell(axes, RANKS.index(ranks), GBITS.index(gbits), best)
        axes.set(
            xlim=(-0.5, len(RANKS) - 0.5),
            ylim=(-0.5, len(GBITS) - 0.5),
            xticks=range(len(RANKS)),
            yticks=range(len(GBITS)),
            xticklabels=RANKS,
            yticklabels=GBITS if is_first else [],
            title=f"{plural(adapters, 'adapter')} a node",
        )
        if is_first:
            axes.set_ylabel(title.replace(": ", "\n") + "\nadapter [Gbit/s]", fontsize=8)
        axes.set_xlabel("devices")
    patches = [Patch(color=colour, alpha=0.75, label=kind) for kind, colour in COLOUR_OF.items()]
    drawn.legend(handles=patches, loc="outside lower center", ncols=4)
    save(drawn, path)


def print_map(cells):
    for (title, adapters), panel in cells.items():
        print(f"{title}, {adapters} adapters a node")
        for (ranks, gbits), best in panel.items():
            texts = []
            for kind, rate, case in best:
                how = f"{case['settings']['schedule']}, replicas of {replica_of(case)}"
                texts.append(f"{kind} {rate / ranks:.0f} ({how})")
            said = ", ".join(texts) or "nothing fits"
            print(f"  {ranks:5} devices, {gbits:3} Gbit/s: {said}")


def map_of_schedules(options):
    cells = {}
    every = list(itertools.product(MODELS.items(), ADAPTERS, GBITS, RANKS))
    for done, ((title, (settings, replicas)), adapters, gbits, ranks) in enumerate(every, 1):
        panel = cells.setdefault((title, adapters), {})
        known = cells[title, ADAPTERS[0]].get((ranks, GBITS[0]))
        if ranks > NODE or known is None:  # otherwise nothing leaves the node
            known = cell(options.minitaw, settings, replicas, ranks, gbits, adapters)
        panel[ranks, gbits] = known
        end = "" if done < len(every) else "\n"
        print(f"\r{done} of {len(every)}", end=end, file=sys.stderr, flush=True)
    print_map(cells)
    draw_map(cells, options.picture)
