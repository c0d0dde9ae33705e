# SPDX-License-Identifier: BSD-3-Clause
"""Result files as tables of pandas (docs/results.md): a row is one repetition of a case. Names,
units and sentences come from the file."""

import math
import pathlib
import string
from dataclasses import dataclass, field

import h5py
import numpy
import pandas

from .command import BadInput
from .numbers import plural
from .sealed import guarded, opened
from .settings import BATCH, DERIVED, EFFORT, MODEL, VARIANT, WORK

# Control characters could command the terminal on which a text is shown, and are allowed nowhere in
# a page or in XML.
CONTROLS = {
    code: "\ufffd" for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160), 0xFFFE, 0xFFFF)
}
KEYS, OF_REPETITION = ["file", "case"], ["case", "repetition"]
OF_RANKS = "rank of the job"  # axis of what a session has for each rank


def clean(text):
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    return text.encode(errors="replace").decode().translate(CONTROLS)


def is_text(dataset):
    return h5py.check_string_dtype(dataset.dtype) is not None


def value_of(dataset):
    """A text, or an array."""
    has_texts = attribute(dataset, "units", "") == "text"
    if is_text(dataset) != has_texts or (not has_texts and dataset.dtype.kind not in "if"):
        raise ValueError(f"{dataset.name} holds no {'texts' if has_texts else 'numbers'}")
    if not has_texts:
        return dataset[()]
    texts = dataset.asstr(errors="replace")[()]
    return clean(texts) if isinstance(texts, str) else numpy.array([*map(clean, texts)], object)


def attribute(item, name, default):
    """A text or a list of texts."""
    found = item.attrs.get(name, default)
    return clean(found) if isinstance(found, (str, bytes)) else list(map(clean, found))


@dataclass(eq=False, repr=False)
class File:
    """What a file says of all its runs."""

    path: pathlib.Path
    letter: str = ""  # empty where there is one file only
    units: dict = field(default_factory=dict)  # {column: unit}, in the order of the file
    settings: list = field(default_factory=list)  # columns that say what was asked for
    sessions: list = field(default_factory=list)  # {name: text, or list}, of each
    of_ranks: set = field(default_factory=set)  # names that a session has for each rank
    deaths: dict = field(default_factory=dict)  # {identity: session that found its job dead}
    verdict: str = ""  # "VALID", "VALID (doubt)" or "INVALID: reason" of all runs
    figures_of_merit: list = field(default_factory=list)  # texts, one of each model
    slowest: str = ""  # a sentence on the rank that is slow in all cases
    content: h5py.File = None

    def part(self, run, name):
        """A dataset of a run; None if there is none."""
        path = f"runs/{run:04}/{name}"
        return self.content[path] if path in self.content else None

    def array(self, run, name):
        part = self.part(run, name)
        if part is None:
            return numpy.zeros(0)
        values = value_of(part)
        codes = attribute(part, "codes", [])
        return numpy.array(codes, object)[values] if codes and len(values) else values

    def labels(self, run, name):
        part = self.part(run, name)
        return [] if part is None else attribute(part, "labels", [])


def columns_of(runs):
    return {name: item for name, item in runs.items() if isinstance(item, h5py.Dataset)}


# Columns that scripts use, whichever others a file has.
FIGURES = """case repetition session status verdict reason started begun ended median_s q1_s q3_s samples
spread tokens_per_s peak mfu memory_planned memory_measured process_peak device_used bytes_inside
bytes_between exposed_share idle_share overlap attention_used transport_used energy"""
NEEDED = {*FIGURES.split(), *MODEL, *WORK, *BATCH, *VARIANT, *EFFORT, *DERIVED}
# How the reason of a run begins whose job died (record/verdict.hpp).
JOB_DIED = "the job died while this case ran"


def loaded(file):
    runs, sessions = file.content["runs"], file.content["sessions"]
    columns = columns_of(runs)
    file.units = {name: attribute(column, "units", "") for name, column in columns.items()}
    file.settings = attribute(runs, "settings", [])
    file.verdict, file.slowest = (attribute(runs, name, "") for name in ("verdict", "slowest"))
    file.figures_of_merit = attribute(runs, "figures_of_merit", ["none"])
    for number in sorted(sessions):
        parts = sessions[number].items()
        file.sessions.append({name: numpy.asarray(value_of(part)).tolist() for name, part in parts})
        file.of_ranks |= {name for name, part in parts if attribute(part, "axes", "") == OF_RANKS}
    for name in sorted({*NEEDED, *file.settings} - set(columns)):
        raise ValueError(f"/runs/{name} is missing")
    table = pandas.DataFrame({name: value_of(column) for name, column in columns.items()})
    if not table.session.between(0, len(file.sessions) - 1).all():
        raise ValueError("/runs/session names a session that is not there")
    died = table[table.reason.str.startswith(JOB_DIED)].drop_duplicates("identity")
    file.deaths = dict(zip(died.identity, died.session))
    # The last run of a repetition takes the place of the first.
    last = table.assign(run=table.index).drop_duplicates(OF_REPETITION, keep="last")
    return table[OF_REPETITION].drop_duplicates().merge(last)


