# SPDX-License-Identifier: BSD-3-Clause
"""Files that are no sound result, given to every verb and script that reads them: exit code 2, one
line on standard error that names the file, and the file stays as it is. That the seal notices all
damage is tested in tests/record and in tests/python/check_record.py. Called with the program, a
sound result file, the repository and a folder to write to.
"""

import contextlib
import io
import pathlib
import subprocess
import sys

import programs

PROGRAM, SAMPLE, REPOSITORY, FOLDER = sys.argv[1:]
HERE, COPY = pathlib.Path(FOLDER), pathlib.Path(FOLDER) / "copy.h5"
sys.dont_write_bytecode = True
sys.path.insert(0, f"{REPOSITORY}/scripts")
from minitaw import command as package  # noqa: E402

SEALED = pathlib.Path(SAMPLE).read_bytes()
COMMANDS = [
    [PROGRAM, "show", COPY],
    [PROGRAM, "run", HERE / "deck.toml", "-o", COPY],
    ["report", COPY, "-o", HERE / "report.html"],
    ["compare", COPY, SAMPLE],
    ["export", COPY],
    ["check-rules", COPY],
    ["bundle", COPY],
    ["timeline", COPY, "--case", "0", "-o", HERE / "step.png"],
]
DECK = 'schedule = "serial"\nlayers = 1\nhidden = 8\nheads = 1\nvocab = 8\nseq = 8\nmicro_batches = 1\nsteps = 3\nwarmup = 1\n'


def flipped(bit):
    return SEALED[: bit // 8] + bytes([SEALED[bit // 8] ^ 1 << bit % 8]) + SEALED[bit // 8 + 1 :]


def call(command):
    """The program, or a script without a new process: to import its libraries takes longer than
    most calls."""
    if command[0] == PROGRAM:
        return programs.call(*command, cwd=HERE)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(HERE), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = package.call(command[0], [*map(str, command[1:])])
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


HERE.mkdir(parents=True, exist_ok=True)
(HERE / "deck.toml").write_text(DECK)
LATER = b"miniTaw result, schema 5, " + SEALED[len(b"miniTaw result, schema 4, ") :]
for content in (
    b"",
    b"hello\n",
    b"\x89HDF\r\n\x1a\n",
    SEALED[:-1],
    SEALED + b"\0",
    SEALED[512:],
    SEALED[:512],
    LATER,
    flipped(100),
    flipped(8 * len(SEALED) - 1),
):
    COPY.write_bytes(content)
    for command in COMMANDS:
        name = "minitaw" if command[0] == PROGRAM else command[0]
        programs.refused(call(command), COPY, name=name)
    assert COPY.read_bytes() == content
