"""Has a result become slower, larger or wrong against another one? (docs/compare.md)"""

import difflib
import math
from dataclasses import dataclass, field

import numpy

from .command import BadInput
from .intervals import Interval, least_each, least_pairs, median_interval, shift_interval
from .record import cell_text, load, ranks_text

OUTCOMES = ["none", "same", "better", "ambiguous", "worse"]  # the later, the more serious
# Settings that must agree, and of provenance what must: names that --allow takes.
WHAT_MATTERS = ["dtype", "recompute", "attention", "transport", "seed", "learning_rate", "device", "processor", "nodes", "build_type",
                "threads", "links"]
# Settings that do not tell cases apart: those of WHAT_MATTERS, and those that say how well a case is measured.
NOT_IN_KEY = {"steps", "warmup", "repeats", "dtype", "recompute", "attention", "transport", "learning_rate", "seed", "identity", "group_count"}
# The largest resident set and the device hold more than the step: libraries, the launcher, whatever the system gave. Below this many
# bytes a difference says nothing.
NOISE_OF_PROCESS = 32 << 20
# How far losses of the same computation may lie apart, relatively: what `run` allows against the serial reference, in the first step;
# a hundred times that after steps that feed the differences back.
LOSS_TOLERANCE = {"fp32": (1e-6, 1e-4), "bf16": (1e-3, 1e-2)}
MOST_SAMPLES = 1000


@dataclass
class Rules:
    threshold: float = 0.05         # the least relative difference of step times that matters
    memory_threshold: float = 0.05  # the same of memory
    confidence: float = 0.95        # of the interval of the ratio
    quantile: float = 0             # of the samples of a block, that stands for it; 0: the fastest
    allowed: frozenset = frozenset()  # names of WHAT_MATTERS that may differ


@dataclass
class Aspect:
    """One thing that is compared of a case. Figures are NaN where there are none."""
    name: str
    outcome: str = "none"
    word: str = ""      # "SLOWER"
    reason: str = ""    # one sentence, for outcomes that need one
    base: float = math.nan
    new: float = math.nan
    units: str = ""
    ratio: Interval = None  # of the time: new / base


@dataclass
class Times:
    """Step times of a case on both sides: logarithms of seconds. Of pairs of files, values with the same index belong together and
    `file` says which they are."""
    unit: str
    base: list
    new: list
    file: list = field(default_factory=list)


@dataclass
class Match:
    """A case that both sides have: for every file of a side the cases of it, usually one."""
    base: list
    new: list
    differs: list = field(default_factory=list)  # what differs although it matters, and was allowed to


@dataclass
class CaseComparison:
    case: object  # of the first base file
    label: str
    differs: list
    times: Times
    aspects: dict  # by name, always the same ones in the same order

    def worst(self, names=None):
        """The most serious of these aspects, the first of equal ones."""
        some = [self.aspects[name] for name in names] if names else self.aspects.values()
        return max(some, key=lambda aspect: OUTCOMES.index(aspect.outcome))


@dataclass
class Comparison:
    rules: Rules
    cases: list
    only_base: list
    only_new: list
    notes: list          # what differs without mattering; one line each
    mean: Interval = None  # geometric mean of the ratios of all cases

    @property
    def outcome(self):
        """Of all cases: a regression counts most, then an ambiguous one, then one that is faster."""
        return max((outcome_of(c) for c in self.cases), key=OUTCOMES.index, default="none")

    def text(self):
        """"SAME", "REGRESSION: 1 of 6 cases, first case 3 (tawpipe, ...): ..." """
        if self.outcome in ("same", "none"):
            return "SAME"
        if self.outcome == "better":
            return "FASTER"
        some = [c for c in self.cases if c.worst().outcome == self.outcome]
        word = "REGRESSION" if self.outcome == "worse" else "AMBIGUOUS"
        return (f"{word}: {len(some)} of {len(self.cases)} case{'' if len(self.cases) == 1 else 's'}, "
                f"first case {some[0].case['case']} ({some[0].label}): {some[0].worst().reason}")


def outcome_of(c):
    """Less memory alone, or a case that is valid again, makes nothing faster."""
    outcome = c.worst().outcome
    return "same" if outcome == "better" and c.aspects["time"].outcome != "better" else outcome


# Which cases are compared.

