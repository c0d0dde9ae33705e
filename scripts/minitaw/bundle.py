# SPDX-License-Identifier: BSD-3-Clause
"""What is handed in: a result file, what can be read from it without a program, and what the user
adds, in one archive (docs/report.md)."""

import gzip
import hashlib
import io
import os
import pathlib
import tarfile
import zlib

from .check_rules import official
from .command import BadInput, Parser, write_file, write_stdout
from .export import as_csv, summary_table
from .record import FACTS, NODE_FACTS, load, read_bytes, texts_of

FOLDER, SUMS, RECORD = "bundle/", "SHA256SUMS", "bundle/record.h5"
MOST_BYTES = 1 << 30  # of a bundle: an archive of a few kilobytes can claim to hold terabytes
MOST_FILES, DEEPEST = 1000, 3  # of these; of folders in one another, and the file
MOST_WORDS = 1 << 16  # bytes of a long name, or of other words about a file
FIXED_TIME = 315532800  # 1980-01-01, the first day that every format of archives knows
CONTENTS = """
record.h5 is the record (docs/results.md). The other files hold texts from it, but for added/, which is the sender's.
Check it:      scripts/bundle --check ARCHIVE.tar.gz
or, unpacked:  sha256sum -c SHA256SUMS && minitaw show record.h5
"""


def sums_of(files):
    """A line for each file as sha256sum prints it."""
    return [
        f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in sorted(files.items())
    ]


# Texts from the record.


def environment_text(session):
    """Versions, command, nodes, ranks and recorded environment."""

    def of_rank(rank, names):
        return ", ".join(
            f"{what}{session[name][rank]}"
            for name, what in names.items()
            if rank < len(session.get(name, []))
        )

    nodes, ranks = list(session.get("nodes", [])), range(len(session.get("hosts", [])))
    facts = [
        (title, value)
        for name, title in (FACTS | {"command": "command"}).items()
        for value in texts_of(session, name)
    ]
    facts += [
        (f"node {node}", of_rank(nodes.index(node), {name: what}))
        for node in dict.fromkeys(nodes)
        for name, what in NODE_FACTS.items()
    ]
    facts += [
        (f"rank {rank}", of_rank(rank, {"hosts": "", "devices": "", "cores": "cores "}))
        for rank in ranks
    ]
    return "".join(
        f"{line}\n"
        for line in [
            *(f"{title:<16} {value}" for title, value in facts if value),
            *session.get("environment", []),
        ]
    )


def session_texts(result):
    """{name of a file: text}: where the result comes from. A later session's deck that has not been
    seen before is deck-NNNN.toml."""

    def by_session(text):
        return "\n".join(
            f"== session {number}, started {session.get('started', '')}\n{text(session)}"
            for number, session in enumerate(result.sessions)
        )

    decks = {}
    for number, session in enumerate(result.sessions):
        decks.setdefault(
            session.get("deck", ""), f"deck-{number:04}.toml" if number else "deck.toml"
        )
    return {
        "environment.txt": by_session(environment_text),
        **{name: deck for deck, name in decks.items()},
        "log.txt": by_session(
            lambda session: "".join(f"{line}\n" for line in session.get("log", []))
            or "no log in this record\n"
        ),
    }


def readme_text(result):
    programs = dict.fromkeys(
        f"minitaw {session.get('version', '')} ({session.get('git_hash', '')})"
        for session in result.sessions
    )
    return (
        f"A result of miniTaw\n\n{official(result).text()}{result.closing_text()}cases: {len(result.cases)}\n"
        f"measured by: {', '.join(programs)}\n{CONTENTS}"
    )


# Archives.


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


def name_of(path, member):
    """Of a file of an archive. Refuses what is neither a plain file nor a folder of a bundle."""
    parts, why = pathlib.PurePosixPath(member.name).parts, ""
    if member.issparse():
        why = "is a sparse file"
    elif member.issym() or member.islnk():
        why = "is a link"
    elif not member.isfile() and not member.isdir():
        why = "is a device or a pipe"
    elif parts[:1] != (FOLDER.strip("/"),) or ".." in parts or len(parts) > DEEPEST:
        why = f"does not lie in {FOLDER}"
    if why:
        raise BadInput(
            f"{path} is no bundle: {member.name[:80]!r} {why}; "
            f"a bundle has plain files in {FOLDER} and no others"
        )
    return member.name


def read_member(archive, member):
    """The digest of a file, and its content if the check needs it."""
    digest, kept, source = hashlib.sha256(), [], archive.extractfile(member)
    while piece := source.read(1 << 20):
        digest.update(piece)
        if member.name in (RECORD, FOLDER + SUMS):
            kept.append(piece)
    return digest.hexdigest(), b"".join(kept)


