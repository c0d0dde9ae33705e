# SPDX-License-Identifier: BSD-3-Clause
"""What of a result cannot all be forged by hand, held against each other: clocks, samples, parts of
a step, losses, memory, bytes, the machine's own rates, the log (docs/acceptance.md)."""

import itertools
import re
import shlex

import numpy
import pandas

from .command import BadInput, from_json, read_bytes
from .numbers import cell_text, listed, plural
from .record import (
    array,
    clean,
    describe,
    labels,
    rows_of,
    samples,
    session_of,
    tokens_of,
    transfers,
)
from .sealed import guarded
from .settings import MODEL

CLOCKS = ["the monotonic clock", "the clock of the day", "the processor's counter"]
APART, SLACK = 1e-3, 50e-6  # of two clocks: of their span, and seconds, as the program allows
OF_TEXT = 0.002  # seconds between `begun` or `ended`, in milliseconds, and the clock of the day
SKEW = 0.25  # seconds that a rank may begin its first step before rank 0
# What lies before, between and after steps, and between the begins of ranks: of the samples, and
# seconds of each place.
BETWEEN, BETWEEN_STEPS, BETWEEN_SHARED, BETWEEN_BEGINS = 0.05, 0.05, 0.1, 0.04
SET = 1.0  # seconds by which the clock of the day may be set
ROUNDING = 1e-6
FIRST_LOSS = {"fp32": 1e-6, "bf16": 1e-3}  # by which schedules differ, relatively
# What an identity says, and what it leaves out.
SAID = """layers hidden heads head_dim kv_heads vocab ffn schedule ranks groups replicas context seq
micro_batch micro_batches dtype recompute steps warmup seed learning_rate tied""".split()
UNSAID = {"replicas": "1", "context": "1", "tied": "false"}
OPTIMISER = {"fp32": 8, "bf16": 12}  # bytes a parameter: moments, and master weights
ENDS_APART = ("1f1b", "zb1", "zb2")  # whose first and last stage each have tied embeddings
PADDING, PADDING_BYTES = 0.01, 4096  # of the optimiser's memory, and of each rank
MORE_THAN_MEASURED = 1.2  # a rate that screen has not seen
BY_FORMULA = 0.5  # of such bytes at least are sent: a switch may add up
POWERS_APART = 1.5
REPEATED = 50  # of so many steps, one may be like another by chance


def seconds_text(value):
    return f"{value:.6g} s"


def moment(text):
    """Seconds since 1970; NaN: it is none."""
    found = pandas.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
    return numpy.nan if found is pandas.NaT else found.timestamp()


def repeated(values):
    """How many rows are exactly like an earlier one, beyond chance."""
    count = len(values) - len(numpy.unique(values, axis=0))
    return count if count > len(values) // REPEATED else 0


# Of one run.


def block_of(run):
    """Weights of the matrices of a block."""
    heads = 2 * run.heads + 2 * run.kv_heads
    return run.hidden * (heads * run.head_dim + 3 * run.ffn)


def parameters_of(run):
    """With the embedding, the head and the norms."""
    matrices = 1 if run.tied == "true" else 2
    rows = matrices * run.vocab + 2 * run.layers + 1
    return run.hidden * rows + run.layers * block_of(run)


def clocks_of(run):
    """[begin, end][clock], seconds of rank 0 around the timed steps; None if there are none."""
    clocks = array(run, "clocks")
    known = clocks.shape == (2, len(CLOCKS)) and numpy.isfinite(clocks[:, :2]).all()
    return clocks if known and not numpy.isinf(clocks).any() else None


def has_counter(runs):
    """All runs know the third clock."""
    return not any(numpy.isnan(array(run, "clocks")).any() for run in rows_of(runs))


def by_clocks(run, clocks):
    spans = clocks[1] - clocks[0]
    for name, span in zip(CLOCKS[1:], spans[1:]):
        if abs(span - spans[0]) > APART * abs(span) + SLACK:
            yield (
                f"its timed steps last {seconds_text(spans[0])} by {CLOCKS[0]}, "
                f"{seconds_text(span)} by {name}"
            )
    for name, real in zip(("begun", "ended"), clocks[:, 1]):
        if not abs(moment(run[name]) - real) <= OF_TEXT:
            yield f"{name} is {run[name]!r}, {CLOCKS[1]} says otherwise"


