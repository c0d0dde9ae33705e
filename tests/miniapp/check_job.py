"""The program under mpiexec: a sweep that is killed at random moments loses nothing, bad input ends on every rank with
exit 2, verify says what it found. Called with mpiexec, its -n flag, the program and a folder to write to."""

import csv
import io
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

MPIEXEC, NUMBER, PROGRAM, FOLDER = sys.argv[1:]
FOLDER = pathlib.Path(FOLDER)
DECK = FOLDER / "job.toml"
FILE = FOLDER / "job.h5"

TEXT = """
schedule = ["tawpipe", "ddp"]
ranks = [2, 3]
groups = [1, "1+1", "1+2"]
layers = 4
hidden = 16
heads = 2
ffn = 24
vocab = 256
data = "/usr/share/common-licenses/GPL-3"
seq = [9, 20]
micro_batches = 6
steps = 3
warmup = 1
"""


def command(ranks, *arguments):
    return [MPIEXEC, NUMBER, str(ranks), PROGRAM, *map(str, arguments)]


def call(ranks, *arguments):
    return subprocess.run(command(ranks, *arguments), capture_output=True, text=True, cwd=FOLDER, timeout=240)


def rows(file=FILE):
    """Cases in the file, as a user reads them after the kill."""
    if not file.exists():
        return []
    done = subprocess.run([PROGRAM, "show", file, "--csv"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"after a kill: {done.stderr}"
    return list(csv.DictReader(io.StringIO(done.stdout)))


def kill_all():
    """Launcher and ranks, which are in process groups of their own: found by the file that they write."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if str(FILE).encode() in words and int(process.name) != os.getpid():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            pass  # it has ended meanwhile


def kill_after(seconds):
    """Starts the sweep, kills every process of it, returns what it had said."""
    job = subprocess.Popen(command(3, "run", DECK, "-o", FILE), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                           cwd=FOLDER, text=True)
    time.sleep(seconds)
    kill_all()
    said, _ = job.communicate(timeout=60)
    return said


def check_kill():
    seed = int(os.environ.get("MINITAW_SEED", time.time()))
    print(f"MINITAW_SEED={seed}")
    chance = random.Random(seed)
    finished = 0
    for _ in range(6):
        said = kill_after(chance.uniform(0.2, 2.5))
        announced = finished + sum(" to go]" in line for line in said.splitlines())
        now = [row for row in rows() if row["status"] == "ok"]
        assert len(now) >= announced, f"{announced} cases announced, {len(now)} in the file"
        finished = len(now)
    done = call(3, "run", DECK, "-o", FILE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", done.stderr
    assert done.stdout.rstrip().splitlines()[-2] == "RESULT: VALID", done.stdout
    cases = rows()
    assert len(cases) == 16 and all(row["status"] == "ok" for row in cases), len(cases)
    again = call(3, "run", DECK, "-o", FILE)
    assert again.returncode == 0 and "16 of 16 cases" in again.stdout, again.stdout
    assert not list(FOLDER.glob("job.h5?*")), "temporary files are left behind"


def check_refusals():
    for arguments, word in [(["run", DECK, "--set", "heads=3"], "heads"),
                            (["run", DECK, "--set", "ranks=7"], "ranks"),
                            (["run", DECK, "--set", "dtype=bf16", "--set", "attention=host", "-o", FOLDER / "no.h5"],
                             "attention = host"),
                            (["run", DECK, "--set", "data=/nonexistent"], "/nonexistent"),
                            (["run", DECK, "-o", FOLDER / "no/such/folder.h5"], "folder"),
                            (["verify", FOLDER / "missing.toml"], "missing.toml"),
                            (["verify", DECK, "--set", "groups=\"1+1+5\""], "groups")]:
        done = call(3, *arguments)
        assert done.returncode == 2, f"{arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("minitaw: ") and word in lines[0], f"{arguments}: {done.stderr}"


def check_bf16():
    """Both precisions in one sweep; the kernel that ran is named."""
    file = FOLDER / "bf16.h5"
    done = call(3, "run", DECK, "--set", "dtype=fp32,bf16", "--set", "seq=9", "--set", "ranks=3", "--set", "groups=1+2",
                "-o", file)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    cases = rows(file)
    assert {(row["dtype"], row["schedule"]) for row in cases} == {
        (dtype, schedule) for dtype in ("fp32", "bf16") for schedule in ("tawpipe", "ddp")}, cases
    for row in cases:
        assert row["attention"] == "auto" and row["attention_used"] not in ("", "auto"), row
        assert row["transport_used"].split()[0] in ("mpi", "nccl"), row
        assert 0 <= float(row["gradient_error"]) < (1e-5 if row["dtype"] == "fp32" else 1e-2), row


def check_verify():
    done = call(3, "verify", DECK, "--set", "seq=9", "--set", "ranks=3", "--set", "groups=1,1+2,3")
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    assert done.stdout.count(" ok\n") == 7, done.stdout
    assert done.stdout.endswith("RESULT: VALID\n"), done.stdout


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    DECK.write_text(TEXT, encoding="utf-8")
    check_refusals()
    check_bf16()
    check_verify()
    check_kill()
