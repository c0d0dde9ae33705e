"""What is handed in: a result file, what can be read from it without a program, and what the user adds, in one archive (docs/report.md)."""

import gzip
import hashlib
import io
import itertools
import os
import pathlib
import re
import tarfile
import zlib

from .command import BadInput, Parser, put_out, write_file
from .export import as_csv, summary_table, summary_text
from .record import FACTS, NODE_FACTS, closing_text, load, read_bytes, texts_of, verdict_of
from .rules import official

FOLDER, SUMS = "bundle/", "SHA256SUMS"
# What a bundle may hold at most, made or read: an archive of a few kilobytes can claim to hold terabytes.
MOST_BYTES, MOST_FILES = 1 << 30, 1000
FIXED_TIME = 315532800  # 1980-01-01, the first day that every format of archives knows
CONTENTS = """
record.h5        the record: every setting, sample and byte (docs/results.md)
summary.txt      its table, for people
summary.csv      the same with all columns and their units
deck.toml        what was asked for; deck-NNNN.toml: what a later session asked for, where it differs
log.txt          what minitaw run printed
environment.txt  versions, command, processor and system of each node, ranks, and those environment variables that steer a run
added/           what the sender has added
SHA256SUMS       check sums of all files

Check it:        scripts/bundle --check ARCHIVE.tar.gz
or, unpacked:    sha256sum -c SHA256SUMS && minitaw show record.h5
"""


def sums_of(files):
    """A line for each file as sha256sum prints it."""
    return [f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in sorted(files.items())]


# Texts from the record.

def session_text(session):
    """Versions, command, nodes, ranks and recorded environment."""
    def of_rank(rank, names):
        return ", ".join(f"{what}{session[name][rank]}" for name, what in names.items() if rank < len(session.get(name, [])))

    nodes, ranks = list(session.get("nodes", [])), range(len(session.get("hosts", [])))
    facts = [(title, value) for name, title in (FACTS | {"command": "command"}).items() for value in texts_of(session, name)]
    facts += [(f"node {node}", of_rank(nodes.index(node), {name: what})) for node in dict.fromkeys(nodes) for name, what in NODE_FACTS.items()]
    facts += [(f"rank {rank}", of_rank(rank, {"hosts": "", "devices": "", "cores": "cores "})) for rank in ranks]
    return "".join(f"{line}\n" for line in [*(f"{title:<16} {value}" for title, value in facts if value), *session.get("environment", [])])


def by_session(sessions, text):
    return "\n".join(f"== session {number}, started {session.get('started', '')}\n{text(session)}" for number, session in enumerate(sessions))


def readme_text(result):
    programs = dict.fromkeys(f"minitaw {session.get('version', '')} ({session.get('git_hash', '')})" for session in result.sessions)
    return (f"A result of miniTaw\n\n{closing_text(result.cases)}{official(result).text()}cases: {len(result.cases)}\n"
            f"measured by: {', '.join(programs)}\n{CONTENTS}")


def decks_of(sessions):
    """The first session's deck is deck.toml; a later one's that has not been seen before is deck-NNNN.toml."""
    decks = {}
    for number, session in enumerate(sessions):
        decks.setdefault(session.get("deck", "").encode(), f"deck-{number:04}.toml" if number else "deck.toml")
    return {name: deck for deck, name in decks.items()}


# Archives.

def is_safe(name):
    """Whether a file of this name stays in the folder in which an archive is unpacked, and can stand in a line of SHA256SUMS."""
    return re.fullmatch(r"[ -\[\]-~]+", name) and not {"", ".", ".."} & {*name.split("/")}