def read_side(paths):
    """What one build measured, in one file or in several that repeat each other."""
    side = [load(path) for path in paths]
    for file in side:
        if not file.cases:
            raise BadInput(f"{file.path} holds no case")
    return side


def key_of(case):
    """Cases with the same key are the same apart from what matters and from how well they were measured."""
    return {name: case[name] for name in case.file.settings if name not in NOT_IN_KEY}


def variant_of(case):
    """The settings of a sweep that are not part of the key, as they were asked for."""
    return [case[name] for name in ("dtype", "recompute", "seed", "learning_rate", "attention", "transport")]


def label_of(case):
    return (f"{case['schedule']}, {ranks_text(case)} ranks in groups {case['groups']}, {case['seq']} tokens, B {case['micro_batch']}, "
            f"M {case['micro_batches']}")


def of_ranks(texts, ranks, part):
    """What the ranks of a case have, without repetition."""
    return " + ".join(sorted({part(text) for text in texts[:ranks]}))


def device_of(text):
    """Of "device 0, NAME, 79.1 GiB, uuid" name and size, because which of several equal devices it was does not matter; "host"."""
    parts = text.split(", ")
    return ", ".join(parts[1:3]) if len(parts) > 2 else parts[0]


def threads_of(text):
    """Of "host, 4 threads" the second part."""
    parts = text.split(", ")
    return parts[1] if len(parts) == 2 else ""


def value_of(name, case):
    """The value of one of WHAT_MATTERS, as text; empty: not known."""
    session, ranks = case.session, case["ranks"]
    texts = {"attention": lambda: case["attention_used"],
             "transport": lambda: case["transport_used"],
             "device": lambda: of_ranks(session.get("devices", []), ranks, device_of),
             "threads": lambda: of_ranks(session.get("devices", []), ranks, threads_of),
             "processor": lambda: of_ranks(session.get("cpu", []), ranks, str),
             "nodes": lambda: str(len(set(session["nodes"][:ranks]))) if len(session.get("nodes", [])) else "",
             "build_type": lambda: session.get("build_type", ""),
             "links": lambda: " ".join(session.get("links", [])) or "not shaped"}
    return texts[name]() if name in texts else cell_text(case[name])


def groups_of(side):
    """[(key, variant, [cases of each file])]"""
    groups = []
    for f, file in enumerate(side):
        for case in file.cases:
            key, variant = key_of(case), variant_of(case)
            runs = next((runs for k, v, runs in groups if k == key and v == variant), None)
            if runs is None:
                runs = [[] for _ in side]
                groups.append((key, variant, runs))
            runs[f].append(case)
    return groups


def all_of(runs):
    return [case for file in runs for case in file]


def values_of(name, runs):
    return {value_of(name, case) for case in all_of(runs)} - {""}


def differences(match, allowed):
    differs = []
    for name in WHAT_MATTERS:
        base, new = values_of(name, match.base), values_of(name, match.new)
        if not base or not new or base == new:
            continue
        if name not in allowed:
            case, other = all_of(match.base)[0], all_of(match.new)[0]
            raise BadInput(f"case {case['case']} ({label_of(case)}) of {case.file.path} has {name} {' and '.join(sorted(base))}, and "
                           f"{' and '.join(sorted(new))} in {other.file.path}; add --allow {name} to compare all the same")
        differs.append(name)
    return differs


def first_difference(base, new):
    """What makes the first cases of the two files different ones."""
    there, here = key_of(base), key_of(new)
    for name in there:
        if there[name] != here.get(name):
            return f"{name} is {cell_text(there[name])} in the first case of one and {cell_text(here.get(name))} in that of the other"
    return "their first cases have equal settings"


def match_cases(base, new, allowed):
    """(matches, labels only in the base, labels only in the new one). Of cases with one key those with equal variants belong together."""
    mine, others = groups_of(base), groups_of(new)
    partner, taken = {}, set()
    for exactly in (True, False):
        for i, (key, variant, _) in enumerate(mine):
            found = next((j for j, (k, v, _) in enumerate(others) if i not in partner and j not in taken and k == key
                          and (not exactly or v == variant)), None)
            if found is not None:
                partner[i] = found
                taken.add(found)
    if not partner:
        raise BadInput(f"{base[0].path} and {new[0].path} have no case in common: {first_difference(base[0].cases[0], new[0].cases[0])}")
    matches = [Match(mine[i][2], others[partner[i]][2]) for i in sorted(partner)]
    for match in matches:
        match.differs = differences(match, allowed)
    only_base = [label_of(all_of(runs)[0]) for i, (_, _, runs) in enumerate(mine) if i not in partner]
    return matches, only_base, [label_of(all_of(runs)[0]) for j, (_, _, runs) in enumerate(others) if j not in taken]


