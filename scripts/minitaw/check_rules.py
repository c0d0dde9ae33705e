# SPDX-License-Identifier: BSD-3-Clause
"""Whether a result is an official one of a size of the run rules, as far as a program can tell
(docs/acceptance.md)."""

import itertools
import os
import pathlib
import statistics
import tomllib
from dataclasses import dataclass, field

import pandas

from . import evidence
from .archive import SUFFIXES, pack, unpack
from .command import BadInput, Parser, ending, read_bytes, write_file, write_stdout
from .judgement import cases_of, misjudged, rate_of, recomputed
from .numbers import cell_text, plural, size_value
from .record import load, rows_of, tokens_of
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
RANKS_OF_WEAK = 4  # or a multiple
MOST_HOURS = 24  # from the first timed step to the last
NETWORK_SCHEDULE = "fsdp:hierarchical=on"  # whose every micro-batch fetches all weights
FOR_PEOPLE = [
    "# not checked: that this run was announced, the machine, placement of ranks, share of device "
    "memory (docs/acceptance.md)",
    "# still possible: a file in which everything is made up alike, clocks too, a program that "
    "computes or sends less than it says or is of another commit, slow repetitions dropped with "
    "their session; the centre's own log (--log) and screening (--screening), and a run by the "
    "centre, find most of it",
]


@dataclass
class Official:
    size: str = ""  # empty: the model is that of none
    reasons: list = field(default_factory=list)  # why it is not official; empty: it is
    judged: str = ""  # how many cases, of which commit
    # The fastest valid case of each length; empty if one has none.
    bests: list = field(default_factory=list)
    tier: str = BASELINE
    network: pandas.Series | None = None  # the case of the network figure
    screened: str = ""  # verdict of the screening

    @property
    def rate(self):
        """Tokens per second, the geometric mean over the lengths: each weighs the same."""
        return statistics.geometric_mean(map(rate_of, self.bests))

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
        if (case := self.network) is not None:
            replicas = plural(case.replicas, "replica")
            yield (
                f"network figure of {self.size}: {rate_of(case):.6g} tokens/s "
                f"(S = {case.seq}, {case.schedule}, {replicas})"
            )
        if self.reasons:
            yield f"official: no: {self.reason}"
        else:
            yield f"official: yes ({self.size}, {self.tier})"
        yield from (f"# also: {reason}" for reason in self.reasons[1:MOST_REASONS])
        if len(self.reasons) > MOST_REASONS:
            yield f"# and {len(self.reasons) - MOST_REASONS} more"
        if self.judged:
            yield f"# judged: {self.judged}, by the rules of {self.size} that a program can check"
            yield from FOR_PEOPLE
        if self.screened and not self.screened.startswith("CLEAN"):
            yield f"# the screening is not clean: {self.screened}"
        for case in self.bests:
            doubt = f", {case.doubt}" if case.doubt else ""
            tokens, seconds = tokens_of(case), case.step
            yield (
                f"# S = {case.seq}: {tokens / seconds:.6g} tokens/s, {tokens:.6g} tokens in "
                f"{seconds:.6g} s ({case.schedule}{doubt})"
            )


# Sizes.


def read_size(name):
    """What the deck of a size says: settings, as in a result, but `seq` are its lengths,
    rising."""
    deck = tomllib.loads((DECKS / f"{name}.toml").read_text(encoding="utf-8"))
    return {key: size_value(value) for key, value in deck.items()} | {
        "name": name,
        "weak": "micro_batches_per_rank" in deck,
        "seq": sorted(map(size_value, deck["seq"])),
        "head_dim": size_value(deck["hidden"]) // deck["heads"],
        "context": 1,
        "tied": "false",
    }


def has_model(case, size):
    return all(case[key] == size[key] for key in MODEL)


def least_seconds(size):
    """Of timed steps, in every case."""
    return 0 if size["name"] == "small" else LEAST_TIMED_SECONDS


# What of the rules is not kept, one sentence each.


def broken_rules(case, size):
    """Of one case."""
    name, ranks = size["name"], case.ranks
    if not has_model(case, size):
        yield f"its model is not that of {name}"
    for key in FIXED:
        if case[key] != size[key]:
            yield f'{key} is "{cell_text(case[key])}", {name} has "{cell_text(size[key])}"'
    for key in COUNTED:
        if case[key] < size[key]:
            yield f"{key} = {case[key]}, {name} needs {size[key]}"
    if case.seq not in size["seq"]:
        yield f"seq = {case.seq} is no length of {name}"
    micro_batches = (
        ranks * size["micro_batches_per_rank"] if size["weak"] else size["micro_batches"]
    )
    sequences = size["micro_batch"] * micro_batches
    if tokens_of(case) != sequences * case.seq:
        found = plural(case.micro_batch * case.micro_batches, "sequence")
        yield f"{found} in a step, {name} has {sequences}"
    if size["weak"] and ranks % RANKS_OF_WEAK:
        yield f"{plural(ranks, 'rank')}, {name} takes multiples of {RANKS_OF_WEAK}"
    if case.verdict != "VALID" and not is_noisy(case):
        yield case.verdict
    if not case.timed >= least_seconds(size):
        yield f"{case.timed:.3g} s of timed steps, {LEAST_TIMED_SECONDS} are needed: raise steps"


def is_noisy(case):
    return case.verdict.startswith("VALID (noisy")


def broken_by_noise(table):
    """One sentence for all cases: what is told of many must not hide what is told of one."""
    noisy = [case for case in rows_of(table) if is_noisy(case)]
    if noisy:
        others = ", ".join(str(case.case) for case in noisy[1:])
        more = f"; noisy, too: {plural(len(noisy) - 1, 'case')} ({others})" if others else ""
        yield f"case {noisy[0].case}: {noisy[0].verdict}{more}"


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


