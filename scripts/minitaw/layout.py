# SPDX-License-Identifier: BSD-3-Clause
"""What a result file may hold, and has to: checked once, before anybody reads a value of it
(docs/results.md).

A file from elsewhere is data. Walk looks at every object and refuses what leads out of the file,
loads code, or claims more than the file holds. Reader then gives out what layout.txt knows, with
the types and shapes that it says.
"""

import datetime
import functools
import math
import pathlib
import re
from dataclasses import dataclass, field

import numpy
from h5py import h5d, h5g, h5l, h5o, h5s, h5t

from .command import BadInput

DEEPEST, LEAST_BYTES = 4, 40  # of groups; that an object takes in a file, with its link
MOST_AT_ONCE = 64 << 20  # bytes of texts that one call of HDF5 may read
MOST_IN_ATTRIBUTE = 256  # texts
ANEW = "get the file anew from whoever measured it"
LONGEST_PART = 80  # characters of a name in a sentence
KINDS = {"text": "text", "time": "text", "real": "real", "amount": "real"}  # all others: integer
LEAST = {"count": 1, "natural": 0, "index": -1}
# Control characters could command the terminal on which a text is shown.
CONTROLS = {code: "\ufffd" for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160))}


class Refused(Exception):
    """A part of the file, and what is wrong with it."""


def refuse(part, what):
    name = part if len(part) <= LONGEST_PART else part[:LONGEST_PART] + "..."
    raise Refused(f"/{name.encode('unicode_escape').decode()} {what}")


# What lies in a file.


@dataclass
class Extent:
    kind: str  # "integer", "real", "text"; "group"
    shape: tuple  # of a group: how many members it has


def kind_of(stored):
    """The kind of a type of HDF5; none of what no result has."""
    kinds = {h5t.INTEGER: "integer", h5t.FLOAT: "real"}
    if stored.get_class() == h5t.STRING:
        return "text" if stored.is_variable_str() else None
    return kinds.get(stored.get_class()) if stored.get_size() <= 8 else None


class Walk:
    """Looks at all objects of a file, one after the other. Reads no value."""

    def __init__(self, file, size):
        self.size, self.claimed, self.found = size, 0, {}
        self.visit(h5g.open(file.id, b"/"), "", 0)

    def visit(self, group, path, depth):
        if depth > DEEPEST:
            refuse(path, "lies deeper than any part of a result")
        for name in group:
            at = f"{path}/{name.decode(errors='replace')}".lstrip("/")
            if group.links.get_info(name).type != h5l.TYPE_HARD:
                refuse(at, "is a link to another place")
            self.visit_object(h5o.open(group, name), at, depth)

    def visit_object(self, opened, at, depth):
        if h5o.get_info(opened).rc != 1:
            refuse(at, "is linked from several places")
        if len(self.found) >= self.size // LEAST_BYTES:
            refuse(at, "is one of more objects than the file has room for")
        if isinstance(opened, h5g.GroupID):
            self.found[at] = Extent("group", (len(opened),))
            self.visit(opened, at, depth + 1)
        elif isinstance(opened, h5d.DatasetID):
            self.found[at] = self.extent_of(opened, at)
        else:
            refuse(at, "is neither a group nor a dataset")

    def extent_of(self, dataset, at):
        options = dataset.get_create_plist()
        if options.get_external_count():
            refuse(at, "has its values in another file")
        if options.get_layout() == h5d.VIRTUAL:
            refuse(at, "has its values in other datasets")
        if options.get_nfilters():
            refuse(at, "is compressed or filtered")
        stored, space = dataset.get_type(), dataset.get_space()
        kind = kind_of(stored)
        if kind is None or space.get_simple_extent_type() == h5s.NULL:
            refuse(at, "holds neither numbers nor texts")
        values, each = space.get_simple_extent_npoints(), stored.get_size()
        self.claimed += values * each
        if values * each > dataset.get_storage_size() or self.claimed > self.size:
            refuse(at, f"claims {values} values, more than the file holds")
        return Extent(kind, space.get_simple_extent_dims())


# What a result has.


@dataclass
class Entry:
    """A line of layout.txt."""

    path: str  # in its group: of the summary, of a case, of a session
    type: str
    units: str
    axes: tuple  # (): a scalar
    of_valid: bool  # an array that a valid case has
    missing: str

    @property
    def kind(self):
        return KINDS.get(self.type, "integer")

    def default(self):
        """What stands for it in a file of an earlier program."""
        if self.axes not in ((), ("C",)):
            return numpy.zeros(0) if self.kind != "text" else []
        none = {"text": "", "real": math.nan}.get(self.kind)
        if self.missing == "none" or self.missing[0] == "~":
            return none
        return {"text": str, "real": float, "integer": int}[self.kind](self.missing)