def by_window(run, clocks):
    """The window has all steps."""
    seconds, window = array(run, "seconds"), clocks[1, 0] - clocks[0, 0]
    least = max(seconds[:, 0].sum() - SLACK, samples(run).sum() - SKEW)
    if not least * (1 - ROUNDING) <= window:
        yield (
            f"its samples are {seconds_text(samples(run).sum())} together, but its timed steps "
            f"last {seconds_text(window)} by its clocks"
        )


def by_parts(run):
    """The accounted step, as its sample, as its length and as the sum of its parts."""
    if not 0 <= run.accounted_step < len(samples(run)):
        yield "it says of none of its timed steps what its time went into"
        return
    sample, length = samples(run)[run.accounted_step], run.accounted_s
    names = ("compute", "exposed_by_kind", "idle")
    parts = sum(array(run, f"time/{name}").reshape(run.ranks, -1).sum(axis=1) for name in names)
    if not abs(parts - length).max() <= ROUNDING * length:
        yield (
            f"computing, exposed and idle time of a rank are {seconds_text(max(parts))} together, "
            f"in a step of {seconds_text(length)}"
        )
    if not sample * (1 - APART) - SLACK <= length:
        yield (
            f"step {run.accounted_step} takes {seconds_text(length)} by its actions, "
            f"{seconds_text(sample)} by its sample"
        )


def by_steps(run):
    losses = array(run, "losses")
    if not numpy.isfinite(losses).all():
        yield "one of its losses is no number"
    if count := repeated(array(run, "seconds")):
        yield f"{count} of its timed steps take exactly as long as another one on all ranks"
    if count := repeated(losses):
        yield f"{count} of its {len(losses)} losses are exactly those of another step"
    wanted = run.warmup + run.steps
    if not len(losses) == wanted or len(samples(run)) != run.steps:
        yield (
            f"it has {len(samples(run))} samples and {len(losses)} losses, its settings ask for "
            f"{run.steps} and {wanted}"
        )


