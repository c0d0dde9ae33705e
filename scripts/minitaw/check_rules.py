# SPDX-License-Identifier: BSD-3-Clause
"""Whether a result is an official one of a size of the run rules, as far as a program can tell
(docs/run-rules.md)."""

import datetime
import os
import pathlib
import statistics
import tomllib
from dataclasses import dataclass, field

from .archive import SUFFIXES, pack, unpack
from .command import BadInput, Parser, read_bytes, write_file, write_stdout
from .numbers import cell_text, plural, size_value
from .record import load
from .settings import MODEL

DECKS = pathlib.Path(__file__).resolve().parents[2] / "inputs/acceptance"
NAMES = ["small", "medium", "large", "8b", "70b", "405b"]
TIERS = ["baseline", "ported", "optimized"]
BASELINE = TIERS[0]
COUNTED = ["steps", "repeats", "warmup"]  # what a size asks for at least
FIXED = ["dtype", "data", "seed", "learning_rate", "context"]
ACCEPTANCE_TOKENS = 20e6
LEAST_TIMED_SECONDS = 10  # in every case; small: any
HASH_LETTERS = 12  # of a commit that are compared
MOST_REASONS = 10  # that are told
RANKS_OF_WEAK = 8  # or a multiple
MOST_HOURS = 24  # from the first timed step to the last
FOR_PEOPLE = (
    "# not checked: that this run was announced, the machine, placement of ranks, share of device "
    "memory (docs/run-rules.md)"
)


@dataclass
class Official:
    size: str = ""  # empty: the model is that of none
    reasons: list = field(default_factory=list)  # why it is not official; empty: it is
    judged: str = ""  # how many cases, of which commit
    # The fastest valid case of each length; empty if one has none.
    bests: list = field(default_factory=list)
    tier: str = BASELINE

    @property
    def rate(self):
        """Tokens per second, the geometric mean over the lengths: each weighs the same."""
        return statistics.geometric_mean(tokens_of(case) / case["median_s"] for case in self.bests)

    @property
    def reason(self):
        """The first one."""
        return next(iter(self.reasons), "")

    def text(self):
        return "".join(f"{line}\n" for line in self.lines())

    def lines(self):
        if self.bests:
            kind, rate = "estimate" if self.reasons else "rate", self.rate
            seconds = f"20 million tokens in {ACCEPTANCE_TOKENS / rate:.6g} s"
            yield f"{kind} of {self.size}: {rate:.6g} tokens/s, {seconds}"
        if self.reasons:
            yield f"official: no: {self.reason}"
        else:
            yield f"official: yes ({self.size}, {self.tier})"
        others = self.reasons[1:]
        yield from (f"# also: {reason}" for reason in others[: MOST_REASONS - 1])
        if len(others) >= MOST_REASONS:
            yield f"# and {len(others) - MOST_REASONS + 1} more"
        if self.judged:
            yield f"# judged: {self.judged}, by the rules of {self.size} that a program can check"
            yield FOR_PEOPLE
        for case in self.bests:
            doubt = f", {case.doubt}" if case.doubt else ""
            tokens, seconds = tokens_of(case), case["median_s"]
            yield (
                f"# S = {case['seq']}: {tokens / seconds:.6g} tokens/s, {tokens:.6g} tokens in "
                f"{seconds:.6g} s ({case['schedule']}{doubt})"
            )


def tokens_of(case):
    """Of a step."""
    return case["micro_batch"] * case["micro_batches"] * case["seq"]


def read_size(name):
    """What the deck of a size says: settings, as in a summary, but `seq` are its lengths,
    rising."""
    deck = tomllib.loads((DECKS / f"{name}.toml").read_text(encoding="utf-8"))
    size = {}
    for key, value in deck.items():
        size[key] = value if isinstance(value, list) else size_value(value)
    return size | {
        "name": name,
        "weak": "micro_batches_per_rank" in deck,
        "seq": sorted(map(size_value, deck["seq"])),
        "context": 1,
    }


def has_model(case, size):
    return all(case[key] == size[key] for key in MODEL)


def least_seconds(size):
    """Of timed steps, in every case."""
    return 0 if size["name"] == "small" else LEAST_TIMED_SECONDS


# What of the rules is not kept, one sentence each.


def sequences_of(size, ranks):
    """Of a step."""
    if size["weak"]:
        return size["micro_batch"] * size["micro_batches_per_rank"] * ranks
    return size["micro_batch"] * size["micro_batches"]


