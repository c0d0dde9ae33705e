# SPDX-License-Identifier: BSD-3-Clause
"""Result files in memory (docs/results.md), and the words that all commands use of them.

A file begins with a seal: the length and the CRC-32 of the HDF5 file behind it. It is checked
before HDF5 sees a byte, so that a truncated or damaged file is refused in one sentence and never
crashes a reader. Then layout.py checks its parts.
"""

import functools
import math
import os
import pathlib
import re
import stat
import string
import zlib
from dataclasses import dataclass, field

os.environ["HDF5_PLUGIN_PRELOAD"] = "::"  # HDF5 loads no foreign code, whatever a file asks for

import h5py  # noqa: E402
import numpy  # noqa: E402

from .command import BadInput, plural  # noqa: E402
from .layout import ANEW, Reader, guarded, layout, refuse  # noqa: E402

MODEL = ["layers", "hidden", "heads", "kv_heads", "vocab", "ffn"]  # rates of others do not compare
SCHEMA, SEAL_BYTES, SEAL_WORDS = 4, 512, b"miniTaw result, schema "
DAMAGED = (
    "damaged: truncated, or changed after it was written (length and checksum differ from its "
    f"seal); {ANEW}"
)
# Control characters may be in texts of a file, and nowhere in a page or in XML, not even escaped.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")
# Datasets of a case that are read.
DATASETS = {"seconds", "repetition", "position", "losses", "window/begin", "window/end",
            "memory/measured", "bytes/counted", "idle_ticks", "device/clock", "device/memory_clock",
            "device/temperature", "device/power", "device/throttle", "device/energy"}  # fmt: skip


def seal_of(schema, image):
    """The 512 bytes in front of these bytes of an HDF5 file."""
    line = b"%s%d, %d bytes, crc32 %08x\n" % (SEAL_WORDS, schema, len(image), zlib.crc32(image))
    return line.ljust(SEAL_BYTES - 1) + b"\n"


def read_bytes(name):
    """A file or what comes out of a pipe; a device never ends."""
    try:
        with open(name, "rb") as file:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
                raise BadInput(f"{name} is a device, not a file")
            return file.read()
    except (OSError, MemoryError) as error:
        raise BadInput(
            f"{name} cannot be read: {getattr(error, 'strerror', None) or 'it does not fit into memory'}"
        ) from error


def require_seal(name, seal):
    """Returns the length that the seal of a file gives for the rest of it."""
    schema = re.match(SEAL_WORDS + rb"(\d{1,9})", seal)
    if not schema:
        raise BadInput(
            f"{name} is not a miniTaw result, or has lost its seal, the first {SEAL_BYTES} bytes"
        )
    if int(schema[1]) != SCHEMA:
        raise BadInput(
            f"{name} has schema version {int(schema[1])}, these scripts read {SCHEMA}; use those of the miniTaw that wrote it"
        )
    length = re.match(SEAL_WORDS + rb"\d+, (\d{1,18}) bytes, crc32 [0-9a-f]{8}\n", seal)
    return int(length[1]) if length and len(seal) == SEAL_BYTES else -1


def read_sealed(name):
    """The bytes of a result file, if it has the length that its seal says."""
    try:
        with open(name, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadInput(f"{name} is not a file")
            seal = file.read(SEAL_BYTES)
            if require_seal(name, seal) != os.fstat(file.fileno()).st_size - SEAL_BYTES:
                raise BadInput(f"{name} is {DAMAGED}")
            return seal + file.read()
    except (OSError, MemoryError) as error:
        raise BadInput(
            f"{name} cannot be read: "
            f"{getattr(error, 'strerror', None) or 'it does not fit into memory'}"
        ) from error


def unseal(name, content):
    """The HDF5 part of a file."""
    seal, image = content[:SEAL_BYTES], content[SEAL_BYTES:]
    require_seal(name, seal)
    if seal_of(SCHEMA, image) != seal:
        raise BadInput(f"{name} is {DAMAGED}")
    return image


def opened(name, content=None):
    """The file behind the seal as h5py.File, read only, and its size, as yet unchecked."""
    image = unseal(name, read_sealed(name) if content is None else content)
    try:
        return h5py.File(h5py.h5f.open_file_image(image), "r"), len(image)
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"{name} is damaged: HDF5 cannot open it") from error