def broken_by_all(file, runs, table, size):
    """Rules for all runs, and the table of all cases, together."""
    if size["weak"] and table.ranks.nunique() > 1:
        yield f"cases on different numbers of ranks: {size['name']} takes a file for each"
    begun, ended = (
        pandas.to_datetime(runs[name], format="ISO8601", utc=True, errors="coerce")
        for name in ("begun", "ended")
    )
    hours = (ended.max() - begun.min()).total_seconds() / 3600
    if hours > MOST_HOURS:
        yield (
            f"{hours:.3g} hours from the first timed step to the last, "
            f"at most {MOST_HOURS} are allowed"
        )
    if not file.verdict.startswith("VALID"):
        yield f"the file says {file.verdict}"
    elif not table.valid.all():
        yield f"the file says {file.verdict}, but not all of its cases are valid"


def network_of(table, size):
    """The case of the network figure, where there is one, and the rule that is broken: on several
    nodes, all weights come from other nodes in each micro-batch, and nothing hides that."""
    first = table.iloc[0]
    groups = [len([*ranks]) for _, ranks in itertools.groupby(evidence.nodes_of(first))]
    if len(groups) < 2:
        return None, []
    # FSDP alone takes more ranks than blocks.
    is_wide = all(schedule.startswith("fsdp") for schedule in size["schedule"])
    most = first.ranks if is_wide else size["layers"]
    divisors = [some for some in range(1, len(groups) + 1) if len(groups) % some == 0]
    fits = (some for some in divisors if first.ranks / some <= most)
    wanted = {
        "seq": size["seq"][0],
        "schedule": NETWORK_SCHEDULE,
        "micro_batch": size["micro_batch"],
        "recompute": "block",
        "groups": "+".join(map(str, groups)),
        "replicas": next(fits, len(groups)),
    }
    found = table[table.valid & (table[[*wanted]] == pandas.Series(wanted)).all(axis=1)]
    if found.empty:
        settings = ", ".join(f"{name} = {value}" for name, value in wanted.items())
        return None, [f"the case of the network figure is not here, or not valid: {settings}"]
    return found.iloc[0], []


# All together.


def size_of(case):
    """The size whose model the case has; None if it is that of none."""
    return next((size for size in map(read_size, NAMES) if has_model(case, size)), None)


def official(runs, tier=BASELINE, published="", screening=None, log=None):
    """`screening`, `log`: what evidence.py reads of them."""
    if runs.empty:
        return Official(reasons=["no case was run"])
    file, found = runs.file.iloc[0], recomputed(runs)
    table = cases_of(found)
    size = size_of(table.iloc[0])
    if size is None:
        return Official(reasons=[f"its model is that of none of {', '.join(NAMES)}"])
    # What somebody has written stands before what the machine did.
    broken = [*misjudged(runs, found), *evidence.contradictions(found, screening, log)]
    broken += [
        f"case {case.case}: {rule}" for case in rows_of(table) for rule in broken_rules(case, size)
    ]
    broken += broken_by_noise(table)
    # The fastest valid case of each length.
    bests = table[table.valid & table.seq.isin(size["seq"])].sort_values(["seq", "step"])
    bests = rows_of(bests.drop_duplicates("seq"))
    if len(bests) < len(size["seq"]):
        lengths = ", ".join(map(str, size["seq"]))
        broken.append(f"{size['name']} has the lengths {lengths}, not all of them are here")
        bests = []
    network, rules = network_of(table, size)
    broken += rules
    broken += broken_by_all(file, found, table, size)
    broken += broken_by_sessions(file.sessions, tier, published)
    commit = file.sessions[0].get("git_hash", "") or "unknown"
    counts = f"{plural(len(table), 'case')} of {plural(len(file.sessions), 'session')}"
    clocks = "three clocks" if evidence.has_counter(found) else "two clocks of one kernel"
    return Official(
        size=size["name"],
        reasons=list(dict.fromkeys(broken)),
        judged=f"{counts}, commit {commit}, {clocks}",
        bests=bests,
        tier=tier,
        network=network,
        screened=(screening or {}).get("verdict", ""),
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
        "official, 1: not (docs/acceptance.md).",
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
        type=ending(*SUFFIXES),
        help="write the result files and what is printed into one file, to hand in",
    )
    add(
        "--screening",
        metavar="FILE.json",
        help="output of minitaw screen --json on the same machine: no step may be faster than that",
    )
    add(
        "--log",
        metavar="FILE",
        nargs="+",
        help="output of minitaw run that the batch system kept: the file must say the same",
    )
    options = parser.parse_args(words)
    sources = map(os.path.realpath, options.files)
    if options.archive and os.path.realpath(options.archive) in sources:
        raise BadInput(f"--archive: {options.archive} is one of the files to check")
    return options


def main(words=None):
    options = parse(words)
    contents = contents_of(options.files)
    screening = evidence.screening_of(options.screening) if options.screening else None
    log = evidence.lines_of(options.log) if options.log else None
    found = {
        path: official(load(path, content), options.tier, options.published, screening, log)
        for path, content in contents.items()
    }
    said = ""
    for path, one in found.items():
        said += f"# {pathlib.PurePath(path).name}\n" if len(found) > 1 else ""
        said += one.text()
    if options.archive:
        write_file(options.archive, pack(contents, said))
    write_stdout(said)
    return int(any(one.reason for one in found.values()))