def broken_rules(case, size):
    """Of one case."""
    name, ranks = size["name"], case["ranks"]
    if not has_model(case, size):
        yield f"its model is not that of {name}"
    for key in FIXED:
        if case[key] != size[key]:
            yield f'{key} is "{cell_text(case[key])}", {name} has "{cell_text(size[key])}"'
    for key in COUNTED:
        if case[key] < size[key]:
            yield f"{key} = {case[key]}, {name} needs {size[key]}"
    if case["seq"] not in size["seq"]:
        yield f"seq = {case['seq']} is no length of {name}"
    sequences = sequences_of(size, ranks)
    if tokens_of(case) != sequences * case["seq"]:
        found = plural(tokens_of(case) // case["seq"], "sequence")
        yield f"{found} in a step, {name} has {sequences}"
    if size["weak"] and ranks % RANKS_OF_WEAK:
        yield f"{plural(ranks, 'rank')}, {name} takes multiples of {RANKS_OF_WEAK}"
    if case["verdict"] != "VALID":
        yield case["verdict"]
    timed = case["median_s"] * case["samples"]
    if not timed >= least_seconds(size):
        yield f"{timed:.3g} s of timed steps, {LEAST_TIMED_SECONDS} are needed: raise steps"


def broken_by_sessions(sessions, tier, published):
    first = sessions[0].get("git_hash", "")
    for git_hash in (session.get("git_hash", "") for session in sessions):
        if git_hash in ("", "unknown"):
            yield "the commit of the program is not known"
        if git_hash.endswith("-dirty"):
            yield f"the sources differ from their commit ({git_hash})"
        if git_hash != first:
            yield "its sessions are of different commits"
    needed = ("devices", "command", "deck")
    if not all(len(session.get(name, "")) for session in sessions for name in needed):
        yield "its provenance is not complete"
    is_published = first[:HASH_LETTERS] == published[:HASH_LETTERS]
    if published and is_published != (tier == BASELINE):
        yield f"tier {tier}, but its commit is {'' if is_published else 'not '}the published one"


def broken_by_all(cases, size):
    """Rules for all cases together."""
    if size["weak"] and len({case["ranks"] for case in cases}) > 1:
        yield f"cases on different numbers of ranks: {size['name']} takes a file for each"
    windows = [[*case.get("window/begin"), *case.get("window/end")] for case in cases]
    times = [datetime.datetime.fromisoformat(text) for texts in windows for text in texts if text]
    if times:
        hours = (max(times) - min(times)).total_seconds() / 3600
        if hours > MOST_HOURS:
            yield (
                f"{hours:.3g} hours from the first timed step to the last, "
                f"at most {MOST_HOURS} are allowed"
            )


# All together.


def size_of(case):
    """The size whose model the case has; None if it is that of none."""
    return next((size for size in map(read_size, NAMES) if has_model(case, size)), None)


def bests_of(cases, size):
    """The fastest valid case of each length; None of a length that has none."""
    valid = [case for case in cases if case.valid]
    found = []
    for seq in size["seq"]:
        some = [case for case in valid if case["seq"] == seq]
        found.append(min(some, key=lambda case: case["median_s"], default=None))
    return found


def official(result, tier=BASELINE, published=""):
    cases, sessions = result.cases, result.sessions
    if not cases:
        return Official(reasons=["no case was run"])
    size = size_of(cases[0])
    if size is None:
        return Official(reasons=[f"its model is that of none of {', '.join(NAMES)}"])
    bests = bests_of(cases, size)
    broken = [f"case {case['case']}: {rule}" for case in cases for rule in broken_rules(case, size)]
    if None in bests:
        lengths = ", ".join(map(str, size["seq"]))
        broken.append(f"{size['name']} has the lengths {lengths}, not all of them are here")
        bests = []
    broken += broken_by_all(cases, size)
    broken += broken_by_sessions(sessions, tier, published)
    commit = sessions[0].get("git_hash", "") or "unknown"
    counts = f"{plural(len(cases), 'case')} of {plural(len(sessions), 'session')}"
    return Official(
        size=size["name"],
        reasons=list(dict.fromkeys(broken)),
        judged=f"{counts}, commit {commit}",
        bests=bests,
        tier=tier,
    )


# The command.


def contents_of(paths):
    """{path: bytes} of result files, of those in archives too."""
    found = {}
    for path in paths:
        if path.endswith(SUFFIXES):
            found |= {f"{path}/{name}": content for name, content in unpack(path).items()}
        else:
            found[path] = read_bytes(path)
    return found


def parse(words):
    parser = Parser(
        prog="check-rules",
        description="Says whether a result is an official one of a size of the run rules, or which "
        "rule it breaks, and the rate of that size with the figures it comes from. Exit code 0: "
        "official, 1: not (docs/run-rules.md).",
    )
    add = parser.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="+",
        help="result file of minitaw run (.h5), or an archive of some (.tar.gz)",
    )
    add(
        "--tier",
        choices=TIERS,
        default=BASELINE,
        help="what was changed in the sources (default: %(default)s, nothing)",
    )
    add(
        "--published",
        metavar="COMMIT",
        default="",
        help="the commit of the baseline, which other tiers must have left",
    )
    add(
        "--archive",
        metavar="FILE.tar.gz",
        help="write the result files and what is printed into one file, to hand in",
    )
    options = parser.parse_args(words)
    sources = map(os.path.realpath, options.files)
    if options.archive is not None and (
        not options.archive.endswith(SUFFIXES) or os.path.realpath(options.archive) in sources
    ):
        raise BadInput(
            f'--archive: "{options.archive}" must end in .tar.gz, and be none of the files to check'
        )
    return options


def main(words=None):
    options = parse(words)
    contents = contents_of(options.files)
    found = {}
    for path, content in contents.items():
        found[path] = official(load(path, content), options.tier, options.published)
    said = ""
    for path, one in found.items():
        said += f"# {pathlib.PurePath(path).name}\n" if len(found) > 1 else ""
        said += one.text()
    if options.archive is not None:
        write_file(options.archive, pack(contents, said))
    write_stdout(said)
    return int(any(one.reason for one in found.values()))