def by_identity(run):
    """What the session asked for, and what the columns say."""
    unsaid = UNSAID | {"head_dim": str(run.hidden // run.heads)}
    asked = unsaid | dict(re.findall(r"(\w+)=(\S*)", run.identity))
    for name in SAID:
        found = cell_text(run[name])
        if asked.get(name) != found:
            yield f"{name} is {found}, in its identity {asked.get(name, 'missing')}"


def by_columns(run):
    """What a row says of its arrays."""
    losses, moved = array(run, "losses"), transfers(run)
    wanted = {
        "parameters": parameters_of(run),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "bytes_inside": moved.counted[~moved.between].sum(),
        "bytes_between": moved.counted[moved.between].sum(),
        "energy_per_token": run.energy / tokens_of(run) / run.steps,
    }
    for name, value in wanted.items():
        if not numpy.isclose(run[name], value, rtol=ROUNDING, atol=0, equal_nan=True):
            yield f"{name} is {run[name]:.10g}, its arrays and settings say {value:.10g}"


def by_memory(run):
    """What the optimiser keeps follows from dtype: all copies of all parameters."""
    dtype, kinds = run["dtype"], labels(run, "memory/planned")
    copies = run.ranks if run.schedule.startswith("ddp") else run.replicas
    parameters = parameters_of(run)
    if run.tied == "true" and run.schedule.startswith(ENDS_APART) and run.ranks > run.replicas:
        parameters += run.hidden * (run.vocab + 1)
    wanted = OPTIMISER[dtype] * parameters * copies
    for name in ("planned", "measured"):
        found = array(run, f"memory/{name}")[:, kinds.index("optimiser")].sum()
        if not wanted <= found <= (1 + PADDING) * wanted + PADDING_BYTES * run.ranks:
            each = OPTIMISER[dtype] * float(found) / max(wanted, 1)
            yield (
                f"memory/{name} of the optimiser is {each:.3g} bytes a parameter, "
                f"{dtype} takes {OPTIMISER[dtype]}"
            )


def by_clocks_and_arrays(run):
    clocks = clocks_of(run)
    if clocks is None:
        yield "it has no clocks of its timed steps"
    else:
        yield from by_clocks(run, clocks)
        yield from by_window(run, clocks)
    yield from by_parts(run)
    yield from by_steps(run)
    yield from by_identity(run)
    yield from by_columns(run)
    yield from by_memory(run)


# Of all repetitions of a case together: a load may disturb one.


def nodes_of(run):
    return numpy.array(session_of(run)["nodes"])[: run.ranks]


def share_cores(run):
    places = [*zip(nodes_of(run), session_of(run)["cores"])]
    return len({*places}) < len(places)


def by_repetitions(runs):
    """Little lies between steps, and between the begins of ranks; devices take the same power."""
    windows = numpy.array([numpy.diff(clocks_of(run)[:, 0])[0] for run in runs])
    sums, count = sum(samples(run).sum() for run in runs), sum(run.steps for run in runs)
    each = BETWEEN_SHARED if share_cores(runs[0]) else BETWEEN_STEPS
    if windows.sum() > (1 + BETWEEN) * sums + each * (count + len(runs)):
        yield (
            f"its samples are {seconds_text(sums)} together, but its timed steps last "
            f"{seconds_text(windows.sum())} by its clocks"
        )
    lengths = sum(run.accounted_s for run in runs)
    parts = sum(samples(run)[run.accounted_step] for run in runs)
    if lengths > (1 + BETWEEN) * parts + BETWEEN_BEGINS * len(runs):
        yield (
            f"its accounted steps take {seconds_text(lengths)} by their actions, "
            f"{seconds_text(parts)} by their samples"
        )
    measured = [[*array(run, "seconds").flat, *array(run, "time/compute")] for run in runs]
    if repeated(measured):
        yield "one of its repetitions takes exactly as long as another one on all ranks"
    powers = numpy.array([run.energy for run in runs]) / windows
    if powers.max() > POWERS_APART * powers.min():
        yield f"its repetitions take {powers.min():.4g} to {powers.max():.4g} W"


# Of all runs of a file.


def by_losses(runs):
    """All schedules begin with the same loss, if their steps have the same tokens."""
    known = {}
    for run in runs:
        loss, names = array(run, "losses")[0], [*MODEL, "seq", "dtype", "seed", "data"]
        alike = (*run[names], tokens_of(run))
        first, wanted = known.setdefault(alike, (run.run, loss))
        if not abs(loss - wanted) <= FIRST_LOSS[run["dtype"]] * wanted:
            yield f"run {run.run} begins with the loss {loss:.8g}, run {first} with {wanted:.8g}"


def by_order(runs, sessions):
    """Runs follow one another as `run` executes them, by the clock of the day."""
    last = -numpy.inf
    for number, session in enumerate(sessions):
        some = [run for run in runs if run.session == number]
        clocks = [clocks_of(run) for run in some]
        started = moment(session["started"])
        if not started >= last - SET:
            yield f"session {number} starts before an earlier one has ended"
        last = started - SET
        for run, of_run in zip(some, clocks):
            if of_run[0, 1] < last:
                yield f"run {run.run} begins before what comes before it has ended"
            last = max(last, of_run[1, 1])
        set_by = [of_run[0, 1] - of_run[0, 0] for of_run in clocks]
        if set_by and max(set_by) - min(set_by) > SET:
            yield f"the clocks of session {number} are not those of one start of one machine"
        if "--interleave" not in shlex.split(session["command"]):
            yield from by_place(some, session, number)


def by_place(runs, session, number):
    """Case by case as asked for, repetition by repetition; those in which a job died come last."""
    asked = list(session["cases"])
    places = [
        (run.file.deaths.get(run.identity, number + 1) <= number,
         asked.index(run.identity), run.repetition)
        for run in runs if run.identity in asked
    ]  # fmt: skip
    if places != sorted(places):
        yield f"the runs of session {number} are not in the order in which they were asked for"


def by_cases(runs, sessions):
    """Rows are of cases that were asked for, and all of these are there."""
    there = {run.identity for run in runs}
    asked = {identity for session in sessions for identity in session["cases"]}
    for run in runs:
        if run.identity not in sessions[run.session]["cases"]:
            yield f"run {run.run} ({describe(run)}) is of a case that its session did not ask for"
    is_finished = "unfinished cases" not in runs[0].file.verdict
    missing = sorted(asked - there)
    if missing and is_finished:
        yield f"its sessions asked for {plural(len(missing), 'case')} that it lacks: {missing[0]}"


# Beside what the machine can do, as screen has measured it, or its data sheet says.


def screening_of(path):
    """{quantity: highest}, "adapters" of a node, and "verdict"."""

    def made(content):
        highest = {one["name"]: float(one["highest"]) for one in content["quantities"]}
        adapters, verdict = int(content["adapters"]), str(content["verdict"])
        return highest | {"adapters": adapters, "verdict": clean(verdict)}

    return from_json(path, made, "output of screen --json")


def model_flops(run):
    """Of a step: causal attention, nothing twice."""
    weights = run.vocab * run.hidden + run.layers * block_of(run)
    return tokens_of(run) * (6 * weights + 6.0 * run.layers * run.seq * run.heads * run.head_dim)


def by_machine(run, screening):
    fastest = samples(run).min()
    rate = model_flops(run) / fastest / run.ranks
    product = screening.get("matrix product", numpy.inf)
    limits = {
        "its peak": run.peak * 1e12,
        "a matrix product on this machine": MORE_THAN_MEASURED * product,
    }
    for what, most in limits.items():
        if rate > most:
            yield f"{rate:.4g} FLOP/s a rank are more than {what} allows, {most:.4g}"
    link = screening.get("rate between nodes")
    if link is None:
        return
    nodes, moved = nodes_of(run), transfers(run)
    sides = [nodes[moved[name].astype(int)] for name in ("from", "to")]
    counted = moved.counted.where(numpy.not_equal(*sides), 0)
    busiest = max(counted.groupby(side).sum().max() for side in sides)
    part = 1 if run.bytes_source == "counted" else BY_FORMULA
    least = part * busiest / (MORE_THAN_MEASURED * link * screening["adapters"])
    if fastest < least:
        yield (
            f"a step of {seconds_text(fastest)} is too short for {busiest:.4g} bytes of its "
            f"busiest node, {seconds_text(least)} at the rate measured"
        )


# Beside the log that the batch system kept.


def lines_of(paths):
    """{(case, repetition): step as printed} of the tables in the output of run."""
    found, steps = {}, []
    for path in paths:
        for line in read_bytes(path).decode(errors="replace").splitlines():
            words = line.split()
            if {"case", "schedule", "step"} <= {*words}:
                steps.append((line.index("case") + 4, line.index(" step") + 5))
            match = re.search(r"(?:repetition (\d+)/\d+ +)?\[\d+/\d+\]$", line)
            if match and steps:
                case, step = (line[:end].split()[-1] for end in steps[-1])
                found[case, int(match[1] or 1) - 1] = step
    if not found:
        raise BadInput(f"--log: {listed(paths)} has no line of a table of run")
    return found


def by_log(runs, lines):
    rows = {(str(run.case), run.repetition): run for run in runs}
    for (case, repetition), run in rows.items():
        told = lines.get((case, repetition))
        if told is None:
            yield f"run {run.run} (case {case}, repetition {repetition}) has no line in the log"
        elif not is_as_printed(told, run.median_s):
            yield f"run {run.run} takes {seconds_text(run.median_s)}, in the log {told} s"
    for case, repetition in {*lines} - {*rows}:
        yield f"the log has case {case}, repetition {repetition}, the file has not"


def is_as_printed(text, value):
    try:
        return abs(float(text) - value) <= 10.0 ** -len(text.partition(".")[2])
    except ValueError:
        return not value >= 0


# All together.


def found_in(runs, screening, lines):
    every, sessions = rows_of(runs), runs.file.iloc[0].sessions
    good = [run for run in every if run.status == "ok"]
    for run in good:
        for what in (*by_clocks_and_arrays(run), *by_machine(run, screening)):
            yield f"run {run.run}: {what}"
    if lines is not None:
        yield from by_log(every, lines)
    timed = [run for run in good if clocks_of(run) is not None]
    for case, some in itertools.groupby(
        sorted(timed, key=lambda run: run.case), lambda run: run.case
    ):
        yield from (f"case {case}: {what}" for what in by_repetitions([*some]))
    if not all(len(session.get("cases", [])) for session in sessions):
        yield "its sessions do not say which cases were asked for"
        return
    yield from by_losses(good)
    yield from by_cases(every, sessions)
    yield from by_order(sorted(timed, key=lambda run: run.run), sessions)


def contradictions(runs, screening=None, lines=None):
    """Sentences, one for each thing that contradicts another."""
    path = str(runs.file.iloc[0].path)
    return guarded(path, lambda: [*found_in(runs, screening or {}, lines)])
