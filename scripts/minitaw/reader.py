# SPDX-License-Identifier: BSD-3-Clause
"""Gives out what layout.txt knows of a file, with the types and shapes that it says, once
walk.py has found no harm in the file (docs/results.md)."""

import datetime
import math
import re

import numpy

from .command import BadInput
from .layout import Entry, layout
from .walk import Refused, Walk, kind_of, refuse

MOST_AT_ONCE = 64 << 20  # bytes of texts that one call of HDF5 may read
MOST_IN_ATTRIBUTE = 256  # texts
LEAST_STEPS = 3  # timed ones of a valid case
MEDIAN_TOLERANCE = 1e-9  # relative
LEAST = {"count": 1, "natural": 0, "index": -1}
GROUPS = re.compile(r"[1-9]\d{0,8}(\+[1-9]\d{0,8})*")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
# Control characters could command the terminal on which a text is shown.
CONTROLS = {code: "\ufffd" for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160))}
RENEW = "get the file again from whoever measured it"
# Of HDF5, about what no program has written.
OF_HDF5 = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError)


def guarded(name, read):
    """What read() returns. A part that is wrong becomes a sentence that names the file."""
    try:
        return read()
    except Refused as error:
        raise BadInput(f"{name} is damaged, or no result of miniTaw: {error}; {RENEW}") from error
    except OF_HDF5 as error:
        said = " ".join(str(error).split())[:120]
        raise BadInput(f"{name} is damaged: HDF5 cannot read it ({said}); {RENEW}") from error