def load(path, content=None, letter=""):
    """The runs that count, a row each: of those of one case and repetition the last. Raises BadInput
    for a file that is missing, no result, damaged or of another schema."""
    file = File(pathlib.Path(path), letter, content=opened(str(path), content))
    runs = guarded(str(path), lambda: loaded(file))
    return judged(runs).assign(file=file)


def load_all(paths):
    """Those of all files, which get letters (A ... Z, A1 ...) if there are several."""
    found = []
    for number, path in enumerate(paths):
        turn, letter = divmod(number, len(string.ascii_uppercase))
        letters = f"{string.ascii_uppercase[letter]}{turn or ''}" if len(paths) > 1 else ""
        found.append(load(path, letter=letters))
        if found[-1].empty:
            raise BadInput(f"{path} holds no run")
    return pandas.concat(found, ignore_index=True)


def judged(table):
    """With the columns that follow from the verdict: valid, doubt."""
    valid = table.verdict.str.startswith("VALID")
    doubt = table.verdict.str.removeprefix("VALID").str.strip(" ()").where(valid, "")
    return table.assign(valid=valid, doubt=doubt)


# Cases: all repetitions together.


def rows_of(table):
    return [row for _, row in table.iterrows()]


def verdict_of(runs):
    """Of a case, from the rows of its runs."""
    asked = runs[-1].repeats  # the last session may have asked for more
    for run in runs:
        if not run.valid:
            return run.verdict
    if len(runs) < asked:
        return f"INVALID: {len(runs)} of {plural(asked, 'repetition')}"
    return next((run.verdict for run in runs if run.doubt), "VALID")


def figures_of(runs):
    """Numbers that are measured, not asked for."""
    known = {name for file in runs.file.unique() for name in file.settings}
    known |= {"case", "repetition", "session", "run"}
    numbers = runs.select_dtypes(["int", "float"])
    return [name for name in numbers if name not in known]


def cases(runs):
    """A row for each case of a file: settings and texts of its first run, medians of the numbers
    over the valid runs (all, if none is), `samples` of all; `runs` is the list of its rows."""
    groups = runs.groupby(KEYS, sort=False)
    found = groups.head(1).set_index(KEYS).drop(columns="repetition")
    counted = runs[runs.valid | ~groups.valid.transform("any")].groupby(KEYS, sort=False)
    figures = figures_of(runs)
    whole = runs[figures].select_dtypes("int").columns
    found[figures] = counted[figures].median()
    # A median of whole numbers is one of them.
    found[whole] = counted[whole].quantile(interpolation="lower").astype(int)
    found["samples"] = counted.samples.sum()
    found["repeats"] = groups.repeats.last()
    found["runs"] = [rows_of(some) for _, some in groups]
    found["verdict"] = found.runs.map(verdict_of)
    found = judged(found.reset_index())
    found["label"] = [f"{file.letter}{case}" for file, case in zip(found.file, found.case)]
    return found


# What a row of either table has beyond its columns.


def array(run, name):
    """ "seconds", "memory/measured", ... of a run, codes replaced by their names; empty if there is
    none. Of a case: that of its first run."""
    return guarded(str(run.file.path), lambda: run.file.array(run.run, name))


def labels(run, name):
    """Names along the last axis."""
    return run.file.labels(run.run, name)


def took_time(seconds):
    return bool(((0 < seconds) & (seconds < math.inf)).all())


def samples(run):
    """Seconds of each timed step: the slowest rank's."""
    seconds = array(run, "seconds")
    found = seconds.max(axis=1) if seconds.size else numpy.zeros(0)
    if run.valid and not (found.size and took_time(found)):
        raise BadInput(f"{run.file.path}: case {run.case} is valid, but not all steps took time")
    return found


def session_of(run):
    """Provenance of the session that measured it; a prediction has none."""
    return run.file.sessions[run.session] if run.file.sessions else {}


def links_of(run):
    """{what: value} of the shaped links of the job; empty where they are not shaped."""
    return dict(text.partition("=")[::2] for text in session_of(run).get("links", []))


def group_sizes(run):
    return [int(size) for size in run.groups.split("+")]


def tokens_of(run):
    """Of a step, all ranks together."""
    return run.micro_batch * run.micro_batches * run.seq


def transfers(run):
    """A row for each pair of ranks and kind that exchange bytes in a step: from, to, kind, planned,
    counted, and whether they are of different groups."""
    columns = ("from", "to", "kind", "planned", "counted")
    found = pandas.DataFrame({name: array(run, f"bytes/{name}") for name in columns})
    group = numpy.repeat(range(len(group_sizes(run))), group_sizes(run))

    def between():
        return numpy.not_equal(*(group[found[name].astype(int)] for name in ("from", "to")))

    return found.assign(between=guarded(str(run.file.path), between))


def describe(run):
    ranks, tokens = plural(run.ranks, "rank"), plural(run.seq, "token")
    context = f", context {run.context}" if run.context > 1 else ""
    return f"{run.schedule}, {ranks} in groups {run.groups}, {tokens}{context}"


def reason_of(run):
    """Why it is not valid, without the word that says so."""
    return run.verdict.removeprefix("INVALID: ")
