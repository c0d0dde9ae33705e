#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who is fastest where, predicted: the map of docs/long.md (`rivals`), and what long sequences cost
(`long`).

    scripts/env benchmarks/results/fastest.py predict     # under ten minutes
    scripts/env benchmarks/results/fastest.py tables rivals
    scripts/env benchmarks/results/fastest.py picture rivals.png

`predict` writes results/predicted/rivals.csv, `tables` prints what pages show of it. `long` has no file: its tables are predicted as they are printed.
"""

import concurrent.futures
import itertools
import os
import sys

import families
import sequences
from families import FAMILIES, GBITS, LENGTHS, MODELS, NODES, TOKENS
from matplotlib.patches import Patch, Rectangle
from pages import ROOT, add_program, end, parser_of, print_table, read_table, write_table
from minitaw.drawing import SCHEDULES, new_figure, save
from minitaw.numbers import count_text

RIVALS = ROOT / "results/predicted/rivals.csv"
CLOSE = 0.02  # a lead that the prediction does not tell from none
COLOUR_OF = {name: SCHEDULES.get(name.lower(), SCHEDULES["zbv"]) for name in FAMILIES}


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


def cell_of_rivals(of_places):
    """In how many places a family is first; and TawPipe close to FSDP or ahead, where both fit."""
    rates = [{row["family"]: float(row["tokens_per_s_gpu"]) for row in of} for of in of_places]
    firsts = [next(iter(place)) for place in rates]  # WeiPipe never is
    both = [place for place in rates if {"FSDP", "TawPipe"} <= {*place}]
    close = sum(place["TawPipe"] >= (1 - CLOSE) * place["FSDP"] for place in both)
    counts = ", ".join(str(firsts.count(name)) for name in ("FSDP", "TawPipe", "pipeline"))
    return f"{counts} ({close}/{len(both)})"


def print_rivals(rows):
    print("# docs/long.md\n\n## Predicted: who is fastest where\n")
    lines, found = [], ranking(rows).items()
    for model in MODELS:
        at = [[of for place, of in found if (place[0], place[3]) == (model, g)] for g in GBITS]
        lines.append([model, *map(cell_of_rivals, at)])
    print_table(["model", *(f"{gbits} Gbit/s" for gbits in GBITS)], lines)


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
    found = ranking(read_table(RIVALS))
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


# Commands.


def predict_all(options):
    places = list(itertools.product(MODELS, NODES, LENGTHS))
    rows = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        lists = pool.map(lambda place: families.rows_for(options.minitaw, *place), places)
        for done, of_place in enumerate(lists, 1):
            rows += of_place
            print(f"\r{done} of {len(places)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    write_table(RIVALS, rows)


def tables(options):
    if options.name == "long":
        sequences.print_tables(options.minitaw)
    else:
        print_rivals(read_table(RIVALS))


def main():
    parser = parser_of(__doc__)
    verbs = parser.add_subparsers(required=True)
    for verb, work in (("predict", predict_all), ("tables", tables), ("picture", picture)):
        words = verbs.add_parser(verb)
        words.set_defaults(work=work)
        if work == picture:
            words.add_argument("picture")
            continue
        add_program(words)
        if work == tables:
            words.add_argument("name", choices=["rivals", "long"])
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    end(main)
