# SPDX-License-Identifier: BSD-3-Clause
"""Whether a result is an official one of a size of the run rules, as far as a program can tell
(docs/run-rules.md)."""

import math
import pathlib
import shlex
import tomllib
from dataclasses import dataclass, field

from .command import Parser, plural, write_stdout
from .energy import windows_of
from .record import cell_text, describe, load

DECKS = pathlib.Path(__file__).resolve().parents[2] / "inputs/acceptance"
NAMES = ["small", "medium", "large", "8b", "70b", "405b"]
TIERS = ["baseline", "ported", "optimized"]
MODEL = ["layers", "hidden", "heads", "kv_heads", "vocab", "ffn"]
FIXED = ["dtype", "data", "seed", "learning_rate", "micro_batch_per_rank"]
COUNTED = ["steps", "repeats", "warmup"]
SWEPT = ["ranks", "groups", "replicas", "micro_batch", "micro_batches", "seq"]
IN_PLACE_OF = {
    "group_size": "groups",
    "tokens_per_micro_batch": "micro_batch",
    "micro_batch_per_rank": "micro_batch",
    "micro_batches_per_rank": "micro_batches",
    "sequences_per_step": "micro_batches",
}
MOST_REASONS = 10  # that are told
SPARE, ANOTHER = (
    1.1,
    "again.h5",
)  # steps beyond the least time; the file that a new measurement goes to
FOR_PEOPLE = (
    "# not checked: that this run was announced, the machine, placement of ranks, share of device memory "
    "(docs/run-rules.md)"
)
LEAST_TIMED_SECONDS = 10  # in every case; small: any
RANKS_OF_WEAK, MOST_HOURS = 8, 24  # or a multiple; from the first timed step to the last


@dataclass
class Official:
    size: str = ""  # empty: the model is that of none
    reasons: list = field(default_factory=list)  # why it is not official; empty: it is
    judged: str = ""  # how many cases, of which commit
    bests: list = field(
        default_factory=list
    )  # the fastest valid case of each length; empty if one has none
    again: list = field(
        default_factory=list
    )  # lines: the noisy cases, and commands that measure again what must be
    tier: str = TIERS[0]

    @property
    def rate(self):
        """Tokens of a step of every length over the seconds of these steps."""
        return sum(tokens_of(case) for case in self.bests) / sum(
            case["median_s"] for case in self.bests
        )

    @property
    def reason(self):
        """The first one."""
        return next(iter(self.reasons), "")

    def text(self):
        kind = "estimate" if self.reasons else "rate"
        lines = (
            [
                f"{kind} of {self.size}: {self.rate:.6g} tokens/s, 20 million tokens in {20e6 / self.rate:.6g} s"
            ]
            if self.bests
            else []
        )
        lines.append(
            f"official: no: {self.reason}"
            if self.reasons
            else f"official: yes ({self.size}, {self.tier})"
        )
        others = [
            reason for reason in self.reasons[1:] if "noisy: " not in reason
        ]  # these have their lines below
        lines += [f"# also: {reason}" for reason in others[: MOST_REASONS - 1]]
        if len(others) >= MOST_REASONS:
            lines.append(f"# and {len(others) - MOST_REASONS + 1} more")
        if self.judged:
            lines += [
                f"# judged: {self.judged}, by the rules of {self.size} that a program can check",
                FOR_PEOPLE,
            ]
        lines += [
            f"# {plural(case['seq'], 'token')}: {tokens_of(case):.6g} tokens in {case['median_s']:.6g} s "
            f"({case['schedule']}{', ' * bool(case.doubt)}{case.doubt})"
            for case in self.bests
        ]
        return "".join(f"{line}\n" for line in lines + self.again)


def tokens_of(case):
    """Of a step."""
    return case["micro_batch"] * case["micro_batches"] * case["seq"]


def size_value(value):
    """A size of a deck: 4096, or "4K"."""
    return (
        int(value[:-1]) * 1024 ** ("KMG".index(value[-1]) + 1)
        if isinstance(value, str) and value[-1:] in "KMG"
        else value
    )