def open_result(name, content=None):
    """An open h5py.File, read only, of a result file, or of its bytes. Raises BadInput for a file
    that is none or damaged."""
    file, size = opened(name, content)
    guarded(name, lambda: Reader(file, size))
    return file


def reading(name, content, read):
    """What read(reader) returns of a result file, or of its bytes. Raises as open_result()."""
    file, size = opened(name, content)
    with file:
        return guarded(name, lambda: read(Reader(file, size)))


@dataclass
class Case:
    """One case. Arrays have length 0 where nothing was measured."""

    file: "Result"
    row: dict  # of /summary
    data: dict = field(default_factory=dict)  # datasets of the case by path, "memory/measured"
    has_timeline: bool = False

    def __getitem__(self, name):
        """A column of the summary; NaN if predictions have none of that name."""
        return self.row.get(name, math.nan)

    def get(self, name):
        """A dataset of the case; empty if there is none."""
        return self.data.get(name, numpy.zeros(0))

    @property
    def label(self):
        """The number, with the letter of its file where there are several."""
        return f"{self.file.letter}{self['case']}"

    @property
    def session(self):
        """Provenance of the session that measured it."""
        return self.file.sessions[self["session"]]

    @property
    def valid(self):
        return self["verdict"].startswith("VALID")

    @property
    def doubt(self):
        """What the verdict says in brackets behind VALID: noisy, no warm-up, or both."""
        return self["verdict"].removeprefix("VALID").strip(" ()") if self.valid else ""

    @functools.cached_property
    def samples(self):
        """Seconds of each timed step: the slowest rank's."""
        seconds = self.get("seconds")
        return seconds.max(axis=1) if seconds.size else numpy.zeros(0)

    @property
    def repetition(self):
        """Of each sample."""
        return self.get("repetition")

    @property
    def tokens(self):
        """Of a step, all ranks together."""
        return round(self["tokens_per_s"] * self["median_s"]) if self["median_s"] > 0 else 0

    def traffic(self):
        """Counted bytes per step by kind, between groups and inside, none of a case that failed
        before; a valid case has the planned ones."""
        matrix, sizes = self.get("bytes/counted"), [int(size) for size in self["groups"].split("+")]
        if not matrix.size:
            return [numpy.zeros(4, int), numpy.zeros(4, int)]
        group = numpy.repeat(numpy.arange(len(sizes)), sizes)
        same = group[:, None] == group[None, :]
        return [matrix[chosen].sum(axis=0) for chosen in (~same, same)]


@dataclass
class Result:
    """A file: its sessions (provenance) and cases, and what the columns of its summary are."""

    path: pathlib.Path
    letter: str = ""  # empty where there is one file only
    units: dict = field(default_factory=dict)  # of each column, in the order of the table
    settings: list = field(default_factory=list)  # columns that say what was asked for
    sessions: list = field(default_factory=list)
    cases: list = field(default_factory=list)
    verdict: str = ""  # "VALID", "VALID (doubt)" or "INVALID: reason" of all cases
    merits: list = field(default_factory=list)  # figure of merit of each model, in words
    stands_out: list = field(
        default_factory=list
    )  # sentences on ranks and links, as `minitaw show` prints them
    screening: dict = field(
        default_factory=dict
    )  # of `minitaw screen`: verdict, culprits, and {name: (units, [round, rank, partner])}

    def closing_text(self):
        """Figures of merit and verdict, as `minitaw show` prints them."""
        return (
            "".join(f"figure of merit: {merit}\n" for merit in self.merits)
            + f"RESULT: {self.verdict}\n"
        )


def verdict_of(cases):
    """Of all cases, as a program says it that wrote none into the file."""
    bad = [case for case in cases if not case.valid]
    doubtful = [case for case in cases if case.doubt]
    if not cases:
        return "INVALID: no case was run"
    some = bad or doubtful
    if not some:
        return "VALID"
    first = f"first case {some[0]['case']} ({describe(some[0])})"
    text = f"{len(some)} of {plural(len(cases), 'case')}, {first}: "
    return f"INVALID: {text}{reason_of(some[0])}" if bad else f"VALID ({text}{some[0].doubt})"


def merit_of(case):
    """Of the fastest case of a model, likewise."""
    if case is None:
        return "none"
    doubt = f", {case.doubt}" if case.doubt else ""
    return f"{case['tokens_per_s']:.6g} tokens/s ({describe(case)}){doubt}"