UNREADABLE = (EOFError, zlib.error, tarfile.TarError, ValueError, ArithmeticError, RecursionError,
              MemoryError)  # fmt: skip


def unpack(path):
    """{name: digest} of the files of a tar.gz, and the contents of record and check sums."""
    digests, kept = {}, {}
    try:
        with open(path, "rb") as packed, tarfile.open(
            fileobj=Limited(path, packed), mode="r|", tarinfo=Member
        ) as archive:
            for member in archive:
                name = name_of(path, member)
                if name in digests or len(digests) == MOST_FILES:
                    much = "a file twice" if name in digests else f"more than {MOST_FILES} files"
                    raise BadInput(f"{path} is no bundle: it has {much}")
                if member.isfile():
                    digests[name], kept[name] = read_member(archive, member)
                archive.members.clear()  # which tarfile keeps
        return digests, kept
    except BadInput:
        raise
    except OSError as error:
        if error.strerror:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from error
        raise BadInput(f"{path} is not a tar.gz archive, or it is damaged") from error
    except UNREADABLE as error:
        raise BadInput(f"{path} is not a tar.gz archive, or it is damaged") from error


# Making and checking.


def added_files(paths):
    files = {}
    for path in paths:
        name = f"added/{pathlib.PurePath(path).name}"
        if name in files or not name.isprintable() or "\\" in name:  # sha256sum would escape it
            raise BadInput(
                f"--add: {path} needs another name, one of its own, printable and without a backslash"
            )
        files[name] = read_bytes(path)
    return files


def make(path, added):
    """The archive, as bytes, and the result in it."""
    content = read_bytes(path)
    result = load(path, content)
    texts = session_texts(result) | {
        "summary.csv": as_csv(*summary_table(result)),
        "README.txt": readme_text(result),
    }
    files = (
        {"record.h5": content}
        | {name: text.encode() for name, text in texts.items()}
        | added_files(added)
    )
    files[SUMS] = "".join(f"{line}\n" for line in sums_of(files)).encode()
    return pack(files), result


def check(path):
    """The result in an archive whose files are all what SHA256SUMS says."""
    digests, kept = unpack(path)
    digests.pop(FOLDER + SUMS, None)
    sums = {
        line.replace("  ", "  " + FOLDER, 1)
        for line in kept.get(FOLDER + SUMS, b"").decode(errors="replace").splitlines()
    }
    differ = sorted(
        line.partition("  ")[2]
        for line in {f"{digest}  {name}" for name, digest in digests.items()} ^ sums
    )
    if differ or RECORD not in digests:
        named = differ[0][:80] if differ else RECORD
        raise BadInput(
            f"{path} is no bundle, is damaged or was changed: {named} is not what {SUMS} says; "
            "ask its sender for the archive and its check sum"
        )
    return load(f"record.h5 in {path}", kept[RECORD])


def main(words=None):
    parser = Parser(
        prog="bundle",
        description="Packs a result file with all that belongs to it, or checks such an archive (docs/report.md).",
    )
    parser.add_argument("file", metavar="FILE.h5", nargs="?", help="result file of minitaw run")
    parser.add_argument(
        "-o",
        "--output",
        metavar="ARCHIVE.tar.gz",
        help="default: named as the file, in the current folder",
    )
    parser.add_argument(
        "--add",
        metavar="PATH",
        action="append",
        default=[],
        help="a file to pack too, below added/; may be repeated",
    )
    parser.add_argument(
        "--check",
        metavar="ARCHIVE.tar.gz",
        help="compare every file of an archive with its check sum, print its verdict",
    )
    options = parser.parse_args(words)
    if (options.file is None) == (options.check is None):
        raise BadInput("name a result file, or an archive after --check (bundle --help)")
    if options.check is not None:
        if options.output or options.add:
            raise BadInput("--check takes neither -o nor --add")
        result = check(options.check)
        write_stdout(official(result).text() + result.closing_text())
        return int(not result.verdict.startswith("VALID"))
    output = options.output or pathlib.PurePath(options.file).stem + ".tar.gz"
    if not output.endswith((".tar.gz", ".tgz")) or os.path.realpath(output) in map(
        os.path.realpath, (options.file, *options.add)
    ):
        raise BadInput(
            f'-o: "{output}" must end in .tar.gz, and must not be one of the files that go into the bundle'
        )
    archive, result = make(options.file, options.add)
    write_file(output, archive)
    write_stdout(
        f"{official(result).text()}{result.closing_text()}{hashlib.sha256(archive).hexdigest()}  {output}\n"
    )
    return 0
