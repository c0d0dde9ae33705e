# SPDX-License-Identifier: BSD-3-Clause
"""The archive that is handed in, a tar.gz of result files and the verdict on them: written, and
read as what may come from anybody (docs/acceptance.md)."""

import gzip
import io
import pathlib
import re
import tarfile
import zlib

from .command import BadInput, read_bytes

SUFFIXES = (".tar.gz", ".tgz")
VERDICT = "verdict.txt"
NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,80}\.h5")
MOST_BYTES = 1 << 30  # unpacked: an archive of a few kilobytes can claim to hold terabytes
UNREADABLE = (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError, ValueError)


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


def files_of(archive):
    files = {}
    for member in archive:
        if not member.isreg() or not (NAME.fullmatch(member.name) or member.name == VERDICT):
            raise BadInput(
                f"has {member.name[:80]!r}, and may have files NAME.h5 and {VERDICT} only"
            )
        if member.name in files or not 0 <= member.size <= MOST_BYTES:
            raise BadInput(f"has {member.name} twice, or of more than {MOST_BYTES} bytes")
        files[member.name] = archive.extractfile(member).read()
    files.pop(VERDICT, None)
    if not files:
        raise BadInput("has no result file NAME.h5")
    return files


def unpack(path):
    """{name: content} of the result files in an archive. What somebody has written into the verdict
    does not count."""
    packed = read_bytes(path)
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(packed)).read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise BadInput(f"unpacks to more than {MOST_BYTES} bytes")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            return files_of(archive)
    except UNREADABLE as error:
        raise BadInput(f"{path} is not a tar.gz archive, or it is damaged") from error
    except BadInput as why:
        raise BadInput(f"{path} is no archive of check-rules: it {why}") from why
