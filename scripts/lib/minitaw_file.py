"""Opens result files of miniTaw for the scripts in Python (docs/results.md, "The file on disk").

A file of schema 4 and later begins with a seal: the length and the CRC-32 of the HDF5 file behind it. It is checked before HDF5 sees a
byte. Files of schemas 1 to 3 have none, and HDF5 may crash or hang over damaged bytes: a child process reads all of them first.
"""

import os
import pathlib
import re
import resource
import subprocess
import sys
import zlib

SCHEMA = 4  # the newest that the scripts read
FIRST_SEALED = 4
SEAL_BYTES = 512
SEAL_WORDS = b"miniTaw result, schema "
SEAL_FORM = re.compile(rb"miniTaw result, schema (\d{1,9}), (\d{1,18}) bytes, crc32 ([0-9a-f]{8})\n *\n")
HDF5_WORDS = b"\x89HDF\r\n\x1a\n"
CHILD_SECONDS = 60
CHILD_BYTES = 16 << 30


class BadFile(Exception):
    """The user's file cannot be read; the message is one sentence that says why."""


def refuse(sentence):
    """One line on standard error, exit code 2."""
    print(f"{pathlib.Path(sys.argv[0]).name}: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def seal_of(schema, image):
    """The 512 bytes in front of these bytes of an HDF5 file."""
    line = b"%s%d, %d bytes, crc32 %08x\n" % (SEAL_WORDS, schema, len(image), zlib.crc32(image))
    return line.ljust(SEAL_BYTES - 1) + b"\n"


def damaged(name, what):
    return BadFile(f"{name} is damaged or was changed after it was written: {what}")


def newer(name, schema):
    return BadFile(f"{name} has schema version {schema}, this script reads up to {SCHEMA}; use the scripts of a newer miniTaw")


def bytes_of(name):
    try:
        if not os.path.lexists(name):
            raise BadFile(f"{name} cannot be read: there is no such file")
        if not pathlib.Path(name).is_file():
            raise BadFile(f"{name} is not a file")
        return memoryview(pathlib.Path(name).read_bytes())
    except (OSError, MemoryError) as error:
        raise BadFile(f"{name} cannot be read: {getattr(error, 'strerror', None) or 'it does not fit into memory'}") from error


def unseal(name, content):
    """The HDF5 part and its schema, of a file that begins with the words of the seal."""
    number = re.match(rb"\d{1,9}", bytes(content[len(SEAL_WORDS):SEAL_BYTES]))
    if number and int(number[0]) > SCHEMA:
        raise newer(name, int(number[0]))
    form = SEAL_FORM.fullmatch(content[:SEAL_BYTES])
    if not form:
        raise damaged(name, "its seal, the first 512 bytes, cannot be understood")
    schema, length, image = int(form[1]), int(form[2]), content[SEAL_BYTES:]
    if len(image) != length:
        kind = "truncated" if len(image) < length else "longer than it was"
        raise damaged(name, f"{kind}, {len(content)} of {length + SEAL_BYTES} bytes")
    if seal_of(schema, image) != content[:SEAL_BYTES]:
        raise damaged(name, "its checksum differs from the one in its seal")
    return image, schema


def open_image(image):
    import h5py

    return h5py.File(h5py.h5f.open_file_image(bytes(image)), "r")


def read_everything(file, limit):
    """Reads every attribute and dataset; raises if one is larger than `limit` bytes or lies outside the file."""
    import h5py

    def read(_, item):
        for key in item.attrs:
            _ = item.attrs[key]
        if isinstance(item, h5py.Group):
            if any(type(item.get(key, getlink=True)) is not h5py.HardLink for key in item):
                raise ValueError("a link leaves its group")
        elif isinstance(item, h5py.Dataset):
            if item.size * item.dtype.itemsize > limit or item.external or item.is_virtual:
                raise ValueError("a dataset is larger than the file")
            _ = item[()]

    read("/", file)
    file.visititems(read)


def schema_of(file):
    """Of an unsealed file. Raises BadFile with the end of a sentence."""
    schema = file.attrs.get("schema")
    if file.attrs.get("format") != "minitaw" or schema is None:
        raise BadFile("is an HDF5 file, but not a miniTaw result")
    schema = int(schema)
    if schema > SCHEMA:
        raise BadFile(f"has schema version {schema}, this script reads up to {SCHEMA}; use the scripts of a newer miniTaw")
    if schema >= FIRST_SEALED:
        raise BadFile("has lost its seal: a program such as h5repack has written it anew; use the file that minitaw run left")
    if schema < 1:
        raise BadFile("is damaged: there is no such schema")
    return schema


def child():
    """Reads a file from standard input; prints what is to be said of it: nothing, if all is well."""
    import h5py

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (CHILD_BYTES, CHILD_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CHILD_SECONDS, CHILD_SECONDS))
    try:
        image = sys.stdin.buffer.read()
        with open_image(image) as file:
            schema_of(file)
            read_everything(file, len(image))
    except BadFile as error:
        print(error, end="")
    except Exception:  # whatever h5py and numpy have to say of such bytes
        print("is damaged: not all of it can be read", end="")
    sys.stdout.flush()
    os._exit(0)  # what HDF5 still holds of the file is not asked again


def probe(name, content):
    """Lets a child read everything first; raises BadFile if it dies or complains."""
    try:
        done = subprocess.run([sys.executable, __file__], input=content, capture_output=True, timeout=2 * CHILD_SECONDS)
    except subprocess.TimeoutExpired:
        raise BadFile(f"{name} is damaged: reading it comes to no end") from None
    if done.returncode != 0:
        raise BadFile(f"{name} is damaged: HDF5 fails over it")
    if done.stdout:
        raise BadFile(f"{name} {done.stdout.decode(errors='replace')}")


def checked(name):
    """The HDF5 part of a file and its schema. Raises BadFile."""
    content = bytes_of(name)
    if content[:len(SEAL_WORDS)] == SEAL_WORDS:
        return unseal(name, content)
    if content[:len(HDF5_WORDS)] != HDF5_WORDS:
        if content[SEAL_BYTES:SEAL_BYTES + len(HDF5_WORDS)] == HDF5_WORDS:
            raise damaged(name, "its seal, the first 512 bytes, cannot be understood")
        raise BadFile(f"{name} is not a miniTaw result, or it is damaged")
    probe(name, content)
    return content, None


def open_checked(name):
    """An open h5py.File, read only. Raises BadFile."""
    image, schema = checked(name)
    try:
        file = open_image(image)
        found = schema_of(file) if schema is None else int(file.attrs["schema"])
    except BadFile as error:
        raise BadFile(f"{name} {error}") from error
    except Exception as error:
        raise BadFile(f"{name} is damaged: HDF5 cannot open it") from error
    if schema not in (None, found):
        raise damaged(name, f"its seal says schema {schema}, its content {found}")
    return file


def open_result(path):
    """An open h5py.File, read only, of a result file. A file that is none, is damaged or is too new: one sentence and exit code 2."""
    try:
        return open_checked(str(path))
    except BadFile as error:
        return refuse(str(error))


if __name__ == "__main__":
    child()
