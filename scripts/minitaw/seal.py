# SPDX-License-Identifier: BSD-3-Clause
"""The seal in front of a result file: length and CRC-32 of the HDF5 file that follows. It is
checked before HDF5 sees a byte, so that a truncated or damaged file is refused in one sentence and
never crashes a reader (docs/results.md)."""

import os
import re
import stat
import zlib

import h5py

from .command import BadInput, readable
from .reader import RENEW

SCHEMA = 4
SEAL_BYTES = 512
SEAL_WORDS = b"miniTaw result, schema "
DAMAGED = (
    "damaged: truncated, or changed after it was written (length and checksum differ from its "
    f"seal); {RENEW}"
)


def seal_of(schema, image):
    """The 512 bytes in front of these bytes of an HDF5 file."""
    line = b"%s%d, %d bytes, crc32 %08x\n" % (SEAL_WORDS, schema, len(image), zlib.crc32(image))
    return line.ljust(SEAL_BYTES - 1) + b"\n"


def require_seal(name, seal):
    """Returns the length that the seal of a file gives for the rest of it; -1 if none."""
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
    length = re.match(SEAL_WORDS + rb"\d+, (\d{1,18}) bytes, crc32 [0-9a-f]{8}\n", seal)
    return int(length[1]) if length and len(seal) == SEAL_BYTES else -1


def read_sealed(name):
    """The bytes of a result file, if it has the length that its seal says."""
    with readable(name), open(name, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise BadInput(f"{name} is not a file")
        seal = file.read(SEAL_BYTES)
        if require_seal(name, seal) != about.st_size - SEAL_BYTES:
            raise BadInput(f"{name} is {DAMAGED}")
        return seal + file.read()


def unseal(name, content):
    """The HDF5 part of a file."""
    seal, image = content[:SEAL_BYTES], content[SEAL_BYTES:]
    require_seal(name, seal)
    if seal_of(SCHEMA, image) != seal:
        raise BadInput(f"{name} is {DAMAGED}")
    return image


def opened(name, content=None):
    """The file that the seal belongs to as h5py.File, read only, and its size, as yet unchecked."""
    image = unseal(name, read_sealed(name) if content is None else content)
    try:
        return h5py.File(h5py.h5f.open_file_image(image), "r"), len(image)
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"{name} is damaged: HDF5 cannot open it") from error