def pack(files):
    """A tar.gz. The same files, in any order, give the same bytes: sorted by name, the same time, owner and mode for all."""
    if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_BYTES:
        raise BadInput(f"{len(files)} files are too many or too large for a bundle: it holds at most {MOST_FILES} files and {MOST_BYTES} bytes")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), FIXED_TIME, 0o644
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def unpack(content, path):
    """{name: bytes} of the files of a tar.gz. Raises BadInput if it is damaged, holds anything but files (folders are passed over), a name
    twice, a name that leads out of a folder, or too much."""
    files = {}
    try:
        plain = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MOST_BYTES + 1)
        with tarfile.open(fileobj=io.BytesIO(plain[:MOST_BYTES]), mode="r:") as archive:
            members = list(itertools.islice(archive, MOST_FILES + 1))
            if len(plain) > MOST_BYTES or len(members) > MOST_FILES:
                raise BadInput(f"{path} unpacks to more than {MOST_BYTES} bytes or {MOST_FILES} files; no bundle does")
            for member in (member for member in members if not member.isdir()):
                if not (member.isreg() and is_safe(member.name)):
                    raise BadInput(f"{path} holds something that no bundle does: a link, or a file with an unsafe name")
                if member.name in files:
                    raise BadInput(f"{path} holds {member.name} twice")
                files[member.name] = archive.extractfile(member).read()
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        raise BadInput(f"{path} is not a tar.gz archive, or it is damaged") from error
    return files


# Making and checking.

def added_files(paths):
    files = {}
    for path in paths:
        name = f"added/{pathlib.PurePath(path).name}"
        if not is_safe(name) or name in files:
            raise BadInput(f"--add: {path} needs another name, one of its own, of printable ASCII characters without a backslash")
        files[name] = read_bytes(path)
    return files


def make(path, added):
    """The archive, as bytes, and the result in it."""
    content = read_bytes(path)
    result = load(path, content)
    log = by_session(result.sessions, lambda session: "".join(f"{line}\n" for line in session.get("log", [])) or "no log in this record\n")
    texts = {"log.txt": log, "environment.txt": by_session(result.sessions, session_text), "summary.csv": as_csv(*summary_table(result)),
             "summary.txt": summary_text(result), "README.txt": readme_text(result)}
    files = {"record.h5": content} | decks_of(result.sessions) | {name: text.encode() for name, text in texts.items()} | added_files(added)
    files[SUMS] = "".join(f"{line}\n" for line in sums_of(files)).encode()
    return pack({FOLDER + name: data for name, data in files.items()}), result


def check(path):
    """The result in an archive whose files are all what SHA256SUMS says."""
    packed = unpack(read_bytes(path), path)
    files = {name.removeprefix(FOLDER): content for name, content in packed.items()}
    listed = files.pop(SUMS, b"").decode(errors="replace").splitlines()
    differ = [name for name in packed if not name.startswith(FOLDER)] + sorted(line.partition("  ")[2] for line in {*sums_of(files)} ^ {*listed})
    if differ or "record.h5" not in files:
        raise BadInput(f"{path} is no bundle, is damaged or was changed: {differ[0] if differ else 'record.h5'} is not what {SUMS} says")
    return load(f"record.h5 in {path}", files["record.h5"])


def output_of(options):
    """results.h5 -> results.tar.gz in the current folder, unless a name is given."""
    output = options.output or pathlib.PurePath(options.file).stem + ".tar.gz"
    if not output.endswith((".tar.gz", ".tgz")):
        raise BadInput(f"-o: \"{output}\" must end in .tar.gz")
    if os.path.realpath(output) in map(os.path.realpath, (options.file, *options.add)):
        raise BadInput(f"-o: {output} is one of the files that go into the bundle")
    return output


def main(words=None):
    parser = Parser(prog="bundle", description="Packs a result file with all that belongs to it, or checks such an archive (docs/report.md).")
    parser.add_argument("file", metavar="FILE.h5", nargs="?", help="result file of minitaw run")
    parser.add_argument("-o", "--output", metavar="ARCHIVE.tar.gz", help="default: named as the file, in the current folder")
    parser.add_argument("--add", metavar="PATH", action="append", default=[], help="a file to pack too, below added/; may be repeated")
    parser.add_argument("--check", metavar="ARCHIVE.tar.gz", help="compare every file of an archive with its check sum, print its table and verdict")
    options = parser.parse_args(words)
    if (options.file is None) == (options.check is None):
        raise BadInput("name a result file, or an archive after --check (bundle --help)")
    if options.check is not None:
        if options.output or options.add:
            raise BadInput("--check takes neither -o nor --add")
        result = check(options.check)
        put_out(summary_text(result) + official(result).text())
        return int(not verdict_of(result.cases).startswith("VALID"))
    output = output_of(options)
    archive, result = make(options.file, options.add)
    write_file(output, archive)
    put_out(f"{hashlib.sha256(archive).hexdigest()}  {output}\n{closing_text(result.cases)}")
    return 0
