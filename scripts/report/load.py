"""Result files in memory (docs/results.md), all schemas alike: what an older file lacks is None, NaN or empty."""

import math
import pathlib
from dataclasses import dataclass, field

import h5py
import numpy
from minitaw_file import BadFile, open_checked

WIDEST_SPREAD = 0.1  # quartiles further apart than this share of the median are noisy (docs/results.md)
# Datasets of a case that the page uses, with their axes: P ranks, K any number.
SHAPES = {"seconds": "KP", "repetition": "K", "memory/planned": ("P", 5), "memory/measured": ("P", 5), "bytes/planned": ("P", "P", 4),
          "bytes/counted": ("P", "P", 4), "time/length": (), "idle_ticks": "P", "device/clock": "KP", "device/memory_clock": "KP",
          "device/throttle": "KP"}
# What rows of older files get: 0 replicas are unknown, and there was nothing but one copy then.
DEFAULTS = {"replicas": 1, "repeats": 1, "micro_batch_per_rank": "", "attention": "", "transport": "", "attention_used": "",
            "transport_used": "", "counters": "", "head_dim": 0}
DAMAGE = (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, IndexError)


@dataclass
class Case:
    """One case. Arrays have length 0 where nothing was measured."""
    file: "Result"
    row: dict                                   # of /summary
    data: dict = field(default_factory=dict)    # datasets of the case by path, "memory/planned"
    has_timeline: bool = False

    def __getitem__(self, name):
        value = self.row.get(name, DEFAULTS.get(name))
        if name == "replicas" and value == 0:
            return 1
        return math.nan if value is None else value

    def get(self, name):
        """A dataset of the case; empty if there is none."""
        return self.data.get(name, numpy.zeros(0))

    @property
    def number(self):
        return int(self["case"])

    @property
    def label(self):
        """The number, with the letter of its file where there are several."""
        return f"{self.file.letter}{self.number}"

    @property
    def valid(self):
        return self["verdict"].startswith("VALID")

    @property
    def doubt(self):
        """What the verdict says in brackets behind VALID: too noisy, no warm-up."""
        return self["verdict"].removeprefix("VALID").strip(" ()") if self.valid else ""

    @property
    def noisy(self):
        """Samples too wide apart; files before schema 4 do not say so themselves."""
        wide = self["q3_s"] - self["q1_s"] > WIDEST_SPREAD * self["median_s"]
        return "noisy" in self.doubt or (self.file.schema < 4 and self.valid and wide)

    @property
    def samples(self):
        """Seconds of each timed step: the slowest rank's."""
        seconds = self.get("seconds")
        return seconds.max(axis=1) if seconds.size else numpy.zeros(0)

    @property
    def repetition(self):
        """Of each sample; files before schema 4 have one."""
        numbers = self.get("repetition")
        return numbers if len(numbers) == len(self.samples) else numpy.zeros(len(self.samples), dtype=int)

    @property
    def tokens(self):
        """Of a step, all ranks together."""
        return round(self["tokens_per_s"] * self["median_s"]) if self["median_s"] > 0 else 0


@dataclass
class Result:
    """A file: its sessions (provenance) and cases."""
    path: pathlib.Path
    schema: int
    letter: str = ""    # empty where there is one file only
    sessions: list = field(default_factory=list)
    cases: list = field(default_factory=list)

    @property
    def name(self):
        return self.path.name


def value_of(dataset):
    """Numbers as numpy has them, texts as str or a list of them."""
    if h5py.check_string_dtype(dataset.dtype):
        values = dataset.asstr(errors="replace")[()]
        return values if isinstance(values, str) else [str(value) for value in values]
    return dataset[()]


def read_all(group, names):
    """Those of the datasets that there are, by name."""
    return {name: value_of(group[name]) for name in names if name in group}


def plain(value):
    return value.item() if isinstance(value, numpy.generic) else value


