# SPDX-License-Identifier: BSD-3-Clause
"""What the scripts of this folder share: they measure or predict again what pages in docs/ say, and
print it as the tables of Markdown that stand there."""

import csv
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/lib")]
from minitaw.command import BadInput, Parser, guarded, output_of  # noqa: E402

PROGRAM = ROOT / "build/host/minitaw"
MACHINES = ROOT / "inputs/machines"
DECKS = ROOT / "inputs/paper"


def parser_of(description):
    return Parser(prog=pathlib.Path(sys.argv[0]).name, description=description)


def end(main):
    """Ends the script with the exit code of main(), or with a sentence."""
    sys.exit(guarded(pathlib.Path(sys.argv[0]).stem, main))


def add_program(parser):
    parser.add_argument(
        "--minitaw", default=str(PROGRAM), help="the program (default: build/host/minitaw)"
    )


def print_table(head, rows):
    print(row_text(head), f"|{'---|' * len(head)}", *map(row_text, rows), sep="\n", end="\n\n")


def row_text(cells):
    return f"| {' | '.join(map(str, cells))} |"


def set_words(settings, option="--set"):
    """Of a command line: the option in front of each of these texts KEY=VALUE."""
    return [word for setting in settings for word in (option, setting)]


def read_table(path):
    """The rows of a CSV file."""
    if not path.exists():
        raise BadInput(f"{path}: there is no such table")
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_table(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


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


def rate_of(case):
    """Tokens/s of a GPU."""
    return case["tokens_per_s"] / int(case["settings"]["ranks"])
