# SPDX-License-Identifier: BSD-3-Clause
"""The archive of a bundle, a tar.gz: written so that the same files give the same bytes, and read
as what may come from anybody (docs/report.md)."""

import gzip
import hashlib
import io
import pathlib
import tarfile
import zlib

from .command import BadInput

FOLDER, SUMS, RECORD = "bundle/", "SHA256SUMS", "bundle/record.h5"
MOST_BYTES = 1 << 30  # of a bundle: an archive of a few kilobytes can claim to hold terabytes
MOST_FILES = 1000
DEEPEST = 3  # of folders in one another, and the file
MOST_WORDS = 1 << 16  # bytes of a long name, or of other words about a file
AT_ONCE = 1 << 20  # bytes
FIXED_TIME = 315532800  # 1980-01-01, the first day that every format of archives knows
UNREADABLE = (EOFError, zlib.error, tarfile.TarError, ValueError, ArithmeticError, RecursionError,
              MemoryError)  # fmt: skip


def pack(files):
    """A tar.gz. The same files, in any order, give the same bytes: sorted by name, the same time,
    owner and mode for all."""
    if sum(map(len, files.values())) > MOST_BYTES:
        raise BadInput(f"a bundle holds at most {MOST_BYTES} bytes")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(FOLDER + name)
            member.size, member.mtime, member.mode = len(content), FIXED_TIME, 0o644
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


class Limited:
    """What a gzip archive unpacks to, read piece by piece and never more than MOST_BYTES of it."""

    def __init__(self, path, packed):
        self.path, self.plain, self.left = path, gzip.GzipFile(fileobj=packed), MOST_BYTES

    def read(self, size):
        found = self.plain.read(min(size, self.left + 1))
        self.left -= len(found)
        if self.left < 0:
            raise BadInput(
                f"{self.path} unpacks to more than {MOST_BYTES} bytes, which no bundle does; "
                "do not unpack it"
            )
        return found


class Member(tarfile.TarInfo):
    """A member of an archive. Its long names and other words, which are read at once, are short."""

    @classmethod
    def frombuf(cls, buffer, encoding, errors):
        found = super().frombuf(buffer, encoding, errors)
        if not found.isfile() and found.size > MOST_WORDS:
            raise BadInput(
                f"the archive is no bundle: it has {found.size} bytes of words about a file"
            )
        return found


def fault_of(member):
    """Why a member is neither a plain file nor a folder of a bundle; empty if it is one."""
    parts = pathlib.PurePosixPath(member.name).parts
    if member.issparse():
        return "is a sparse file"
    if member.issym() or member.islnk():
        return "is a link"
    if not member.isfile() and not member.isdir():
        return "is a device or a pipe"
    if parts[:1] != (FOLDER.strip("/"),) or ".." in parts or len(parts) > DEEPEST:
        return f"does not lie in {FOLDER}"
    return ""


def read_member(archive, member):
    """The digest of a file, and its content if the check needs it."""
    digest, kept = hashlib.sha256(), []
    source = archive.extractfile(member)
    while piece := source.read(AT_ONCE):
        digest.update(piece)
        if member.name in (RECORD, FOLDER + SUMS):
            kept.append(piece)
    return digest.hexdigest(), b"".join(kept)


def read_members(path, archive):
    digests, kept = {}, {}
    for member in archive:
        name = member.name
        if fault := fault_of(member):
            raise BadInput(
                f"{path} is no bundle: {name[:80]!r} {fault}; "
                f"a bundle has plain files in {FOLDER} and no others"
            )
        if name in digests:
            raise BadInput(f"{path} is no bundle: it has a file twice")
        if len(digests) == MOST_FILES:
            raise BadInput(f"{path} is no bundle: it has more than {MOST_FILES} files")
        if member.isfile():
            digests[name], kept[name] = read_member(archive, member)
        archive.members.clear()  # which tarfile keeps
    return digests, kept


def unpack(path):
    """{name: digest} of the files of a tar.gz, and the contents of record and check sums."""
    try:
        with open(path, "rb") as packed:
            limited = Limited(path, packed)
            with tarfile.open(fileobj=limited, mode="r|", tarinfo=Member) as archive:
                return read_members(path, archive)
    except BadInput:
        raise
    except (OSError, *UNREADABLE) as error:
        if why := getattr(error, "strerror", None):
            raise BadInput(f"{path} cannot be read: {why}") from error
        raise BadInput(f"{path} is not a tar.gz archive, or it is damaged") from error
