# SPDX-License-Identifier: BSD-3-Clause
"""Commands that measure again what a size of the run rules needs: more repetitions in the same
file, or more steps in another one (docs/run-rules.md)."""

import math
import shlex

from .record import describe
from .settings import values_of

LEAST_TIMED_SECONDS = 10  # in every case; small: any
SPARE = 1.1  # steps beyond the least time
ANOTHER = "again.h5"  # the file that a new measurement goes to
SWEPT = ["ranks", "groups", "replicas", "micro_batch", "micro_batches", "seq"]
COUNTED = ["steps", "repeats", "warmup"]  # what a size asks for at least
# Keys of a deck that say the same as a setting of a case.
SAME_SETTING = {
    "group_size": "groups",
    "tokens_per_micro_batch": "micro_batch",
    "micro_batch_per_rank": "micro_batch",
    "micro_batches_per_rank": "micro_batches",
}
OUTPUT = ("-o", "--output")


def least_seconds(size):
    """Of timed steps, in every case."""
    return 0 if size["name"] == "small" else LEAST_TIMED_SECONDS


def least_counts(case, size):
    """What the case has to be measured with: the counts of the size, or its own where they are
    higher; twice the repetitions where it is noisy; more steps where they end too soon."""
    counts = {key: max(case[key], size[key]) for key in COUNTED}
    if "noisy" in case.doubt:
        counts["repeats"] = max(counts["repeats"], 2 * case["repeats"])
    if case["median_s"] > 0:
        a_step = case["median_s"] * counts["repeats"]
        counts["steps"] = max(counts["steps"], math.ceil(SPARE * least_seconds(size) / a_step))
    return counts


def setting_of(key):
    return SAME_SETTING.get(key, key)


def words_of(case, sets, output=None):
    """The command of the case's session with these keys instead of its own, and with `output` if it
    is said."""
    said = case.session.get("command", "minitaw run DECK")
    words = iter(shlex.split(said.replace("--set=", "--set ").replace("--output=", "--output ")))
    replaced = set(map(setting_of, sets))
    kept = []
    for word in words:
        value = next(words, "") if word in ("--set", *OUTPUT) else ""
        key = setting_of(value.partition("=")[0])
        is_replaced = (word == "--set" and key in replaced) or (word in OUTPUT and output)
        if not is_replaced:
            kept += [word, value] if value else [word]
    kept += ["-o", output] if output else []
    for key, value in sets.items():
        kept += ["--set", f"{key}={value}"]
    return f"mpiexec -n {case['ranks']} {shlex.join(kept)}"


def more_repetitions(cases, size):
    """Commands that add repetitions to the cases that need them, and to no others, in the same
    file."""
    told = [name for name in SWEPT if len({case[name] for case in cases}) > 1]
    found = {}  # cases that one command measures: the first one, and {schedule: repetitions}
    for case in cases:
        needed = least_counts(case, size)["repeats"]
        if needed > case["repeats"]:
            alike = case["session"], values_of(case, told)
            found.setdefault(alike, (case, {}))[1][case["schedule"]] = needed
    for case, some in found.values():
        sets = {name: case[name] for name in told}
        sets |= {"schedule": ",".join(some), "repeats": max(some.values())}
        yield "# again: " + words_of(case, sets)


def another_file(cases, size):
    """Steps and warm-up belong to a case, so that more of them are another case."""
    counts = [least_counts(case, size) for case in cases]
    sets = {key: max(count[key] for count in counts) for key in COUNTED}
    for command in dict.fromkeys(words_of(case, sets, ANOTHER) for case in cases):
        yield f"# again, to another file: {command}"


def again_lines(cases, size):
    """The noisy cases, then the commands whose cases keep the rules on counts and seconds."""
    lines = [
        f"# case {case['case']} ({describe(case)}): {case.doubt}"
        for case in cases
        if "noisy" in case.doubt
    ]
    for case in cases:
        counts = least_counts(case, size)
        if counts["steps"] > case["steps"] or counts["warmup"] > case["warmup"]:
            return [*lines, *another_file(cases, size)]
    return [*lines, *more_repetitions(cases, size)]
