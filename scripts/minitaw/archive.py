# SPDX-License-Identifier: BSD-3-Clause
"""The archive that is handed in, a tar.gz of result files and the verdict on them: written, and
read as what may come from anybody (docs/run-rules.md)."""

import gzip
import io
import pathlib
import re
import tarfile
import zlib

from .command import BadInput

SUFFIXES = (".tar.gz", ".tgz")
VERDICT = "verdict.txt"
NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,80}\.h5")
MOST_BYTES = 1 << 30  # of all files: an archive of a few kilobytes can claim to hold terabytes
MOST_FILES = 100
UNREADABLE = (EOFError, zlib.error, tarfile.TarError, ValueError, MemoryError)


def pack(records, verdict):
    """The bytes of an archive of these files, {path: content}, and the text of the verdict."""
    files = {VERDICT: verdict.encode()}
    for path, content in records.items():
        name = pathlib.PurePath(path).name
        if name in files or not NAME.fullmatch(name):
            raise BadInput(
                f"--archive: {path} needs another name, one of its own, of letters and digits, "
                "that ends in .h5"
            )
        files[name] = content
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def headers_of(stream):
    """The header of each file, whose content is read by whoever asks. Long names, links and sparse
    files have headers of other types, which are refused before what follows them is read."""
    while (block := stream.read(tarfile.BLOCKSIZE)).strip(b"\0"):
        found = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
        is_plain = found.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
        if not is_plain or not (NAME.fullmatch(found.name) or found.name == VERDICT):
            raise BadInput(
                f"it has {found.name[:80]!r}, and may have plain files NAME.h5 and {VERDICT} only"
            )
        yield found


def read_files(stream):
    files, left = {}, MOST_BYTES
    for header in headers_of(stream):
        if not 0 <= header.size <= left:
            raise BadInput(f"it unpacks to more than {MOST_BYTES} bytes")
        if header.name in files or len(files) == MOST_FILES:
            raise BadInput(f"it has a file twice, or more than {MOST_FILES} files")
        left -= header.size
        files[header.name] = stream.read(header.size)
        if len(files[header.name]) < header.size:
            raise EOFError
        stream.read(-header.size % tarfile.BLOCKSIZE)
    files.pop(VERDICT, None)
    if not files:
        raise BadInput("it has no result file NAME.h5")
    return files


def unpack(path):
    """{name: content} of the result files in an archive. What somebody has written into the verdict
    does not count."""
    try:
        with gzip.open(path) as stream:
            return read_files(stream)
    except BadInput as why:
        raise BadInput(f"{path} is no archive of check-rules: {why}") from why
    except (OSError, *UNREADABLE) as error:
        if why := getattr(error, "strerror", None):
            raise BadInput(f"{path} cannot be read: {why}") from error
        raise BadInput(f"{path} is not a tar.gz archive, or it is damaged") from error