def closing_of(reader, cases):
    """Verdict and figures of merit as the file says them, if they follow from its cases."""
    verdict, models = verdict_of(cases), {}
    for case in cases:
        models.setdefault(tuple(case[name] for name in MODEL), []).append(case)
    merits = [merit_of(fastest(some)) for some in models.values()] or ["none"]
    said = reader.attribute("summary", "verdict", verdict)
    best = reader.attribute("summary", "figures_of_merit", merits)

    def kind(text):
        """VALID, VALID with a doubt, or INVALID."""
        return re.match("(VALID( [(]|$))?", text)[0]

    def is_same(told, found):
        """The same rate of the same schedule, with its doubt; other settings may stand there."""
        doubt = found.rpartition("), ")[2] if "), " in found else ""
        return told.startswith(found.partition(", ")[0]) and doubt in told

    has_types = isinstance(said, str) and isinstance(best, list)
    if has_types and kind(said) == kind(verdict) and len(best) == len(merits):
        if all(is_same(told, found) for told, found in zip(best, merits)):
            return said, best
    return refuse("summary", "has another verdict or figure of merit than follows from its cases")


def read_result(result, reader):
    """The sessions, the cases, and what the file says of all of them."""
    rows, sessions = reader.rows(), [reader.session(number) for number in range(reader.sessions)]
    result.units = {name: entry.units for name, entry in layout().columns.items()}
    result.settings = list(layout().settings)
    result.sessions = sessions
    result.cases = [
        Case(
            result,
            row,
            reader.case(row, sessions, DATASETS),
            reader.has(f"cases/{row['case']:04}/timeline"),
        )
        for row in rows
    ]
    result.verdict, result.merits = closing_of(reader, result.cases)
    result.stands_out = reader.attribute("summary", "stands_out", [])
    if not isinstance(result.stands_out, list):
        refuse("summary@stands_out", "is no list")
    result.screening = reader.screening()
    return result


def load(name, content=None, letter=""):
    """A result from a file, or from its bytes. Raises BadInput for a file that is missing, no
    result, damaged or of another schema."""
    return reading(
        str(name), content, lambda reader: read_result(Result(pathlib.Path(name), letter), reader)
    )


def load_all(names):
    """All files, in the order given; with letters (A ... Z, A1 ...) where there are several."""
    letters = (
        [
            f"{string.ascii_uppercase[number % 26]}{number // 26 or ''}"
            for number in range(len(names))
        ]
        if len(names) > 1
        else [""]
    )
    return [load(name, letter=letter) for name, letter in zip(names, letters)]


def read_timeline(case):
    """Columns of the timeline of a case, codes replaced by their names: {name: list}."""
    return reading(case.file.path, None, lambda reader: reader.timeline(case["case"]))


# What the provenance of a session holds, in the words of a reader.
FACTS = {
    "version": "miniTaw",
    "git_hash": "commit",
    "build_type": "build type",
    "compiler": "compiler",
    "compiler_flags": "compiler flags",
    "kokkos": "Kokkos",
    "mpi": "MPI",
    "nccl": "NCCL",
    "cuda": "CUDA",
    "driver": "device driver",
    "libraries": "libraries",
    "deck_path": "deck",
    "overrides": "--set",
    "links": "shaped links",
}
NODE_FACTS = {"cpu": "processor ", "os": "system "}


def texts_of(session, name):
    """One or more, as a list."""
    value = session.get(name, [])
    return [value] if isinstance(value, str) else [str(one) for one in value]


# Which cases the pages name.


def describe(case):
    return f"{case['schedule']}, {plural(case['ranks'], 'rank')} in groups {case['groups']}, {plural(case['seq'], 'token')}"


def fastest(cases):
    """The valid case of the largest rate."""
    return max(
        (case for case in cases if case.valid), key=lambda case: case["tokens_per_s"], default=None
    )


def quietest(cases):
    """The fastest case without a doubt."""
    return fastest(case for case in cases if not case.doubt)


def reason_of(case):
    """Why a case is not valid, without the word that says so."""
    return case["verdict"].removeprefix("INVALID: ")


def cell_text(value):
    """A cell without its unit; as many digits as tell the number from any other."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def exists(value):
    return value is not None and not (isinstance(value, float) and math.isnan(value))