# Step times.

def blocks_of(cases):
    """Logarithms of the samples of each repetition of these cases of a file, in the order of measurement."""
    blocks = []
    for case in cases:
        if case.valid:
            logs = [math.log(sample) for sample in case.samples]
            for number in numpy.unique(case.repetition):
                blocks.append([log for log, repetition in zip(logs, case.repetition) if repetition == number])
    return blocks


def joined(blocks):
    return [log for block in blocks for log in block]


def quantiles_of(blocks, count, quantile):
    """Of the first `count` samples of each block: one with more samples than its counterpart could have the faster fastest one by
    chance alone."""
    return [float(numpy.quantile(block[:count], quantile)) for block in blocks]


def thinned(samples):
    """At most a thousand, evenly over their order: the interval looks at all differences of two, and more would not narrow it."""
    if len(samples) <= MOST_SAMPLES:
        return samples
    ordered = sorted(samples)
    return [ordered[i * len(ordered) // MOST_SAMPLES] for i in range(MOST_SAMPLES)]


def pairs_of(match, quantile):
    """Files in pairs, if there are several."""
    pairs = [(f, joined(blocks_of(b)), joined(blocks_of(n))) for f, (b, n) in enumerate(zip(match.base, match.new))]
    pairs = [pair for pair in pairs if pair[1] and pair[2]]
    count = min((len(block) for pair in pairs for block in pair[1:]), default=0)
    return Times("pairs of files", quantiles_of([b for _, b, _ in pairs], count, quantile),
                 quantiles_of([n for _, _, n in pairs], count, quantile), [f for f, _, _ in pairs])


def times_of(match, quantile):
    if 1 < len(match.base) == len(match.new):
        return pairs_of(match, quantile)
    base, new = ([block for file in runs for block in blocks_of(file)] for runs in (match.base, match.new))
    if len(base) < 2 or len(new) < 2:
        return Times("samples", thinned(joined(base)), thinned(joined(new)))
    count = min(map(len, base + new))
    return Times("repetitions", quantiles_of(base, count, quantile), quantiles_of(new, count, quantile))


def ratio_of(times, confidence):
    """new / base of the step times; None if there are too few measurements."""
    if times.unit == "pairs of files":
        interval = median_interval(numpy.subtract(times.new, times.base), confidence)
    else:
        interval = shift_interval(times.base, times.new, confidence)
    return interval and interval.exponential()


def mean_ratio(cases, confidence):
    """The geometric mean of the ratios of several cases; None if their measurements did not come together."""
    first = cases[0] if cases else None
    if not first or any(t.unit == "samples" or (t.unit, t.file, len(t.base), len(t.new)) !=
                        (first.unit, first.file, len(first.base), len(first.new)) for t in cases):
        return None
    base, new = (numpy.mean([getattr(t, side) for t in cases], axis=0) for side in ("base", "new"))
    return ratio_of(Times(first.unit, base, new), confidence)


def too_few(times, confidence):
    if times.unit == "pairs of files":
        return f"{len(times.base)} pairs of files, at least {least_pairs(confidence)} are needed for a confidence of {confidence:g}"
    return (f"{len(times.base)} and {len(times.new)} {times.unit}, at least {least_each(confidence)} each are needed for a confidence of "
            f"{confidence:g}")


def judge(ratio, rules):
    """What a ratio means: SAME, FASTER and SLOWER where its whole interval says so."""
    aspect = Aspect("time", "ambiguous", "AMBIGUOUS", units="s", ratio=ratio)
    if not ratio:
        return aspect
    slow, fast = 1 + rules.threshold, 1 / (1 + rules.threshold)
    said = f"step time: new / base = {ratio.estimate:.4g}, from {ratio.low:.4g} to {ratio.high:.4g}"
    if ratio.low > slow:
        aspect.outcome, aspect.word, aspect.reason = "worse", "SLOWER", said
    elif ratio.high < fast:
        aspect.outcome, aspect.word, aspect.reason = "better", "FASTER", said
    elif ratio.low >= fast and ratio.high <= slow:
        aspect.outcome, aspect.word = "same", "SAME"
    else:
        aspect.reason = f"{said}; neither within {100 * rules.threshold:.4g} % nor beyond"
    return aspect


def compare_times(times, rules):
    if not times.base or not times.new:
        return Aspect("time", units="s")
    aspect = judge(ratio_of(times, rules.confidence), rules)
    if not aspect.ratio:
        aspect.reason = too_few(times, rules.confidence)
    # Samples of one repetition scatter less than runs do: two runs of the same program came out SLOWER or FASTER in up to 40 of 100
    # comparisons on a busy machine (docs/decisions/0011-comparing-times.md).
    if times.unit == "samples" and aspect.outcome in ("worse", "better"):
        aspect.outcome, aspect.word = "ambiguous", "AMBIGUOUS"
        aspect.reason += "; one repetition of each does not show how much runs differ"
    aspect.base, aspect.new = math.exp(numpy.median(times.base)), math.exp(numpy.median(times.new))
    return aspect


# Everything else.

def compare_verdicts(match):
    """Whether the case ended valid in all files of each side."""
    was, now = (next((case for case in all_of(runs) if not case.valid), None) for runs in (match.base, match.new))
    why = next((f"{case['verdict']} in {case.file.path}" for case in (now, was) if case), "")
    if was and now:
        return Aspect("verdict", "none", "INVALID", "invalid on both sides: " + why)
    if now:
        return Aspect("verdict", "worse", "BROKEN", why)
    return Aspect("verdict", "better", "REPAIRED", why) if was else Aspect("verdict", "same", "VALID")


def median_of(runs, column):
    """Over the valid runs; NaN if there is none."""
    values = [case[column] for case in all_of(runs) if case.valid]
    return float(numpy.median(values)) if values else math.nan


def judge_bytes(aspect, matters):
    """Of a number of bytes that should not grow."""
    if not math.isfinite(aspect.base) or not math.isfinite(aspect.new):
        return aspect
    more = aspect.new > aspect.base
    aspect.outcome, aspect.word = ("same", "SAME") if not matters else ("worse", "MORE") if more else ("better", "LESS")
    if matters:
        aspect.reason = f"{aspect.name} {aspect.base / 2**20:.4g} MiB -> {aspect.new / 2**20:.4g} MiB"
    return aspect


def compare_memory(match, name, column, threshold, floor):
    """Medians over runs; differences below `threshold` and below `floor` bytes do not matter. 0 is not known."""
    aspect = Aspect(name, base=median_of(match.base, column), new=median_of(match.new, column), units="B")
    difference = abs(aspect.new - aspect.base)
    known = aspect.base > 0 and aspect.new > 0
    return judge_bytes(aspect, difference > threshold * aspect.base and difference > floor) if known else aspect


def compare_bytes(match, name, column):
    """Bytes per step that crossed links, exactly."""
    aspect = Aspect(name, base=median_of(match.base, column), new=median_of(match.new, column), units="B/step")
    return judge_bytes(aspect, aspect.base != aspect.new)


def longest_losses(runs):
    """Of the valid run that has taken the most steps."""
    return max((case.get("losses") for case in all_of(runs) if case.valid), key=len, default=[])


def compare_loss(name, base, new, tolerance):
    aspect = Aspect(name, "same", "SAME", base=float(base), new=float(new), units="nat/token")
    if not abs(new - base) <= tolerance * abs(base) and math.isfinite(base):
        aspect.outcome, aspect.word = "worse", "WRONG"
        aspect.reason = f"{name} {base:.9g} -> {new:.9g} nat/token, more than {tolerance:.0e} apart"
    return aspect


def compare_losses(match):
    """Losses of the first step and of the last one that both have, within what the rounding of the type explains."""
    base, new = longest_losses(match.base), longest_losses(match.new)
    if not len(base) or not len(new) or {"dtype", "seed", "learning_rate"} & set(match.differs):
        return [Aspect("first loss", units="nat/token"), Aspect("last loss", units="nat/token")]
    first, later = LOSS_TOLERANCE.get(all_of(match.base)[0]["dtype"], LOSS_TOLERANCE["fp32"])
    last = min(len(base), len(new)) - 1
    return [compare_loss("first loss", base[0], new[0], first), compare_loss("last loss", base[last], new[last], later)]


def compare_case(match, rules):
    case = all_of(match.base)[0]
    times = times_of(match, rules.quantile)
    aspects = [compare_verdicts(match),
               compare_times(times, rules),
               compare_memory(match, "memory", "memory_measured", rules.memory_threshold, 0),
               compare_memory(match, "process peak", "process_peak", rules.memory_threshold, NOISE_OF_PROCESS),
               compare_memory(match, "device memory", "device_used", rules.memory_threshold, NOISE_OF_PROCESS),
               compare_bytes(match, "bytes inside", "bytes_inside"),
               compare_bytes(match, "bytes between", "bytes_between"),
               *compare_losses(match)]
    return CaseComparison(case, label_of(case), match.differs, times, {aspect.name: aspect for aspect in aspects})


# What a reader should know beyond the figures.

def arrow(base, new):
    return " -> ".join(" and ".join(sorted(texts)) or "none" for texts in (base, new))


def sessions_of(side):
    return [session for file in side for session in file.sessions]


def notes_on(base, new, matches, only_base, only_new):
    notes = []
    for name in ("version", "git_hash", "build_type", "compiler", "compiler_flags", "kokkos", "mpi", "nccl", "cuda", "driver"):
        there, here = ({session.get(name, "") for session in sessions_of(side)} - {""} for side in (base, new))
        if there != here:
            notes.append(f"{name} = {arrow(there, here)}")
    for name in ("libraries", "environment"):
        there, here = ({text for session in sessions_of(side) for text in session.get(name, [])} for side in (base, new))
        if there != here:
            notes.append(f"{name} = {arrow(there - here, here - there)}")
    notes += notes_on_effort(matches) + notes_on_allowed(matches)
    return notes + [f"only in the base: {label}" for label in only_base] + [f"only in the new one: {label}" for label in only_new]


def notes_on_effort(matches):
    """How well the sides were measured need not agree, but may explain why one of them scatters more."""
    notes = []
    for column in ("steps", "warmup", "repeats"):
        for match in matches:
            there, here = ({str(case[column]) for case in all_of(runs)} for runs in (match.base, match.new))
            if there != here:
                notes.append(f"{column} = {arrow(there, here)} in {label_of(all_of(match.base)[0])}")
                break
    return notes


def notes_on_allowed(matches):
    first = {name: match for match in reversed(matches) for name in match.differs}
    return [f"{name} = {value_of(name, all_of(first[name].base)[0])} -> {value_of(name, all_of(first[name].new)[0])}, as allowed"
            for name in WHAT_MATTERS if name in first]


def distinguish(cases):
    """Labels say what cases of most sweeps differ in; what else tells the cases of this one apart is added, so that no two are equal."""
    said = {"schedule", "ranks", "groups", "group_count", "replicas", "seq", "micro_batch", "micro_batches", "parameters", "identity", "steps",
            "warmup", "repeats"}
    for name in cases[0].case.file.settings:
        if name not in said and any(c.case[name] != cases[0].case[name] for c in cases):
            for c in cases:
                c.label += f", {name} {cell_text(c.case[name])}"


def compare(base, new, rules):
    """Raises BadInput if the two sides cannot be compared."""
    matches, only_base, only_new = match_cases(base, new, rules.allowed)
    found = Comparison(rules, [compare_case(match, rules) for match in matches], only_base, only_new,
                       notes_on(base, new, matches, only_base, only_new))
    if found.outcome == "none":
        raise BadInput(f"{base[0].path} and {new[0].path} have no case in common that is valid on either side")
    distinguish(found.cases)
    if any(c.times.unit == "samples" and c.aspects["time"].ratio for c in found.cases):
        found.notes.append("there is one repetition only: the interval knows how samples of a run scatter, not how runs differ; measure base "
                           "and new in turn, in several files of each")
    found.mean = mean_ratio([c.times for c in found.cases if c.times.base and c.times.new], rules.confidence)
    return found


def require_known(allowed):
    for name in allowed:
        if name not in WHAT_MATTERS:
            nearest = difflib.get_close_matches(name[:64], WHAT_MATTERS, 1, 0)[0]
            raise BadInput(f"--allow {name} is not known; did you mean {nearest}? It takes {', '.join(WHAT_MATTERS)}")