@dataclass
class Layout:
    columns: dict = field(default_factory=dict)
    of_case: dict = field(default_factory=dict)
    of_session: dict = field(default_factory=dict)
    settings: list = field(default_factory=list)  # names of columns


@functools.cache
def layout():
    found = Layout()
    places = {
        "summary/": [(found.columns, "")],
        "provenance/": [(found.of_session, "")],
        "cases/NNNN/": [(found.of_case, "")],
        "setting/": [(found.columns, ""), (found.of_case, "settings/")],
    }
    for line in (
        pathlib.Path(__file__).with_name("layout.txt").read_text(encoding="utf-8").splitlines()
    ):
        if not line or line.startswith("#"):
            continue
        path, kind, units, shape, missing = line.split(None, 4)
        folder = next(folder for folder in places if path.startswith(folder))
        axes = () if shape == "-" else tuple(shape.rstrip("!").split(","))
        for entries, instead in places[folder]:
            name = path.removeprefix(folder)
            entries[instead + name] = Entry(
                instead + name, kind, units, () if instead else axes, shape.endswith("!"), missing
            )
        if folder == "setting/":
            found.settings.append(path.removeprefix(folder))
    return found


def plain_time(text):
    """Returns whether it is an ISO 8601 time with Z or an offset; seconds may have a fraction."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", text):
        return False
    try:
        return datetime.datetime.fromisoformat(text).year > 1970
    except ValueError:
        return False


class Reader:
    """A checked file. Its values come as numpy arrays, str, list of str, int and float."""

    def __init__(self, file, size):
        self.file, self.size = file, size
        self.objects = Walk(file, size).found
        self.sessions = 1 + self.count_numbered("provenance/resumed", 1)
        self.columns, self.length = layout().columns, self.list_length("summary/case")
        if self.count_numbered("cases", 0) != self.length:
            refuse(
                "cases", f"has {self.objects['cases'].shape[0]} cases, the summary {self.length}"
            )

    # Shapes.

    def has(self, path):
        return path in self.objects

    def count_numbered(self, path, first):
        """How many members a group has, which must be named by these numbers."""
        if not self.has(path) or self.objects[path].kind != "group":
            refuse(path, "is missing")
        (count,) = self.objects[path].shape
        for number in range(first, first + count):
            if not self.has(f"{path}/{number:04}"):
                refuse(f"{path}/{number:04}", "is missing")
        return count

    def shape_of(self, path, entry, needed=False):
        """None of what may be missing, and is."""
        if not self.has(path):
            if needed or entry.missing == "required":
                refuse(path, "is missing")
            return None
        found = self.objects[path]
        if found.kind != entry.kind:
            refuse(path, f"is no dataset of type {entry.type}")
        if len(found.shape) != len(entry.axes):
            refuse(path, f"has {len(found.shape)} dimensions, not {len(entry.axes)}")
        return found.shape

    def list_length(self, path):
        return self.shape_of(path, Entry(path, "natural", "1", ("*",), False, "required"))[0]

    def check(self, path, entry, sizes, needed=False):
        """Returns whether there is something to read."""
        shape = self.shape_of(path, entry, needed)
        if shape is None or 0 in shape:
            return shape is not None
        for axis, (name, length) in enumerate(zip(entry.axes, shape)):
            expected = str(sizes.get(name, name))
            if expected != "*" and str(length) not in expected.split("/"):
                refuse(
                    path,
                    f"has the length {length} along axis {axis}, "
                    f"not {expected.replace('/', ' or ')}",
                )
        return True

    # Values.

    def texts(self, path):
        """Some at a time: a file can name one long text many times. Those that a program has
        written are together at most as long as the file."""
        dataset, step, total = self.file[path], max(1, MOST_AT_ONCE // max(1, self.size)), 0
        found = []
        for first in range(0, dataset.size, step):
            part = (
                dataset.asstr(errors="replace")[first : first + step]
                if dataset.ndim
                else [dataset.asstr(errors="replace")[()]]
            )
            found += [text.translate(CONTROLS) for text in part]
            total += sum(map(len, part))
            if total > self.size:
                refuse(path, "holds more text than the file has bytes")
        return found if dataset.ndim else found[0]

    def read(self, path, entry):
        if entry.kind == "text":
            found = self.texts(path)
            if entry.type == "time" and not all(
                text == "" or plain_time(text)
                for text in ([found] if isinstance(found, str) else found)
            ):
                refuse(path, "is no time such as 2026-07-18T09:30:00Z")
            return found
        values = self.file[path][()]
        if entry.type in LEAST and values.dtype.kind == "i" and (values < LEAST[entry.type]).any():
            refuse(path, f"has {values.min()}, the least that there can be is {LEAST[entry.type]}")
        if entry.type == "amount" and ((values < 0) | numpy.isinf(values)).any():
            refuse(path, "has a negative or infinite value")
        return values if entry.axes else values.item()

    def attribute(self, path, name, default):
        """A text or a list of texts."""
        attributes = self.file[path].attrs
        if name not in attributes:
            return default
        stored = attributes.get_id(name)
        if (
            kind_of(stored.get_type()) != "text"
            or math.prod(stored.shape) > MOST_IN_ATTRIBUTE
            or len(stored.shape) > 1
        ):
            refuse(f"{path}@{name}", "is no text, or a list of too many")
        found = attributes[name]
        texts = [found] if isinstance(found, str) else list(found)
        texts = [
            (text.decode(errors="replace") if isinstance(text, bytes) else text).translate(CONTROLS)
            for text in texts
        ]
        return texts if stored.shape else texts[0]

    # Parts of a result.

    def column(self, entry):
        """Of all rows; None where an earlier program wrote none."""
        path = f"summary/{entry.path}"
        if not self.has(path) and entry.missing[0] == "~":
            path = f"summary/{entry.missing[1:]}"
        if not self.check(path, entry, {"C": self.length}):
            return None
        values = self.read(path, entry)
        if len(values) != self.length:
            refuse(path, "has no value for each case")
        return values if isinstance(values, list) else values.tolist()

    def rows(self):
        """The summary: {column: value} of each case."""
        columns = {}
        for name, entry in self.columns.items():
            values = self.column(entry)
            if values is None:
                values = (
                    columns[entry.missing[1:]]
                    if entry.missing[0] == "="
                    else [entry.default()] * self.length
                )
            columns[name] = values
        if columns["case"] != list(range(self.length)):
            refuse("summary/case", "does not count up")
        return [dict(zip(columns, cells)) for cells in zip(*columns.values())]

    def session(self, number):
        folder = f"provenance/resumed/{number:04}" if number else "provenance"
        sizes, found = {}, {}
        for name, entry in layout().of_session.items():
            path = f"{folder}/{name}"
            if self.has(path) and entry.axes == ("J",):
                sizes.setdefault("J", self.shape_of(path, entry)[0] if entry.axes else 0)
            if self.check(path, entry, sizes):
                found[name] = self.read(path, entry)
                if entry.axes == ("J",) and len(found[name]) != sizes["J"]:
                    refuse(path, f"is of {len(found[name])} ranks, the session had {sizes['J']}")
        return found

    def case(self, row, sessions, names):
        """The datasets of these names of a case, all of which are checked."""
        folder = f"cases/{row['case']:04}"
        entries, sizes = layout().of_case, self.sizes_of(folder, row, sessions)
        has_timeline = self.has(f"{folder}/timeline")
        there = [
            name
            for name, entry in entries.items()
            if self.check(
                f"{folder}/{name}", entry, sizes, has_timeline and name.startswith("timeline/")
            )
        ]
        self.compare_with_row(folder, row, there)
        valid = row["verdict"].startswith("VALID")
        if empty := [
            name
            for name in there
            if valid and entries[name].of_valid and 0 in self.objects[f"{folder}/{name}"].shape
        ]:
            refuse(f"{folder}/{empty[0]}", "is empty, but the case is said to be valid")
        found = {
            name: self.read(f"{folder}/{name}", entries[name]) for name in there if name in names
        }
        if (found["repetition"] >= max(1, sizes["R"])).any():
            refuse(
                f"{folder}/repetition",
                f"has {found['repetition'].max()}, there are {sizes['R']} repetitions",
            )
        if any(
            begin and end and begin > end
            for begin, end in zip(found.get("window/begin", []), found.get("window/end", []))
        ):
            refuse(f"{folder}/window/end", "is before the begin")
        if valid:
            self.check_valid(folder, row, found)
        return found

    def sizes_of(self, folder, row, sessions):
        """Lengths of the axes of a case."""
        if row["session"] >= len(sessions):
            refuse(
                "summary/session", f"has {row['session']}, the file has {len(sessions)} sessions"
            )
        ranks = next(
            (
                len(sessions[row["session"]][name])
                for name in ("hosts", "nodes", "devices")
                if name in sessions[row["session"]]
            ),
            0,
        )
        if ranks and row["ranks"] > ranks:
            refuse(f"{folder}/settings/ranks", f"is {row['ranks']}, the job had {ranks} ranks")
        if (
            not re.fullmatch(r"[1-9]\d{0,8}(\+[1-9]\d{0,8})*", row["groups"])
            or sum(map(int, row["groups"].split("+"))) != row["ranks"]
        ):
            refuse(
                f"{folder}/settings/groups",
                f'is "{row["groups"][:40]}", which is not {row["ranks"]} ranks',
            )
        sizes = {
            "P": row["ranks"],
            "L": row["layers"],
            "K": self.list_length(f"{folder}/repetition"),
            "R": self.list_length(f"{folder}/position"),
        }
        return sizes | (
            {"E": self.list_length(f"{folder}/timeline/rank")}
            if self.has(f"{folder}/timeline/rank")
            else {}
        )

    def compare_with_row(self, folder, row, there):
        """What the summary and a case share must be the same."""
        for name in there:
            entry = layout().of_case[name]
            column = name.removeprefix("settings/").removeprefix("verification/")
            if entry.axes or column not in row or (column == "blame" or "/" in column):
                continue
            value = self.read(f"{folder}/{name}", entry)
            if value != row[column] and (value == value or row[column] == row[column]):
                refuse(f"{folder}/{name}", "is not what /summary says of the case")

    def check_valid(self, folder, row, found):
        """A case is not valid because its file says so: what that follows from must be there."""
        samples = found["seconds"].max(axis=1)
        planned = self.read(f"{folder}/bytes/planned", layout().of_case["bytes/planned"])
        for holds, what in (
            (row["status"] == "ok", "the status is not ok"),
            (len(samples) >= 3, "there are too few steps"),
            (len(found["position"]) >= row["repeats"], "repetitions are missing"),
            (
                numpy.array_equal(planned, found["bytes/counted"]),
                "the bytes counted are not those planned",
            ),
            (
                abs(numpy.median(samples) - row["median_s"]) <= 1e-9 * row["median_s"],
                "the median is not that of the steps",
            ),
            (row["tokens_per_s"] > 0, "there is no rate"),
        ):
            if not holds:
                refuse(f"{folder}/verdict", f"says VALID, but {what}")

    def timeline(self, number):
        """{column: list}, codes replaced by their names."""
        found, sizes = {}, {"E": self.list_length(f"cases/{number:04}/timeline/rank")}
        for name, entry in layout().of_case.items():
            if name.startswith("timeline/"):
                path = f"cases/{number:04}/{name}"
                self.check(path, entry, sizes, needed=True)
                values, codes = self.read(path, entry).tolist(), self.attribute(path, "codes", None)
                if codes is not None and any(value >= len(codes) for value in values):
                    refuse(path, f"has {max(values)}, there are {len(codes)} names")
                if entry.kind == "real" and not all(map(math.isfinite, values)):
                    refuse(path, "has a time that is none")
                found[name.removeprefix("timeline/")] = (
                    [codes[value] for value in values] if codes is not None else values
                )
        return found

    def screening(self):
        """Of `minitaw screen`: {} if there is none."""
        if not self.has("screen"):
            return {}
        words = {
            name: self.read(f"screen/{name}", entry)
            for name, entry in SCREEN_WORDS.items()
            if self.check(f"screen/{name}", entry, {}, needed=True)
        }
        for name, entry in SCREEN_SAID.items():
            path = f"screen/{name}"
            words[name] = self.read(path, entry) if self.check(path, entry, {}) else ""
        ranks, measured = len(words["node_of_rank"]), {}
        for path, extent in self.objects.items():
            if path.startswith("screen/") and extent.kind == "real" and len(extent.shape) == 3:
                self.check(
                    path, Entry(path, "real", "", ("*", "J", "*"), False, "required"), {"J": ranks}
                )
                measured[path.removeprefix("screen/").replace("_", " ")] = (
                    self.attribute(path, "units", "1"),
                    self.file[path][()],
                )
        return words | {"measured": measured}


SCREEN_WORDS = {
    "settings": Entry("settings", "text", "text", (), False, "required"),
    "verdict": Entry("verdict", "text", "text", (), False, "required"),
    "culprits": Entry("culprits", "text", "text", ("*",), False, "required"),
    "node_of_rank": Entry("node_of_rank", "natural", "1", ("*",), False, "required"),
}

# What a screening says of itself; earlier programs said nothing.
SCREEN_SAID = {
    name: Entry(name, "text", "text", (), False, "none")
    for name in ("judged", "sure", "not_seen", "next")
}


def guarded(name, read):
    """What read() returns. A part that is wrong becomes a sentence that names the file."""
    try:
        return read()
    except Refused as error:
        raise BadInput(f"{name} is damaged, or no result of miniTaw: {error}; {ANEW}") from error
    except (
        OSError,
        RuntimeError,
        KeyError,
        ValueError,
        TypeError,
        OverflowError,
        MemoryError,
    ) as error:  # of HDF5, about what no program has written
        raise BadInput(
            f"{name} is damaged: HDF5 cannot read it ({' '.join(str(error).split())[:120]}); {ANEW}"
        ) from error