def read_cases(result, file):
    columns = {name: value_of(column) for name, column in file["summary"].items()}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise ValueError("the columns of the summary differ in length")
    for i in range(max(lengths, default=0)):
        row = {name: plain(column[i]) for name, column in columns.items()}
        require_row(row)
        group = file[f"cases/{i:04}"]
        case = Case(result, row, read_all(group, SHAPES), "timeline" in group)
        require_arrays(case)
        result.cases.append(case)


def require(holds, what):
    if not holds:
        raise ValueError(what)


def require_row(row):
    """No figure of a summary is negative (a seed may look so) or endless; what does not exist is NaN."""
    for name, value in row.items():
        number = isinstance(value, (int, float)) and name != "seed"
        require(not number or math.isnan(value) or 0 <= value < 2**62, f"case {row['case']}: {name} is {value}")
    require(row["ranks"] > 0 and row["seq"] > 0, f"case {row['case']} has no ranks or no tokens")
    sizes = row["groups"].split("+")
    require(all(size.isdecimal() and len(size) < 9 for size in sizes) and sum(map(int, sizes)) == row["ranks"],
            f"case {row['case']}: {row['ranks']} ranks in groups {row['groups']}")


def require_arrays(case):
    """Shapes and values that the figures rely on."""
    for name, axes in SHAPES.items():
        values, expected = case.get(name), [case["ranks"] if axis == "P" else axis for axis in axes]
        if 0 in values.shape:
            continue
        where = f"case {case['case']}: {name}"
        require(len(values.shape) == len(expected) and all(e in ("K", s) for s, e in zip(values.shape, expected)),
                f"{where} has the shape {values.shape}")
        require(not ((values < 0) | (values >= 2**62)).any(), f"{where} holds what cannot be")
    require(numpy.isfinite(case.get("seconds")).all() and (case.samples > 0).all(), f"case {case['case']}: seconds holds what is no time")


def read_sessions(file):
    first = file["provenance"]
    later = [first["resumed"][name] for name in sorted(first.get("resumed", {}))]
    return [read_all(session, [name for name in session if name != "resumed"]) for session in (first, *later)]


def damaged(name, error):
    return BadFile(f"{name} is damaged: {' '.join(str(error).split())}")


def read_result(name):
    """Raises BadFile for a file that is missing, no result of ours, damaged or too new."""
    with open_checked(name) as file:
        try:
            result = Result(pathlib.Path(name), int(file.attrs["schema"]))
            result.sessions = read_sessions(file)
            read_cases(result, file)
            return result
        except DAMAGE as error:
            raise damaged(name, error) from error


def read_timeline(case):
    """Datasets of the timeline of a case, and what the codes of its columns mean."""
    with open_checked(str(case.file.path)) as file:
        try:
            group = file[f"cases/{case.number:04}/timeline"]
            columns = {name: column[()] for name, column in group.items()}
            codes = {name: [str(code) for code in column.attrs["codes"]] for name, column in group.items() if "codes" in column.attrs}
            require_timeline(case, columns, codes)
            return columns, codes
        except DAMAGE as error:
            raise damaged(case.file.path, error) from error


def require_timeline(case, columns, codes):
    require(len({len(column) for column in columns.values()}) == 1, "the columns of a timeline differ in length")
    for name in ("lane", "kind", "payload"):
        require(((columns[name] >= 0) & (columns[name] < len(codes[name]))).all(), f"a timeline with an unknown {name}")
    require(((columns["rank"] >= 0) & (columns["rank"] < case["ranks"])).all(), "a timeline with an unknown rank")
    require(all((numpy.isfinite(columns[name]) & (columns[name] < 1e9)).all() for name in ("begin", "end")), "a timeline without times")


def load(names):
    """All files, in the order given."""
    results = [read_result(name) for name in names]
    for number, result in enumerate(results):
        result.letter = letter_of(number) if len(results) > 1 else ""
    return results


def letter_of(number):
    """A, B, ..., Z, AA, AB, ..."""
    return (letter_of(number // 26 - 1) if number >= 26 else "") + chr(ord("A") + number % 26)
