#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for a program that the pages name, and calls it with less work: README.md has the
rules.

The name that it is called by says for which one. REAL_BUILD is the build whose programs it calls,
REAL_MPIEXEC the launcher.
"""

import os
import pathlib
import re
import sys
import tempfile

MOST_RANKS = 6  # more are planned instead of run
MOST_SCHEDULES = 2  # of a list; of others the first value
CAPS = {
    "hidden": 32,
    "ffn": 64,
    "vocab": 256,
    "heads": 2,
    "kv_heads": 2,
    "layers": 12,
    "seq": 64,
    "micro_batches": 12,
    "steps": 3,
    "warmup": 1,
    "repeats": 1,
}
LESS = {"screen": {"--rounds": "2", "--seconds": "0.005"}}
LESS_OF = {
    "minitaw_kernels": {
        "--triad-mib": "1",
        "--benchmark_min_time": "0.001s",
        "--tokens": "64",
        "--hidden": "64",
    },
    "minitaw_comm": {"--rounds": "2", "--bytes": "4096"},
}
ALWAYS = ("--triad-mib", "--benchmark_min_time", "--rounds", "--seconds", "--pairs")  # said or not
PLACEHOLDERS = {"N": 2, "P": 2}
RANKS_OF_SRUN = 4  # where the command says none


def number(text):
    """Of a value in a deck: 4096, "4K"; None if it is none."""
    found = re.fullmatch(r'"?(\d+)([KMG]?)"?', text.strip())
    return int(found[1]) * 1024 ** " KMG".index(found[2] or " ") if found else None


def smaller(key, text, capped):
    """The value of a key with at most what CAPS allows if it is capped, a list with few values."""
    if key == "head_dim" and capped:
        return "16"
    brackets = text.strip().startswith("[")
    values = [value.strip() for value in text.strip().strip("[]").split(",") if value.strip()]
    if key in CAPS and capped:
        most = CAPS[key]
        values = [
            value if number(value) is None else str(min(number(value), most)) for value in values
        ]
    values = list(dict.fromkeys(values))[: MOST_SCHEDULES if key == "schedule" else 1]
    joined = ", ".join(values) if brackets else ",".join(values)
    return f"[{joined}]" if brackets else joined


def small_deck(path, capped):
    """A copy of the deck with smaller values."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    text = re.sub(r"#.*", "", text)
    text = re.sub(
        r"(?ms)^(\w+)\s*=\s*(\[.*?\]|[^\n]*)",
        lambda at: f"{at[1]} = {smaller(at[1], at[2], capped)}",
        text,
    )
    target = pathlib.Path(tempfile.gettempdir()) / f"{pathlib.Path(path).stem}-{os.getpid()}.toml"
    target.write_text(text, encoding="utf-8")
    return str(target)


def with_less(words, less):
    """These options with these values, whatever they had."""
    kept, rest = [], iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name in less:
            kept.append(f"{name}={less[name]}")
            if not equals:
                next(rest)
        else:
            kept.append(word)
    return kept


def small_words(words, capped):
    """Decks and --set with smaller values. Machine files are no decks."""
    kept, sets = [], False
    for word in words:
        if sets or word.startswith("--set="):
            key, _, value = word.removeprefix("--set=").partition("=")
            word = ("" if sets else "--set=") + f"{key}={smaller(key, value, capped)}"
        elif word.endswith(".toml") and "/machines/" not in word and pathlib.Path(word).exists():
            word = small_deck(word, capped)
        sets = word == "--set"
        kept.append(word)
    return kept


def program(name, words):
    build = pathlib.Path(os.environ["REAL_BUILD"])
    folder = {
        "minitaw_kernels": "benchmarks",
        "minitaw_comm": "benchmarks/comm",
    }
    real = str(build / folder.get(name, ".") / name)
    verb = words[0] if words else ""
    if "SMALL_PLANS" in os.environ and verb in ("run", "verify"):
        return launch(1, [name, *words])
    computes = name != "minitaw" or verb in ("run", "verify")
    if computes or verb in ("plan", "predict"):
        words = small_words(words, computes)
    less = LESS_OF.get(name, LESS.get(verb, {}))
    words = with_less(words, less)
    words += [
        f"{option}={value}"
        for option, value in less.items()
        if option in ALWAYS and not any(word.startswith(option) for word in words)
    ]
    return [real, *words]


def launch(ranks, words):
    """mpiexec; with many ranks, the plan of the deck."""
    if ranks <= MOST_RANKS and "SMALL_PLANS" not in os.environ:
        return [os.environ["REAL_MPIEXEC"], "-n", str(ranks), *words]
    at = next(at for at, word in enumerate(words) if word in ("run", "verify"))
    kept = words[at + 1 :]
    sets = [
        word for at, word in enumerate(kept) if word == "--set" or at and kept[at - 1] == "--set"
    ]
    text = pathlib.Path(kept[0]).read_text(encoding="utf-8")
    own = re.search(r"(?m)^ranks\b", text) or any(word.startswith("ranks=") for word in sets)
    return [words[at - 1], "plan", kept[0], *sets, *([] if own else ["--set", f"ranks={ranks}"])]


def option(words, name, default=None):
    """Takes an option and its value away: -N 2, --nodes=2."""
    for at, word in enumerate(words):
        if word == name:
            value = words[at + 1]
            del words[at : at + 2]
            return value
        if word.startswith(f"{name}="):
            del words[at]
            return word.partition("=")[2]
    return default


def main():
    name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
    if name == "mpiexec":
        if "-n" not in words[:2]:
            command = [os.environ["REAL_MPIEXEC"], *words]
        else:
            ranks = words[1]
            command = launch(PLACEHOLDERS.get(ranks) or int(ranks), words[2:])
    elif name == "srun":
        per_node = option(words, "--ntasks-per-node", str(RANKS_OF_SRUN))
        ranks = int(option(words, "-N", "1")) * int(per_node)
        while words[0].startswith("-"):
            del words[0]
        command = launch(ranks, ["minitaw", *words[3:]] if words[0] == "apptainer" else words)
    elif name == "cluster":
        scripts = pathlib.Path(__file__).resolve().parents[2] / "scripts"
        sys.path[:0] = [str(scripts), str(scripts / "lib")]
        from cluster_options import parse

        options = parse(words)
        os.environ["MINITAW_SHAPED_LINKS"] = (
            f"nodes={options.nodes} ranks_per_node={options.ranks_per_node} "
            f"rate={options.rate / 1e6:g}mbit latency=0us mtu=9000"
        )
        command = launch(options.nodes * options.ranks_per_node, words[words.index("--") + 1 :])
    else:
        command = program(name, words)
    sys.stdout.flush()
    os.execvp(command[0], command)


main()
