"""SIGTERM in a step that lasts: rank 0, and no other, says at once what will happen; a second SIGTERM ends the run now, and finished
cases are kept. A step that ends is the end of the run after the first one.

check_signals.py MPIEXEC FLAG PROGRAM FOLDER"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import processes
from processes import send

MPIEXEC, NUMBER, PROGRAM, FOLDER = sys.argv[1:]
FOLDER = pathlib.Path(FOLDER)
FILE, SAID = FOLDER / "out.h5", FOLDER / "stderr"
SENTENCE = "minitaw: SIGTERM: the run ends after this step; a second SIGTERM ends it now\n"
LIMIT = 200  # s, for what takes a moment on a machine that is not crowded

SHORT = ["schedule=ddp", "layers=2", "hidden=16", "heads=2", "ffn=24", "vocab=64", "micro_batches=2", "seq=8"]
# its steps take minutes (tokens), and its check against the reference is left out as too long
LONG = ["schedule=ddp", "layers=4", "hidden=512", "heads=8", "vocab=64", "micro_batches=64", "seq=8192"]


def ranks():
    return processes.ranks(PROGRAM, FILE)


def busy_seconds(process):
    """Seconds of processor time that a process has taken."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(settings, *options):
    deck = FOLDER / "deck.toml"
    deck.write_text('schedule = "ddp"\n', encoding="utf-8")
    overrides = [word for setting in settings for word in ("--set", setting)]
    return subprocess.Popen([MPIEXEC, NUMBER, "2", PROGRAM, "run", str(deck), "-o", str(FILE), *overrides, *options],
                            stdout=subprocess.DEVNULL, stderr=SAID.open("w", encoding="utf-8"), start_new_session=True)


def wait_for(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    done = start([*SHORT, "steps=3"])
    assert done.wait(LIMIT) == 0, SAID.read_text(encoding="utf-8")

    job = start(LONG)
    try:
        wait_for(lambda: len(ranks()) == 2 and all(busy_seconds(rank) > 2 for rank in ranks()), "the step does not begin")
        send(signal.SIGTERM, *ranks())
        wait_for(lambda: SAID.read_text(encoding="utf-8").endswith("\n"), "nothing is said")
        time.sleep(2.5)
        assert SAID.read_text(encoding="utf-8") == SENTENCE, SAID.read_text(encoding="utf-8")
        assert job.poll() is None and len(ranks()) == 2, "the first signal has ended the step"
        send(signal.SIGTERM, *ranks())
        job.wait(LIMIT)
        # not its exit code: MPICH's launcher says 0 at times where all ranks were killed at once
        wait_for(lambda: not ranks(), "ranks are left")
    finally:
        send(signal.SIGKILL, *ranks())
        job.kill()
    rows = json.loads(subprocess.run([PROGRAM, "show", FILE, "--json"], capture_output=True, text=True).stdout)
    assert [(row["seq [token]"], row["status"]) for row in rows] == [(8, "ok")], rows


main()
