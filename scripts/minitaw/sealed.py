# SPDX-License-Identifier: BSD-3-Clause
"""Opens a result file, which may come from anybody, as an h5py.File (docs/results.md).

The seal in front, length and CRC-32, is checked before HDF5 sees a byte. Then every object is looked
at before a value is read: nothing may lead out of the file, load code, or claim more than there is.
"""

import io
import re
import zlib

import h5py
from h5py import h5d, h5g, h5l, h5o

from .command import BadInput, read_with

SCHEMA = 5
SEAL_BYTES = 512
BLOCK = 1 << 20  # bytes; values of a larger file are read from disk as they are used
SEAL_WORDS = b"miniTaw result, schema "
DEEPEST = 4  # groups in one another
RENEW = "get the file again from whoever measured it"
DAMAGED = (
    "damaged: truncated, or changed after it was written (length and checksum differ from its "
    f"seal); {RENEW}"
)
# Of HDF5, numpy and pandas, about what no program of ours has written.
OF_READING = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError)
OF_READING += (ArithmeticError, MemoryError)


def seal_of(schema, blocks):
    """The 512 bytes in front of these of an HDF5 file, in blocks."""
    size = checksum = 0
    for block in blocks:
        size += len(block)
        checksum = zlib.crc32(block, checksum)
    line = b"%s%d, %d bytes, crc32 %08x\n" % (SEAL_WORDS, schema, size, checksum)
    return line.ljust(SEAL_BYTES - 1) + b"\n"


def require_seal(name, seal):
    schema = re.match(SEAL_WORDS + rb"(\d{1,9})", seal)
    if not schema:
        raise BadInput(
            f"{name} is not a miniTaw result, or has lost its seal, the first {SEAL_BYTES} bytes"
        )
    if int(schema[1]) != SCHEMA:
        raise BadInput(
            f"{name} has schema version {int(schema[1])}, these scripts read {SCHEMA}; "
            "use those of the miniTaw that wrote it"
        )


def refuse(part, what):
    raise ValueError(f"/{part.encode('unicode_escape').decode()[:80]} {what}")


def check_dataset(dataset, at, size):
    options = dataset.get_create_plist()
    values, stored = dataset.get_space().get_simple_extent_npoints(), dataset.get_type().get_size()
    for found, what in (
        (options.get_external_count(), "has its values in another file"),
        (options.get_layout() == h5d.VIRTUAL, "has its values in other datasets"),
        (options.get_nfilters(), "is compressed or filtered"),
        (values * stored > min(dataset.get_storage_size(), size), "claims more than the file has"),
    ):
        if found:
            refuse(at, what)


def check_group(group, path, size, depth=0):
    if depth > DEEPEST:
        refuse(path, "lies deeper than any part of a result")
    for name in group:
        at = f"{path}/{name.decode(errors='replace')}".lstrip("/")
        if group.links.get_info(name).type != h5l.TYPE_HARD:
            refuse(at, "is a link to another place")
        part = h5o.open(group, name)
        if h5o.get_info(part).rc != 1:
            refuse(at, "is linked from several places")
        if isinstance(part, h5g.GroupID):
            check_group(part, at, size, depth + 1)
        elif isinstance(part, h5d.DatasetID):
            check_dataset(part, at, size)
        else:
            refuse(at, "is neither a group nor a dataset")


def guarded(name, read):
    """What read() returns. Whatever goes wrong becomes a sentence that names the file."""
    try:
        return read()
    except OF_READING as error:
        why = " ".join(str(error).split())[:160]
        raise BadInput(
            f"{name} is damaged, of another version, or no result of miniTaw: {why}; {RENEW}"
        ) from error


def opened(name, content=None):
    """The checked HDF5 file, read only, of a result file or of its bytes."""

    def unsealed(file):
        begin = file.read(BLOCK)
        require_seal(name, begin)
        if len(begin) < BLOCK or not file.seekable():
            file = io.BytesIO(begin + file.read())
        file.seek(SEAL_BYTES)
        if seal_of(SCHEMA, iter(lambda: file.read(BLOCK), b"")) != begin[:SEAL_BYTES]:
            raise BadInput(f"{name} is {DAMAGED}")
        return file

    def checked():
        found = h5py.File(file, "r")
        check_group(h5g.open(found.id, b"/"), "", file.seek(0, io.SEEK_END))
        return found

    file = read_with(unsealed, name) if content is None else unsealed(io.BytesIO(content))
    return guarded(name, checked)
