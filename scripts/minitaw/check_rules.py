# SPDX-License-Identifier: BSD-3-Clause
"""Whether a result is an official one of a size of the run rules, as far as a program can tell
(docs/run-rules.md)."""

import math
import os
import pathlib
import statistics
import tomllib
from dataclasses import dataclass, field

import numpy
import pandas

from .archive import SUFFIXES, pack, unpack
from .command import BadInput, Parser, ending, read_bytes, write_file, write_stdout
from .numbers import cell_text, percent, plural, size_value
from .record import array, cases, judged, load, rows_of, samples, tokens_of
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
LEAST_SAMPLES = 3  # of a valid run
WIDEST_SPREAD = 0.1  # of its quartiles, to the median
TOLERANCE = 1e-9  # of a median, relatively
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
        return statistics.geometric_mean(tokens_of(case) / case.step for case in self.bests)

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
        yield from (f"# also: {reason}" for reason in self.reasons[1:MOST_REASONS])
        if len(self.reasons) > MOST_REASONS:
            yield f"# and {len(self.reasons) - MOST_REASONS} more"
        if self.judged:
            yield f"# judged: {self.judged}, by the rules of {self.size} that a program can check"
            yield FOR_PEOPLE
        for case in self.bests:
            doubt = f", {case.doubt}" if case.doubt else ""
            tokens, seconds = tokens_of(case), case.step
            yield (
                f"# S = {case.seq}: {tokens / seconds:.6g} tokens/s, {tokens:.6g} tokens in "
                f"{seconds:.6g} s ({case.schedule}{doubt})"
            )


# What samples and bytes say, whatever the file says.


def judgement(seconds, warmup):
    """VALID, or with doubts."""
    q1, median, q3 = numpy.quantile(seconds, [0.25, 0.5, 0.75])
    spread = (q3 - q1) / median
    doubts = ["no warm-up"] if warmup == 0 else []
    if spread > WIDEST_SPREAD:
        doubts.append(f"noisy: quartiles {percent(spread, 0)} of the median apart")
    return f"VALID ({'; '.join(doubts)})" if doubts else "VALID"


def verdict_of(run):
    seconds = samples(run)
    if run.status != "ok":
        return f"INVALID: {run.status}"
    if len(seconds) < LEAST_SAMPLES:
        return f"INVALID: {plural(len(seconds), 'timed step')}, {LEAST_SAMPLES} are needed"
    if not numpy.array_equal(array(run, "bytes/planned"), array(run, "bytes/counted")):
        return "INVALID: the bytes counted are not those planned"
    return judgement(seconds, run.warmup)


def median(seconds):
    return float(numpy.median(seconds)) if len(seconds) else math.nan


def recomputed(runs):
    """The runs with the verdicts and medians of their samples."""
    rows = rows_of(runs)
    medians = [median(samples(run)) for run in rows]
    return judged(runs.assign(verdict=list(map(verdict_of, rows)), median_s=medians))


def cases_of(runs):
    """Cases with what all their samples say together: `step`, the median, how many seconds were
    `timed`, and whether they are noisy."""
    found = cases(runs)
    seconds = [numpy.concatenate(list(map(samples, case.runs))) for case in rows_of(found)]
    verdicts = [
        judgement(some, case.warmup) if case.valid else case.verdict
        for case, some in zip(rows_of(found), seconds)
    ]
    step = numpy.array(list(map(median, seconds)))
    timed = step * list(map(len, seconds))
    return judged(found.assign(step=step, timed=timed, verdict=verdicts))


def contradictions(said, found):
    """Where a file says other than its samples and bytes."""
    off = abs(said.median_s - found.median_s) > TOLERANCE * found.median_s
    differs = (said.valid != found.valid) | ((said.doubt == "") != (found.doubt == "")) | off
    for told, run in zip(rows_of(said[differs]), rows_of(found[differs])):
        yield (
            f"run {run.run} says {told.verdict}, step {told.median_s:.6g} s, but its samples and "
            f"bytes say {run.verdict}, step {run.median_s:.6g} s"
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
        "context": 1,
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
    if case.verdict != "VALID":
        yield case.verdict
    if not case.timed >= least_seconds(size):
        yield f"{case.timed:.3g} s of timed steps, {LEAST_TIMED_SECONDS} are needed: raise steps"


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


# All together.


def size_of(case):
    """The size whose model the case has; None if it is that of none."""
    return next((size for size in map(read_size, NAMES) if has_model(case, size)), None)


def official(runs, tier=BASELINE, published=""):
    if runs.empty:
        return Official(reasons=["no case was run"])
    file, found = runs.file.iloc[0], recomputed(runs)
    table = cases_of(found)
    size = size_of(table.iloc[0])
    if size is None:
        return Official(reasons=[f"its model is that of none of {', '.join(NAMES)}"])
    broken = [
        f"case {case.case}: {rule}" for case in rows_of(table) for rule in broken_rules(case, size)
    ]
    # The fastest valid case of each length.
    bests = table[table.valid & table.seq.isin(size["seq"])].sort_values(["seq", "step"])
    bests = rows_of(bests.drop_duplicates("seq"))
    if len(bests) < len(size["seq"]):
        lengths = ", ".join(map(str, size["seq"]))
        broken.append(f"{size['name']} has the lengths {lengths}, not all of them are here")
        bests = []
    broken += broken_by_all(file, found, table, size)
    broken += contradictions(runs, found)
    broken += broken_by_sessions(file.sessions, tier, published)
    commit = file.sessions[0].get("git_hash", "") or "unknown"
    counts = f"{plural(len(table), 'case')} of {plural(len(file.sessions), 'session')}"
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
        type=ending(*SUFFIXES),
        help="write the result files and what is printed into one file, to hand in",
    )
    options = parser.parse_args(words)
    sources = map(os.path.realpath, options.files)
    if options.archive and os.path.realpath(options.archive) in sources:
        raise BadInput(f"--archive: {options.archive} is one of the files to check")
    return options


def main(words=None):
    options = parse(words)
    contents = contents_of(options.files)
    found = {
        path: official(load(path, content), options.tier, options.published)
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