def read_size(name):
    """What the deck of a size says: settings, as in a summary, but `seq` are its lengths,
    rising."""
    deck = tomllib.loads((DECKS / f"{name}.toml").read_text(encoding="utf-8"))
    return {
        key: value if isinstance(value, list) else size_value(value) for key, value in deck.items()
    } | {
        "name": name,
        "weak": "micro_batches_per_rank" in deck,
        "seq": sorted(map(size_value, deck["seq"])),
        "ffn": str(deck["ffn"]),
        "micro_batch_per_rank": "",
    }


def least_seconds(size):
    """Of timed steps, in every case."""
    return 0 if size["name"] == "small" else LEAST_TIMED_SECONDS


def broken_rules(case, size):
    """What of the rules the case does not keep, one sentence each."""
    name, timed, ranks = size["name"], case["median_s"] * case["samples"], case["ranks"]
    sequences = size["micro_batch"] * (
        size["micro_batches_per_rank"] * ranks if size["weak"] else size["micro_batches"]
    )
    if any(case[key] != size[key] for key in MODEL):
        yield f"its model is not that of {name}"
    yield from (
        f'{key} is "{cell_text(case[key])}", {name} has "{cell_text(size[key])}"'
        for key in FIXED
        if case[key] != size[key]
    )
    yield from (
        f"{key} = {case[key]}, {name} needs {size[key]}" for key in COUNTED if case[key] < size[key]
    )
    if case["seq"] not in size["seq"]:
        yield f"seq = {case['seq']} is no length of {name}"
    if tokens_of(case) != sequences * case["seq"]:
        yield f"{plural(tokens_of(case) // case['seq'], 'sequence')} in a step, {name} has {sequences}"
    if size["weak"] and ranks % RANKS_OF_WEAK:
        yield f"{plural(ranks, 'rank')}, {name} takes multiples of {RANKS_OF_WEAK}"
    if case["verdict"] != "VALID":
        yield case["verdict"]
    if not timed >= least_seconds(size):
        yield f"{timed:.3g} s of timed steps, {LEAST_TIMED_SECONDS} are needed: raise steps"


def broken_by_sessions(sessions, tier, published):
    for git_hash in (session.get("git_hash", "") for session in sessions):
        if git_hash in ("", "unknown"):
            yield "the commit of the program is not known"
        if git_hash.endswith("-dirty"):
            yield f"the sources differ from their commit ({git_hash})"
        if git_hash != sessions[0]["git_hash"]:
            yield "its sessions are of different commits"
    if not all(
        len(session.get(name, ""))
        for session in sessions
        for name in ("devices", "command", "deck")
    ):
        yield "its provenance is not complete"
    if published and (sessions[0].get("git_hash", "")[:12] == published[:12]) != (tier == TIERS[0]):
        yield f"tier {tier}, but its commit is {'' if tier != TIERS[0] else 'not '}the published one"


def broken_by_all(cases, size):
    """Rules for all cases together."""
    if size["weak"] and len({case["ranks"] for case in cases}) > 1:
        yield f"cases on different numbers of ranks: {size['name']} takes a file for each"
    windows = [window for case in cases for window in windows_of(case)]
    seconds = max(end for _, end in windows) - min(begin for begin, _ in windows) if windows else 0
    if seconds > MOST_HOURS * 3600:
        yield (
            f"{seconds / 3600:.3g} hours from the first timed step to the last, "
            f"at most {MOST_HOURS} are allowed"
        )


def least_counts(case, size):
    """What the case has to be measured with: the counts of the size, or its own where they are
    higher; twice the repetitions where it is noisy; more steps where they end too soon."""
    counts = {key: max(case[key], size[key]) for key in COUNTED}
    if "noisy" in case.doubt:
        counts["repeats"] = max(counts["repeats"], 2 * case["repeats"])
    if case["median_s"] > 0:
        timed = case["median_s"] * counts["repeats"]
        counts["steps"] = max(counts["steps"], math.ceil(SPARE * least_seconds(size) / timed))
    return counts


