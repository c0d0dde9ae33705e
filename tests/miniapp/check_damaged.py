# SPDX-License-Identifier: BSD-3-Clause
"""Damaged result files, given to every verb and script that reads them: success, or exit code 2 and one line on standard error.
Called with the program, a sound result file, the repository, a folder to write to, and how many."""

import contextlib
import io
import os
import pathlib
import random
import subprocess
import sys

PROGRAM, SAMPLE, REPOSITORY, FOLDER, COUNT = sys.argv[1:]
HERE = pathlib.Path(FOLDER)
COPY = HERE / "copy.h5"
sys.dont_write_bytecode = True
sys.path.insert(0, f"{REPOSITORY}/scripts")
from minitaw import command as package  # noqa: E402

SEED = int(os.environ.get("MINITAW_SEED", 20111741))
NUMBERS = random.Random(SEED)
SEALED = pathlib.Path(SAMPLE).read_bytes()
FILES = [SEALED]
VERBS = [["show"], ["run", HERE / "deck.toml", "-o"]]
SCRIPTS = {"report": ["-o", HERE / "report.html"], "compare": [SAMPLE], "export": [], "check-rules": [], "bundle": [],
           "timeline": ["--case", "0", "-o", HERE / "step.png"]}
DECK = 'schedule = "serial"\nlayers = 1\nhidden = 8\nheads = 1\nvocab = 8\nseq = 8\nmicro_batches = 1\nsteps = 3\nwarmup = 1\n'


def flip(file):
    copy = bytearray(file)
    for _ in range(NUMBERS.randrange(1, 20)):
        copy[NUMBERS.randrange(len(copy))] ^= 1 << NUMBERS.randrange(8)
    return bytes(copy)


def rename(file):
    """Another word where the seal, or the first attributes, have one."""
    word = NUMBERS.choice([b"miniTaw", b"schema 4", b"crc32", b"schema", b"format", b"summary", b"units"])
    return file.replace(word, NUMBERS.choice([b"xiniTaw", b"schema 9", b"schema -", b"", word[::-1]]), 1)


def damaged():
    """Flipped, cut, zeroed, with more in it, with the rest of another file, or renamed."""
    file = NUMBERS.choice(FILES)
    at = NUMBERS.randrange(len(file) + 1)
    pieces = [file[:at], file[:at] + bytes(len(file[at:at + 4096])) + file[at + 4096:], file[:at] + NUMBERS.randbytes(NUMBERS.randrange(1, 600)) + file[at:],
              file[:at] + NUMBERS.choice(FILES)[at:]]
    return NUMBERS.choice([flip(file), flip(file), *pieces, rename(file)])


def call(command):
    """The program, or a script without a new process: to import its libraries takes longer than most calls."""
    if command[0] == PROGRAM:
        return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=HERE, timeout=300)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(HERE), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = package.call(command[0], [*map(str, command[1:])])
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def check(command, refused=False):
    """Whether the file was refused."""
    done = call(command)
    told = f"seed {SEED}: {' '.join(map(str, command))}: exit {done.returncode}, {done.stderr!r}"
    assert done.returncode in ([2] if refused else [0, 1, 2]), told
    if done.returncode == 2:
        assert len(done.stderr.splitlines()) == 1 and done.stdout == "", told
        assert not refused or str(COPY) in done.stderr, told
    else:
        assert done.stderr == "", told
    return done.returncode == 2


def scripts():
    return {name: [name, COPY, *rest] for name, rest in SCRIPTS.items()}


def check_foreign():
    """Nothing of these kinds is ever accepted."""
    later = b"miniTaw result, schema 5, " + SEALED[len(b"miniTaw result, schema 4, "):]
    for content in (b"", b"hello\n", b"\x89HDF\r\n\x1a\n", SEALED[:-1], SEALED + b"\0", SEALED[512:], SEALED[:512], later, flip(SEALED)):
        COPY.write_bytes(content)
        for verb in VERBS:
            check([PROGRAM, *verb, COPY], refused=True)
        for script in scripts().values() if content in (b"", later) else []:
            check(script, refused=True)
        assert COPY.read_bytes() == content


def main():
    HERE.mkdir(parents=True, exist_ok=True)
    (HERE / "deck.toml").write_text(DECK)
    check_foreign()
    refused = {}
    for i in range(int(COUNT)):
        content = damaged()
        COPY.write_bytes(content)
        commands = {" ".join(map(str, verb)).replace(FOLDER + "/", ""): [PROGRAM, *verb, COPY] for verb in VERBS}
        commands |= scripts() if i % 10 == 1 else {}
        for name, command in commands.items():
            if name.startswith("run") and content == SEALED:
                continue  # not damaged: it would run
            refused[name] = refused.get(name, 0) + check(command)
    print(f"seed {SEED}: of {COUNT} damaged files refused: {refused}")


main()
