# SPDX-License-Identifier: BSD-3-Clause
"""What a foreign file may have instead of a dataset: functions of file, path and the entry of
layout.txt."""

import dataclasses
from collections.abc import Callable

import h5py
import numpy

CANARY = "what-only-its-owner-may-read"  # in a file beside the results
ROWS = 2**31
TEXT = h5py.string_dtype()


def replaced(file, path, **options):
    """A dataset instead of one."""
    del file[path]
    return file.create_dataset(path, **options)


def removed(file, path, entry):
    del file[path]


def as_group(file, path, entry):
    del file[path]
    file.create_group(path)


def link_to(make):
    def change(file, path, entry):
        del file[path]
        file[path] = make(path)

    return change


def second_link(file, path, entry):
    other = "summary/first_loss" if path != "summary/first_loss" else "summary/last_loss"
    del file[path]
    file[path] = file[other]


def other_type(file, path, entry):
    shape = file[path].shape
    text = entry.kind == "text"
    replaced(
        file,
        path,
        data=numpy.ones(shape) if text else numpy.full(shape, "x", object),
        dtype=float if text else TEXT,
    )


def reference(file, path, entry):
    replaced(file, path, data=file["cases"].ref, dtype=h5py.ref_dtype)


def compound(file, path, entry):
    replaced(file, path, data=numpy.zeros(file[path].shape, [("a", int), ("b", float)]))


def fixed_text(file, path, entry):
    replaced(file, path, data=numpy.full(file[path].shape, b"x" * 9, "S9"))


def more_axes(file, path, entry):
    values = file[path][()]
    dtype = file[path].dtype
    replaced(
        file,
        path,
        data=numpy.broadcast_to(
            numpy.asarray(values, object if entry.kind == "text" else None), (2, *file[path].shape)
        ),
        dtype=dtype,
    )


def claimed(**options):
    """An extent of 2^31 rows that take no bytes."""

    def change(file, path, entry):
        dtype, axes = file[path].dtype, max(1, file[path].ndim)
        replaced(
            file,
            path,
            shape=(ROWS, *[1] * (axes - 1)),
            dtype=dtype,
            chunks=(1024, *[1] * (axes - 1)),
            **options,
        )

    return change


def compressed(file, path, entry):
    values, dtype = file[path][()], file[path].dtype
    replaced(
        file, path, data=numpy.atleast_1d(values), dtype=dtype, chunks=True, compression="gzip"
    )


def outside(file, path, entry):
    replaced(
        file,
        path,
        shape=file[path].shape or (1,),
        dtype="u1",
        external=[("canary", 0, len(CANARY))],
    )


def virtual(file, path, entry):
    shape = file[path].shape or (1,)
    sources = h5py.VirtualLayout(shape=shape, dtype=float)
    sources[...] = h5py.VirtualSource("canary.h5", "x", shape=shape)
    del file[path]
    file.create_virtual_dataset(path, sources)


def longer(file, path, entry):
    """One row more than others have."""
    values = file[path][()]
    replaced(file, path, data=numpy.concatenate([values, values[:1]]), dtype=file[path].dtype)


def empty(file, path, entry):
    replaced(file, path, shape=(0,) * file[path].ndim, dtype=file[path].dtype)


def null_space(file, path, entry):
    dtype = file[path].dtype
    replaced(file, path, data=h5py.Empty(dtype))


def filled(value):
    """The value in every element; of -1, a type without sign has the bits."""

    def change(file, path, entry):
        if file[path].size:
            file[path][...] = numpy.asarray(value).astype(file[path].dtype)

    return change


def strange_text(file, path, entry):
    values = "\x1b]0;owned\x07\x1b[2J\u202e\ud7ff" + "<script>" * 500
    replaced(file, path, data=numpy.full(file[path].shape, values, object), dtype=TEXT)


def no_unicode(file, path, entry):
    replaced(file, path, data=numpy.full(file[path].shape, b"\xff\xfe\x80", object), dtype=TEXT)


def is_array(entry):
    return bool(entry.axes)


def is_number(entry):
    return entry.kind != "text"


def is_real(entry):
    return entry.kind == "real"


def is_text(entry):
    return entry.kind == "text"


def always(entry):
    return True


def never(entry):
    return False


@dataclasses.dataclass
class Change:
    do: Callable  # of file, path and entry
    fits: Callable = always  # of an entry: which datasets it is done to
    is_refused: Callable = always  # of an entry: whether scripts refuse the file then
    by_program: bool = True  # minitaw refuses it, too, in the columns, which it reads

    def refused_by(self, path):
        """True: everybody, "scripts": those only."""
        return True if self.by_program and path.startswith("summary/") else "scripts"


CHANGES = {
    "is removed": Change(removed, is_refused=lambda entry: entry.required),
    "is a group": Change(as_group),
    "is a soft link": Change(
        link_to(lambda path: h5py.SoftLink("/summary/case")), by_program=False
    ),
    "is a soft link to nowhere": Change(link_to(lambda path: h5py.SoftLink("/none"))),
    "is a link to itself": Change(link_to(lambda path: h5py.SoftLink(f"/{path}"))),
    "is an external link": Change(link_to(lambda path: h5py.ExternalLink("canary.h5", "/x"))),
    "is another dataset once more": Change(second_link, by_program=False),
    "has another type": Change(other_type),
    "is a reference": Change(reference),
    "is a compound": Change(compound),
    "has texts of fixed length": Change(fixed_text),
    "has one axis more": Change(more_axes),
    "claims 2^31 rows": Change(claimed()),
    "claims 2^31 rows, compressed": Change(claimed(compression="gzip")),
    "is compressed": Change(compressed),
    "lies in another file": Change(outside),
    "is virtual": Change(virtual),
    "has one row more": Change(
        longer,
        lambda entry: is_array(entry) and entry.axes[0] != "*",
        lambda entry: entry.axes[0] in ("C", "P", "K"),
    ),
    "is empty": Change(empty, is_array, lambda entry: entry.axes[0] == "C" or entry.of_valid),
    "has no space": Change(null_space),
    "is NaN": Change(filled(numpy.nan), is_real, never),
    "is infinite": Change(filled(numpy.inf), is_real, never),
    "is -1": Change(filled(-1), is_number, never),
    "is 0": Change(filled(0), is_number, lambda entry: entry.type == "count", False),
    "is 2^62": Change(filled(2**62), is_number, never),
    "is 1e300": Change(filled(1e300), is_real, never),
    "has control characters": Change(strange_text, is_text, never),
    "is no UTF-8": Change(no_unicode, is_text, never),
}