def words_of(case, sets, output=None):
    """The command of the case's session with these keys in place of its own, and with `output` if
    it is said."""
    said = case.session.get("command", "minitaw run DECK")
    words = iter(shlex.split(said.replace("--set=", "--set ").replace("--output=", "--output ")))
    meaning = {IN_PLACE_OF.get(key, key) for key in sets}
    kept = []
    for word in words:
        value = next(words, "") if word in ("--set", "-o", "--output") else ""
        key = value.partition("=")[0]
        if (
            word == "--set"
            and IN_PLACE_OF.get(key, key) in meaning
            or word in ("-o", "--output")
            and output
        ):
            continue
        kept += [word, value] if value else [word]
    kept += ["-o", output] if output else []
    kept += [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    return f"mpiexec -n {case['ranks']} {shlex.join(kept)}"


def repeated(cases, size):
    """Commands that add repetitions to the cases that need them, and to no others, in the same
    file."""
    told = [name for name in SWEPT if len({case[name] for case in cases}) > 1]
    found = {}
    for case in cases:
        if (needed := least_counts(case, size)["repeats"]) > case["repeats"]:
            place = (case["session"], *(case[name] for name in told))
            found.setdefault(place, (case, {}))[1][case["schedule"]] = needed
    for case, some in found.values():
        sets = {name: case[name] for name in told}
        yield "# again: " + words_of(
            case, sets | {"schedule": ",".join(some), "repeats": max(some.values())}
        )


def measured_anew(cases, size):
    """Commands for another file: steps and warm-up belong to a case, so that more of them are
    another case."""
    counts = [least_counts(case, size) for case in cases]
    sets = {key: max(count[key] for count in counts) for key in COUNTED}
    yield from dict.fromkeys(
        f"# anew, to another file: {words_of(case, sets, ANOTHER)}" for case in cases
    )


def again_lines(cases, size):
    """The noisy cases, then the commands whose cases keep the rules on counts and seconds."""
    lines = [
        f"# case {case['case']} ({describe(case)}): {case.doubt}"
        for case in cases
        if "noisy" in case.doubt
    ]
    if any(
        least_counts(case, size)[key] > case[key] for case in cases for key in ("steps", "warmup")
    ):
        return lines + list(measured_anew(cases, size))
    return lines + list(repeated(cases, size))


def official(result, tier=TIERS[0], published=""):
    if not result.cases:
        return Official(reasons=["no case was run"])
    size = next(
        (
            size
            for size in map(read_size, NAMES)
            if all(result.cases[0][name] == size[name] for name in MODEL)
        ),
        None,
    )
    if size is None:
        return Official(reasons=[f"its model is that of none of {', '.join(NAMES)}"])
    lengths = [
        seq
        for seq in size["seq"]
        if not size["weak"] or any(case["seq"] == seq for case in result.cases)
    ]
    valid = [case for case in result.cases if case.valid]
    bests = [
        min(
            (case for case in valid if case["seq"] == seq),
            key=lambda case: case["median_s"],
            default=None,
        )
        for seq in lengths
    ]
    broken = [
        f"case {case['case']}: {rule}" for case in result.cases for rule in broken_rules(case, size)
    ]
    broken += [
        f"{size['name']} has the lengths {', '.join(map(str, size['seq']))}, not all of them are here"
    ] * (None in bests)
    broken += [
        *broken_by_all(result.cases, size),
        *broken_by_sessions(result.sessions, tier, published),
    ]
    commit = result.sessions[0].get("git_hash", "") or "unknown"
    judged = f"{plural(len(result.cases), 'case')} of {plural(len(result.sessions), 'session')}, commit {commit}"
    return Official(
        size["name"],
        list(dict.fromkeys(broken)),
        judged,
        [] if None in bests else bests,
        again_lines(result.cases, size),
        tier,
    )


def main(words=None):
    parser = Parser(
        prog="check-rules",
        description="Says whether a result is an official one of a size of the run rules, or which rule it breaks, and the "
        "rate of that size with the figures it comes from. Exit code 0: official, 1: not (docs/run-rules.md).",
    )
    parser.add_argument("file", metavar="FILE.h5", help="result file of minitaw run")
    parser.add_argument(
        "--tier",
        choices=TIERS,
        default=TIERS[0],
        help="what was changed in the sources (default: %(default)s, nothing)",
    )
    parser.add_argument(
        "--published",
        metavar="COMMIT",
        default="",
        help="the commit of the baseline, which other tiers must have left",
    )
    options = parser.parse_args(words)
    write_stdout((found := official(load(options.file), options.tier, options.published)).text())
    return int(bool(found.reason))
