# SPDX-License-Identifier: BSD-3-Clause
"""Result files for tests, made of a sample: other settings, statuses and texts, more runs."""

import pathlib

import h5py
import numpy
import pandas
from minitaw import record, sealed


def put(group, name, value, like):
    """A dataset of the type of another one, with its attributes."""
    is_text = record.is_text(like)
    data = numpy.asarray(value, object if is_text else like.dtype)
    made = group.create_dataset(name, data=data, dtype=h5py.string_dtype() if is_text else None)
    made.attrs.update(like.attrs)


def replace(group, name, value):
    put(group, name, value, group.pop(name))


def sealed_file(path, image):
    """Puts the seal in front of a file of HDF5."""
    pathlib.Path(path).write_bytes(sealed.seal_of(sealed.SCHEMA, [image]) + image)
    return str(path)


def image_of(path):
    return pathlib.Path(path).read_bytes()[sealed.SEAL_BYTES :]


def make(sample, target, runs, session=None):
    """Writes `target`. runs: [(run of the sample, {column: value}, {array of the run: value})];
    `session`: {entry: value} of the first one."""
    runs = [
        (base, {"case": number, "repetition": 0} | columns, arrays)
        for number, (base, columns, arrays) in enumerate(runs)
    ]
    with sealed.opened(sample) as source, h5py.File(target, "w") as file:
        file.attrs.update(source.attrs)
        source.copy("sessions", file)
        for name, value in (session or {}).items():
            replace(file["sessions/0000"], name, value)
        group = file.create_group("runs", track_order=True)
        group.attrs.update(source["runs"].attrs)
        for name, column in record.columns_of(source["runs"]).items():
            values = column.asstr()[:] if record.is_text(column) else column[:]
            put(group, name, [more.get(name, values[base]) for base, more, _ in runs], column)
        bad = sum(not text.startswith(b"VALID") for text in group["verdict"][:])
        group.attrs["verdict"] = f"INVALID: {bad} of {len(runs)} runs" if bad else "VALID"
        for number, (base, _, arrays) in enumerate(runs):
            source.copy(f"runs/{base:04}", group, f"{number:04}")
            for name, value in arrays.items():
                replace(group[f"{number:04}"], name, value)
    return sealed_file(target, pathlib.Path(target).read_bytes())


class Memory(record.File):
    """A file that was never written: its content is a dictionary of arrays for each run."""

    def array(self, run, name):
        return self.content[run].get(name, numpy.zeros(0))


def in_memory(rows, **about):
    """A table as load() has it. rows: [({column: value}, {array: value})]."""
    file = Memory(pathlib.Path("a.h5"), content=[arrays for _, arrays in rows], **about)
    runs = pandas.DataFrame([columns for columns, _ in rows])
    return record.judged(runs.assign(run=range(len(rows)), file=file, session=0))
