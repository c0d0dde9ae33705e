# SPDX-License-Identifier: BSD-3-Clause
"""What the scripts of this folder share: they measure again and print what pages in docs/ and
results/ say, as the tables of Markdown that stand there."""

import csv
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/lib")]
from minitaw.command import BadInput, Parser, guarded, output_of  # noqa: E402

PROGRAM = ROOT / "build/host/minitaw"
MACHINES = ROOT / "inputs/machines"
DECKS = ROOT / "inputs/paper"
KEEPS = {"reshard=group", "fetch=step", "reduce=group"}  # options that keep all in the group


def parser_of(description):
    return Parser(prog=pathlib.Path(sys.argv[0]).name, description=description)


def end(main):
    """Ends the script with the exit code of main(), or with a sentence."""
    sys.exit(guarded(pathlib.Path(sys.argv[0]).stem, main))


def add_program(parser):
    parser.add_argument(
        "--minitaw", default=str(PROGRAM), help="the program (default: build/host/minitaw)"
    )


def markdown(head, rows, rule="---"):
    """The lines of a table."""
    lines = [head, *rows]
    texts = [f"| {' | '.join(map(str, line))} |" for line in lines]
    texts.insert(1, f"|{f'{rule}|' * len(head)}")
    return "\n".join(texts)


def print_table(head, rows):
    print(markdown(head, rows) + "\n")


def set_words(settings, option="--set"):
    """Of a command line: the option in front of each of these texts KEY=VALUE."""
    return [word for setting in settings for word in (option, setting)]


def read_table(path, made_by="predict"):
    """The rows of a CSV file that a verb of the script has left."""
    if not path.exists():
        raise BadInput(f"{path}: no such table; '{made_by}' makes it")
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def named_if_kept(schedule, words):
    """Returns "tawpipe, WORDS" of a schedule that keeps all weights and sums in the group; others
    as they are."""
    options = schedule.split(":")
    if not KEEPS <= set(options):
        return schedule
    return f"{':'.join(option for option in options if option not in KEEPS)}, {words}"


def cluster_words(nodes, ranks_per_node, rate, *faults):
    """What starts a program on nodes made of this machine (docs/cluster.md)."""
    sizes = ["--nodes", str(nodes), "--ranks-per-node", str(ranks_per_node), "--rate", rate]
    return ["scripts/cluster", *sizes, *faults, "--"]


def one_thread():
    """The environment of ranks that share cores."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def cases_of(program, verb, deck, *words):
    """What `minitaw VERB DECK --json` says of each case."""
    return json.loads(output_of(program, verb, str(deck), *words, "--json"))["cases"]


def predict(program, deck, machine, settings=(), changes=(), options=()):
    """The predicted cases; their settings are texts, {name: text}."""
    words = ["--machine", str(machine), *options, *set_words(settings)]
    words += set_words(changes, "--machine-set")
    cases = cases_of(program, "predict", deck, *words)
    for case in cases:
        case["settings"] = {name: str(value) for name, value in case["settings"].items()}
    return cases
