# SPDX-License-Identifier: BSD-3-Clause
"""No file of hostile.py gives a traceback, reads another file, takes more than 1 GB, is changed by
who refuses it, is refused without its name, or gets a VALID that it does not deserve: from any
command in scripts/, from minitaw show, and from minitaw run -o. Called with the repository, the
sample, a folder, the program, and how many files (300 is the full set: docs/results.md)."""

import importlib
import json
import os
import pathlib
import random
import resource
import signal
import sys
import time
import traceback

PROGRAM, COUNT = pathlib.Path(sys.argv[4]).resolve(), int(sys.argv[5])  # before the folder changes

import h5py
import hostile
import hostile_input
from hostile_datasets import CANARY
from minitaw import record
from support import FOLDER, SAMPLE, call

# Once, before all children.
for module in (
    "check_rules",
    "compare",
    "plot",
    "report",
    "timeline",
    "trend",
):
    importlib.import_module(f"minitaw.{module}")

SEED = int(os.environ.get("MINITAW_SEED", random.randrange(10**8)))
BASE, FILE = FOLDER / "base.h5", FOLDER / "f.h5"
MOST_MEMORY, MOST_SECONDS = 1 << 20, 60  # KiB; of all commands for a file
DECK = """schedule = "serial"
layers = 1
hidden = 8
heads = 1
vocab = 8
seq = 8
micro_batches = 1
steps = 3
warmup = 1
"""
COMMANDS = {
    "report": ["f.h5", "-o", "out.html", "-o", "out.svg"],
    "compare": ["f.h5", "base.h5"],
    "compare ": ["base.h5", "f.h5", "--junit", "out.xml"],
    "trend": ["f.h5", "-o", "out.png"],
    "timeline": ["f.h5", "--case", "0", "-o", "out.svg"],
    "check-rules": ["f.h5", "--archive", "out.tar.gz"],
    "plot": ["f.h5", "-o", "out.csv"],
}


def complaint_of(name, code, out, err):
    """What is wrong with an answer; empty: nothing."""
    if code not in (0, 1, 2) or "Traceback" in out + err:
        return f"{name}: exit {code}: {err[-1500:]}"
    if code == 2 and (err.count("\n") != 1 or out):
        return f"{name}: not one sentence: {out!r} {err!r}"
    return f"{name}: another file was read" if CANARY in out + err else ""


def scripts(must_refuse):
    """Complaints about all commands in scripts/."""
    found = []
    for name, arguments in COMMANDS.items():
        try:
            done = call(name.strip(), *arguments)
        except Exception:
            found.append(f"{name}: {traceback.format_exc()[-1500:]}")
            continue
        found.append(complaint_of(name, done.returncode, done.stdout, done.stderr))
        if done.returncode == 2 and "f.h5" not in done.stderr:
            found.append(f"{name}: does not name the file: {done.stderr}")
        if must_refuse and done.returncode != 2:
            found.append(f"{name}: exit {done.returncode}, must refuse it: {done.stdout[-300:]}")
    for output in FOLDER.glob("out.*"):
        if CANARY.encode() in output.read_bytes():
            found.append(f"{output.name} holds another file")
        output.unlink()
    return found


def in_child(work):
    """What work() returns of a process of its own: a signal, the time and the memory that it takes
    end only that."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(MOST_SECONDS)
            os.write(writer, json.dumps(work())[-60000:].encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    _, status, used = os.wait4(child, 0)
    found = (
        json.loads(said)
        if said
        else [f"ended by {status}: {signal.Signals(status).name if os.WIFSIGNALED(status) else ''}"]
    )
    return found + (
        [f"scripts take {used.ru_maxrss >> 10} MiB"] if used.ru_maxrss > MOST_MEMORY else []
    )


def program(must_refuse, *arguments):
    """Complaints about a call of minitaw."""
    before = FILE.read_bytes()
    with open("out.stdout", "w+") as out, open("out.stderr", "w+") as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            signal.alarm(MOST_SECONDS)
            os.execv(PROGRAM, [str(PROGRAM), *arguments])
        _, status, used = os.wait4(child, 0)
        texts = [
            pathlib.Path(name).read_text(errors="replace") for name in ("out.stdout", "out.stderr")
        ]
    code, name = os.waitstatus_to_exitcode(status), f"minitaw {arguments[0]}"
    found = [
        complaint_of(name, code, *texts),
        f"{name} takes {used.ru_maxrss >> 10} MiB" if used.ru_maxrss > MOST_MEMORY else "",
    ]
    if code == 2 and "f.h5" not in texts[1]:
        found.append(f"{name}: does not name the file: {texts[1]}")
    if code == 2 and FILE.read_bytes() != before:
        found.append(f"{name} changed the file that it refuses")
    if must_refuse and code != 2:
        found.append(f"{name}: exit {code}, must refuse it: {texts[0][-200:]}")
    return found


def tried(damage):
    hostile.made(BASE, FILE, damage)
    by_program = damage.is_refused is True
    found = in_child(lambda: scripts(damage.is_refused)) + program(by_program, "show", "f.h5")
    found += program(by_program, "run", "deck.toml", "-o", "f.h5")
    return [f"{damage.name}: {one}" for one in found if one]


def answered(name, *arguments, refused=False):
    """Complaints about one call of a script."""
    try:
        done = call(name, *arguments)
    except Exception:
        return [traceback.format_exc()[-1500:]]
    found = complaint_of(name, done.returncode, done.stdout, done.stderr)
    return [found] if found else [f"exit {done.returncode}"] * (refused and done.returncode != 2)


def others():
    """Complaints about other input: archives are all refused, the rest may have a sense."""

    def every(kind, contents, name, *arguments):
        found = []
        for what, content in contents.items():
            pathlib.Path(arguments[0]).write_bytes(
                content if isinstance(content, bytes) else content.encode()
            )
            said = answered(name, *arguments, refused=kind == "archive")
            found += [f"{kind} with {what}: {one}" for one in said if one]
        return found

    return [
        *in_child(lambda: every("archive", hostile_input.ARCHIVES, "check-rules", "x.tar.gz")),
        *in_child(
            lambda: every(
                "timeline", hostile_input.timelines(), "timeline", "x.json", "-o", "out.svg"
            )
        ),
        *in_child(
            lambda: every(
                "prediction", hostile_input.predictions(), "plot", "x.json", "-o", "out.csv"
            )
        ),
    ]


for left in FOLDER.iterdir():
    left.unlink()
(FOLDER / "deck.toml").write_text(DECK)
(FOLDER / "canary").write_text(CANARY)
with h5py.File(FOLDER / "canary.h5", "w") as other:
    other["x"] = CANARY
hostile.sound(SAMPLE, BASE)
print(f"MINITAW_SEED={SEED}")
begin = time.monotonic()
chosen = hostile.damages(BASE, SEED, COUNT)
complaints = others() + [one for damage in chosen for one in tried(damage)]
sound = tried(hostile.Damage("nothing is done", hostile.unchanged, False))
if len(record.load(FILE).cases) != 1 + len(record.load(BASE).cases):
    sound.append("a sound file is not gone on with")
print(
    f"{len(chosen)} files, {time.monotonic() - begin:.0f} s, scripts and program take at most "
    f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10} MiB"
)
if complaints + sound:
    raise SystemExit("\n".join([*complaints[:40], *sound, f"{len(complaints)} complaints"]))
