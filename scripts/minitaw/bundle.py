# SPDX-License-Identifier: BSD-3-Clause
"""What is handed in: a result file, what can be read from it without a program, and what the user
adds, in one archive (docs/report.md)."""

import hashlib
import os
import pathlib

from .archive import FOLDER, RECORD, SUMS, pack, unpack
from .check_rules import official
from .command import BadInput, Parser, read_bytes, write_file, write_stdout
from .export import as_csv, summary_table
from .provenance import lines_text, program_of, session_texts
from .record import load

CONTENTS = """
record.h5 is the record (docs/results.md). The other files hold texts from it, but for added/, \
which is the sender's.
Check it:      scripts/bundle --check ARCHIVE.tar.gz
or, unpacked:  sha256sum -c SHA256SUMS && minitaw show record.h5
"""


def digest_of(content):
    return hashlib.sha256(content).hexdigest()


def sum_line(digest, name):
    """As sha256sum prints it."""
    return f"{digest}  {name}"


def verdict_text(result):
    return official(result).text() + result.closing_text()


def readme_text(result):
    programs = dict.fromkeys(f"minitaw {program_of(session)}" for session in result.sessions)
    return (
        f"A result of miniTaw\n\n{verdict_text(result)}cases: {len(result.cases)}\n"
        f"measured by: {', '.join(programs)}\n{CONTENTS}"
    )


def added_files(paths):
    files = {}
    for path in paths:
        name = f"added/{pathlib.PurePath(path).name}"
        if name in files or not name.isprintable() or "\\" in name:  # sha256sum would escape it
            raise BadInput(
                f"--add: {path} needs another name, one of its own, printable and without a "
                "backslash"
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
    files = {"record.h5": content}
    files |= {name: text.encode() for name, text in texts.items()}
    files |= added_files(added)
    sums = [sum_line(digest_of(content), name) for name, content in sorted(files.items())]
    files[SUMS] = lines_text(sums).encode()
    return pack(files), result


def check(path):
    """The result in an archive whose files are all what SHA256SUMS says."""
    digests, kept = unpack(path)
    digests.pop(FOLDER + SUMS, None)
    said = kept.get(FOLDER + SUMS, b"").decode(errors="replace").splitlines()
    sums = {line.replace("  ", "  " + FOLDER, 1) for line in said}
    found = {sum_line(digest, name) for name, digest in digests.items()}
    differ = sorted(line.partition("  ")[2] for line in found ^ sums)
    if differ or RECORD not in digests:
        named = differ[0][:80] if differ else RECORD
        raise BadInput(
            f"{path} is no bundle, is damaged or was changed: {named} is not what {SUMS} says; "
            "ask its sender for the archive and its check sum"
        )
    return load(f"record.h5 in {path}", kept[RECORD])


def parse(words):
    parser = Parser(
        prog="bundle",
        description="Packs a result file with all that belongs to it, or checks such an archive "
        "(docs/report.md).",
    )
    add = parser.add_argument
    add("file", metavar="FILE.h5", nargs="?", help="result file of minitaw run")
    add(
        "-o",
        "--output",
        metavar="ARCHIVE.tar.gz",
        help="default: named as the file, in the current folder",
    )
    add(
        "--add",
        metavar="PATH",
        action="append",
        default=[],
        help="a file to pack too, below added/; may be repeated",
    )
    add(
        "--check",
        metavar="ARCHIVE.tar.gz",
        help="compare every file of an archive with its check sum, print its verdict",
    )
    options = parser.parse_args(words)
    if (options.file is None) == (options.check is None):
        raise BadInput("name a result file, or an archive after --check (bundle --help)")
    if options.check is not None and (options.output or options.add):
        raise BadInput("--check takes neither -o nor --add")
    return options


def output_path(options):
    """Of the archive, which must not replace what goes into it."""
    output = options.output or pathlib.PurePath(options.file).stem + ".tar.gz"
    sources = map(os.path.realpath, (options.file, *options.add))
    if not output.endswith((".tar.gz", ".tgz")) or os.path.realpath(output) in sources:
        raise BadInput(
            f'-o: "{output}" must end in .tar.gz, and must not be one of the files that go into '
            "the bundle"
        )
    return output


def main(words=None):
    options = parse(words)
    if options.check is not None:
        result = check(options.check)
        write_stdout(verdict_text(result))
        return int(not result.verdict.startswith("VALID"))
    output = output_path(options)
    archive, result = make(options.file, options.add)
    write_file(output, archive)
    write_stdout(f"{verdict_text(result)}{sum_line(digest_of(archive), output)}\n")
    return 0
