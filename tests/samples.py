# SPDX-License-Identifier: BSD-3-Clause
"""Results for tests, made of a sample: other settings, statuses and texts, more runs."""

import pathlib

import h5py
import numpy
import pandas
from minitaw import record, sealed
from programs import MEMORY_KINDS, SAMPLE

SEEN = record.load(SAMPLE)


def table_of(runs):
    """A run is what differs from the sample's run of the number `base`: {column or array: value}.
    Each is a case if it does not say otherwise."""
    rows = [
        SEEN.iloc[run.get("base", 0)].to_dict() | {"case": number, "repetition": 0} | run
        for number, run in enumerate(runs)
    ]
    return pandas.DataFrame(rows, columns=[*SEEN])


def put(group, name, value, like):
    """A dataset with the type and the attributes of another one."""
    group.create_dataset(name, data=value, dtype=like.dtype).attrs.update(like.attrs)


def replace(group, name, value):
    put(group, name, value, group.pop(name))


def resealed(image, schema=sealed.SCHEMA):
    """A result file of these bytes of HDF5."""
    return sealed.seal_of(schema, [image]) + image


def made(name, *runs, **session):
    """Writes a file of these runs. `session`: entries of the first session."""
    table = table_of(runs)
    with sealed.opened(SAMPLE) as source, h5py.File(name, "w") as file:
        source.copy("sessions", file)
        for entry, value in session.items():
            replace(file["sessions/0000"], entry, value)
        group = file.create_group("runs")
        group.attrs.update(source["runs"].attrs)
        for column, data in record.columns_of(source["runs"]).items():
            put(group, column, table[column].tolist(), data)
        for number, run in enumerate(runs):
            source.copy(f"runs/{run.get('base', 0):04}", group, f"{number:04}")
            for array in {*run} - {*SEEN, "base"}:
                replace(group[f"{number:04}"], array, run[array])
    path = pathlib.Path(name)
    path.write_bytes(resealed(path.read_bytes()))
    return name


class Memory(record.File):
    """A file that was never written: its content is its runs."""

    def labels(self, run, name):
        return MEMORY_KINDS

    def array(self, run, name):
        return self.content[run].get(name, numpy.zeros(0))


def in_memory(*runs, **about):
    """The table of a file of these runs, as load() has it."""
    file = Memory("a.h5", settings=SEEN.file[0].settings, content=[*runs], **about)
    return record.judged(table_of(runs).assign(run=range(len(runs)), file=file, session=0))