def plain_time(text):
    """Returns whether it is an ISO 8601 time with Z or an offset; seconds may have a fraction."""
    if not TIME.fullmatch(text):
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
        self.length = self.list_length("summary/case")
        cases = self.count_numbered("cases", 0)
        if cases != self.length:
            refuse("cases", f"has {cases} cases, the summary {self.length}")

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
            if needed or entry.required:
                refuse(path, "is missing")
            return None
        found = self.objects[path]
        if found.kind != entry.kind:
            refuse(path, f"is no dataset of type {entry.type}")
        if len(found.shape) != len(entry.axes):
            refuse(path, f"has {len(found.shape)} dimensions, not {len(entry.axes)}")
        return found.shape

    def list_length(self, path):
        return self.shape_of(path, Entry(path, "natural", axes=("*",)))[0]

    def check(self, path, entry, sizes, needed=False):
        """Returns whether there is something to read."""
        shape = self.shape_of(path, entry, needed)
        if shape is None or 0 in shape:
            return shape is not None
        for axis, (name, length) in enumerate(zip(entry.axes, shape)):
            expected = str(sizes.get(name, name))
            if expected not in ("*", str(length)):
                refuse(path, f"has the length {length} along axis {axis}, not {expected}")
        return True

    # Values.

    def texts(self, path):
        """Some at a time: a file can name one long text many times. Those that a program has
        written are together at most as long as the file."""
        dataset = self.file[path]
        stored = dataset.asstr(errors="replace")
        step = max(1, MOST_AT_ONCE // max(1, self.size))
        found, total = [], 0
        for first in range(0, dataset.size, step):
            part = stored[first : first + step] if dataset.ndim else [stored[()]]
            found += [text.translate(CONTROLS) for text in part]
            total += sum(map(len, part))
            if total > self.size:
                refuse(path, "holds more text than the file has bytes")
        return found if dataset.ndim else found[0]

    def read(self, path, entry):
        if entry.kind == "text":
            return self.read_texts(path, entry)
        values = self.file[path][()]
        least = LEAST.get(entry.type)
        if least is not None and values.dtype.kind == "i" and (values < least).any():
            refuse(path, f"has {values.min()}, the least that there can be is {least}")
        if entry.type == "amount" and ((values < 0) | numpy.isinf(values)).any():
            refuse(path, "has a negative or infinite value")
        return values if entry.axes else values.item()

    def read_texts(self, path, entry):
        found = self.texts(path)
        if entry.type == "time":
            times = [found] if isinstance(found, str) else found
            if not all(text == "" or plain_time(text) for text in times):
                refuse(path, "is no time such as 2026-07-18T09:30:00Z")
        return found

    def attribute(self, path, name, default):
        """A text or a list of texts."""
        attributes = self.file[path].attrs
        if name not in attributes:
            return default
        stored = attributes.get_id(name)
        is_text = kind_of(stored.get_type()) == "text"
        if not is_text or math.prod(stored.shape) > MOST_IN_ATTRIBUTE or len(stored.shape) > 1:
            refuse(f"{path}@{name}", "is no text, or a list of too many")
        found = attributes[name]
        texts = []
        for text in [found] if isinstance(found, str) else found:
            text = text.decode(errors="replace") if isinstance(text, bytes) else text
            texts.append(text.translate(CONTROLS))
        return texts if stored.shape else texts[0]

    # Parts of a result.

    def column(self, entry):
        """Of all rows."""
        path = f"summary/{entry.path}"
        self.check(path, entry, {"C": self.length}, needed=True)
        values = self.read(path, entry)
        if len(values) != self.length:
            refuse(path, "has no value for each case")
        return values if isinstance(values, list) else values.tolist()

    def rows(self):
        """The summary: {column: value} of each case."""
        columns = {}
        for name, entry in layout().columns.items():
            columns[name] = self.column(entry)
        if columns["case"] != list(range(self.length)):
            refuse("summary/case", "does not count up")
        return [dict(zip(columns, cells)) for cells in zip(*columns.values())]

    def session(self, number):
        folder = f"provenance/resumed/{number:04}" if number else "provenance"
        sizes, found = {}, {}
        for name, entry in layout().of_session.items():
            path = f"{folder}/{name}"
            of_ranks = entry.axes == ("J",)
            if of_ranks and self.has(path):
                sizes.setdefault("J", self.shape_of(path, entry)[0])
            if not self.check(path, entry, sizes):
                continue
            found[name] = self.read(path, entry)
            if of_ranks and len(found[name]) != sizes["J"]:
                refuse(path, f"is of {len(found[name])} ranks, the session had {sizes['J']}")
        return found

    def case(self, row, sessions, names):
        """The datasets of these names of a case, all of which are checked."""
        folder = f"cases/{row['case']:04}"
        sizes = self.sizes_of(folder, row, sessions)
        has_timeline = self.has(f"{folder}/timeline")
        there = {}
        for name, entry in layout().of_case.items():
            needed = has_timeline and name.startswith("timeline/")
            if self.check(f"{folder}/{name}", entry, sizes, needed):
                there[name] = entry
        valid = row["verdict"].startswith("VALID")
        for name, entry in there.items():
            path = f"{folder}/{name}"
            if valid and entry.of_valid and 0 in self.objects[path].shape:
                refuse(path, "is empty, but the case is said to be valid")
        found = {}
        for name, entry in there.items():
            if name in names:
                found[name] = self.read(f"{folder}/{name}", entry)
        check_repetitions(folder, found, sizes["R"])
        if valid:
            self.check_valid(folder, row, found)
        return found

    def sizes_of(self, folder, row, sessions):
        """Lengths of the axes of a case."""
        if row["session"] >= len(sessions):
            what = f"has {row['session']}, the file has {len(sessions)} sessions"
            refuse("summary/session", what)
        session = sessions[row["session"]]
        lists = [session[name] for name in ("hosts", "nodes", "devices") if name in session]
        ranks = len(lists[0]) if lists else 0
        if ranks and row["ranks"] > ranks:
            refuse("summary/ranks", f"has {row['ranks']}, the job had {ranks} ranks")
        groups = row["groups"]
        if not GROUPS.fullmatch(groups) or sum(map(int, groups.split("+"))) != row["ranks"]:
            what = f'has "{groups[:40]}", which is not {row["ranks"]} ranks'
            refuse("summary/groups", what)
        sizes = {
            "P": row["ranks"],
            "K": self.list_length(f"{folder}/repetition"),
            "R": self.list_length(f"{folder}/position"),
        }
        events = f"{folder}/timeline/rank"
        return sizes | ({"E": self.list_length(events)} if self.has(events) else {})

    def check_valid(self, folder, row, found):
        """A case is not valid because its file says so: what that follows from must be there."""
        samples = found["seconds"].max(axis=1)
        planned = self.read(f"{folder}/bytes/planned", layout().of_case["bytes/planned"])
        off = abs(numpy.median(samples) - row["median_s"])
        same_bytes = numpy.array_equal(planned, found["bytes/counted"])
        for holds, what in (
            (row["status"] == "ok", "the status is not ok"),
            (len(samples) >= LEAST_STEPS, "there are too few steps"),
            (len(found["position"]) >= row["repeats"], "repetitions are missing"),
            (same_bytes, "the bytes counted are not those planned"),
            (off <= MEDIAN_TOLERANCE * row["median_s"], "the median is not that of the steps"),
            (row["tokens_per_s"] > 0, "there is no rate"),
        ):
            if not holds:
                refuse(folder, f"is VALID in the summary, but {what}")

    def timeline(self, number):
        """{column: list}, codes replaced by their names."""
        folder = f"cases/{number:04}/"
        sizes = {"E": self.list_length(f"{folder}timeline/rank")}
        found = {}
        for name, entry in layout().of_case.items():
            if name.startswith("timeline/"):
                self.check(folder + name, entry, sizes, needed=True)
                found[name.removeprefix("timeline/")] = self.event_column(folder + name, entry)
        return found

    def event_column(self, path, entry):
        values = self.read(path, entry).tolist()
        if entry.kind == "real" and not all(map(math.isfinite, values)):
            refuse(path, "has a time that is none")
        codes = self.attribute(path, "codes", None)
        if codes is None:
            return values
        if any(value >= len(codes) for value in values):
            refuse(path, f"has {max(values)}, there are {len(codes)} names")
        return [codes[value] for value in values]


def check_repetitions(folder, found, repetitions):
    """Every step belongs to a repetition, none of which ends before it begins."""
    of_steps = found["repetition"]
    if (of_steps >= max(1, repetitions)).any():
        what = f"has {of_steps.max()}, there are {repetitions} repetitions"
        refuse(f"{folder}/repetition", what)
    for begin, end in zip(found.get("window/begin", []), found.get("window/end", [])):
        if begin and end and begin > end:
            refuse(f"{folder}/window/end", "is before the begin")
