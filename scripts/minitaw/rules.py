"""Whether a result is an official one of a size of the run rules, as far as a program can tell (docs/run-rules.md)."""

import pathlib
import tomllib
from dataclasses import dataclass, field

from .command import Parser, put_out
from .record import cell_text, load

DECKS = pathlib.Path(__file__).resolve().parents[2] / "inputs/acceptance"
NAMES = ["small", "medium", "large"]
MODEL = ["layers", "hidden", "heads", "kv_heads", "vocab", "ffn"]
FIXED = ["dtype", "data", "seed", "learning_rate"]
COUNTED = ["steps", "repeats", "warmup"]
LEAST_TIMED_SECONDS = 10  # in every case; small: any


@dataclass
class Official:
    size: str = ""     # empty: the model is that of none
    reason: str = ""   # why it is not official; empty: it is
    bests: list = field(default_factory=list)  # the fastest valid case of each length; empty if one has none

    @property
    def rate(self):
        """Tokens of a step of every length over the seconds of these steps."""
        return sum(tokens_of(case) for case in self.bests) / sum(case["median_s"] for case in self.bests)

    def text(self):
        text = f"official: no: {self.reason}\n" if self.reason else f"official: yes ({self.size})\n"
        for case in self.bests:
            text += f"# {case['seq']} tokens: {tokens_of(case):.6g} tokens in {case['median_s']:.6g} s ({case['schedule']})\n"
        return text + (f"{'estimate' if self.reason else 'rate'} of {self.size}: {self.rate:.6g} tokens/s\n" if self.bests else "")


def tokens_of(case):
    """Of a step."""
    return case["micro_batch"] * case["micro_batches"] * case["seq"]


def size_value(value):
    """A size of a deck: 4096, or "4K"."""
    return int(value[:-1]) * 1024 ** ("KMG".index(value[-1]) + 1) if isinstance(value, str) and value[-1:] in "KMG" else value


def read_size(name):
    """What the deck of a size says: settings, as in a summary, but `seq` are its lengths, rising."""
    deck = tomllib.loads((DECKS / f"{name}.toml").read_text(encoding="utf-8"))
    row = {key: value if isinstance(value, list) else size_value(value) for key, value in deck.items()}
    return row | {"name": name, "seq": sorted(map(size_value, deck["seq"])), "ffn": str(row["ffn"])}  # the summary names the widths of all blocks


def broken_rule(case, size):
    """What of the rules the case does not keep; empty: nothing."""
    if any(case[name] != size[name] for name in MODEL):
        return f"its model is not that of {size['name']}"
    for name in FIXED:
        if case[name] != size[name]:
            return f"{name} is \"{cell_text(case[name])}\", {size['name']} has \"{cell_text(size[name])}\""
    if case["micro_batch_per_rank"]:
        return f"micro_batch_per_rank is \"{case['micro_batch_per_rank']}\", {size['name']} has \"\""
    for name in COUNTED:
        if case[name] < size[name]:
            return f"{name} = {case[name]}, {size['name']} needs {size[name]}"
    if case["seq"] not in size["seq"]:
        return f"seq = {case['seq']} is no length of {size['name']}"
    sequences = size["micro_batch"] * size["micro_batches"]
    if tokens_of(case) != sequences * case["seq"]:
        return f"{tokens_of(case) // case['seq']} sequences in a step, {size['name']} has {sequences}"
    if case["verdict"] != "VALID":
        return case["verdict"]
    timed = case["median_s"] * case["samples"]
    if size["name"] != "small" and not timed >= LEAST_TIMED_SECONDS:
        return f"{timed:.3g} s of timed steps, {LEAST_TIMED_SECONDS} are needed: raise steps"
    return ""


def broken_session(sessions):
    for session in sessions:
        git_hash = session.get("git_hash", "")
        if git_hash in ("", "unknown"):
            return "the commit of the program is not known"
        if git_hash.endswith("-dirty"):
            return f"the sources differ from their commit ({git_hash})"
        if git_hash != sessions[0]["git_hash"]:
            return "its sessions are of different commits"
        if not all(len(session.get(name, "")) for name in ("devices", "command", "deck")):
            return "its provenance is not complete"
    return ""


def official(result):
    if not result.cases:
        return Official(reason="no case was run")
    size = next((size for size in map(read_size, NAMES) if all(result.cases[0][name] == size[name] for name in MODEL)), None)
    if size is None:
        return Official(reason="its model is that of none of small, medium, large")
    bests = [min((case for case in result.cases if case.valid and case["seq"] == seq), key=lambda case: case["median_s"], default=None)
             for seq in size["seq"]]
    found = Official(size["name"], bests=bests if None not in bests else [])
    broken = next(((case, rule) for case in result.cases if (rule := broken_rule(case, size))), None)
    if broken:
        found.reason = f"case {broken[0]['case']}: {broken[1]}"
    elif not found.bests:
        found.reason = f"{size['name']} has the lengths {', '.join(map(str, size['seq']))}, not all of them are here"
    else:
        found.reason = broken_session(result.sessions)
    return found


def main(words=None):
    parser = Parser(prog="rules", description="Whether a result is an official one of a size of the run rules, or which rule it breaks, and the "
                                              "rate of that size with the figures it comes from. Exit code 0: official, 1: not (docs/run-rules.md).")
    parser.add_argument("file", metavar="FILE.h5", help="result file of minitaw run")
    found = official(load(parser.parse_args(words).file))
    put_out(found.text())
    return int(bool(found.reason))
