# SPDX-License-Identifier: BSD-3-Clause
"""A sweep is struck again and again at random moments: killed, told to end, one rank killed or
stopped, disk full, time over. After each blow the file opens and holds every case that was
finished, as it was; in the end `run` finishes the rest.

check_survival.py MPIEXEC FLAG PROGRAM FOLDER [BLOWS]   (each blow once; the long form is 100; 0:
SIGTERM in a step that lasts instead)
"""

import collections
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import programs

MPIEXEC, NUMBER, PROGRAM, FOLDER = sys.argv[1:5]
FOLDER = pathlib.Path(FOLDER)
DECK, FILE = FOLDER / "sweep.toml", FOLDER / "sweep.h5"
WATCHDOG = 3
PATIENCE = 120  # s: what a crowded machine may add to the watchdog before the job counts as hanging

TEXT = (
    'schedule = ["tawpipe", "ddp", "fsdp", "weipipe"]\ngroups = [1, "1+1"]\nlayers = 4\n'
    "hidden = 16\nheads = 2\nffn = 24\nvocab = 256\n"
    "seq = [9, 20, 33]\nmicro_batches = 4\nsteps = 3\nwarmup = 1\n"
)
CASES = 24


def ranks():
    """Process ids of the ranks that write the file, in the order of their rank: they are in process
    groups of their own."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0] == PROGRAM.encode() and str(FILE).encode() in words:
                rank = [
                    word
                    for word in (process / "environ").read_bytes().split(b"\0")
                    if word.startswith((b"PMI_RANK=", b"PMIX_RANK="))
                ]
                found.append((int(rank[0].split(b"=")[1]) if rank else 0, int(process.name)))
        except OSError:
            pass  # it has ended meanwhile
    return [process for _, process in sorted(found)]


def send(number, *processes):
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def fill_disk(job):
    """No file of rank 0 grows any more: its writes fail as on a full disk (SIGXFSZ is ignored, see
    start())."""
    for process in ranks()[:1]:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process, resource.RLIMIT_FSIZE, (4096, 4096))


def stop_one(job):
    stopped.clear()
    stopped.extend(chance.sample(list(enumerate(ranks())), 1) if len(ranks()) == 2 else [])
    send(signal.SIGSTOP, stopped[0][1] if stopped else job.pid)


stopped = []  # rank and process
STRIKES = {
    "kill_all": lambda job: send(signal.SIGKILL, *ranks(), job.pid),
    "kill_one": lambda job: send(signal.SIGKILL, chance.choice(ranks() or [job.pid])),
    "end_launcher": lambda job: send(signal.SIGTERM, job.pid),
    "end_ranks": lambda job: send(signal.SIGTERM, *ranks()),
    "stop_one": lambda job: stop_one(job),
    "fill_disk": fill_disk,
    "time_limit": lambda job: None,
}


def start(*options, watchdog=60):
    command = [
        MPIEXEC,
        NUMBER,
        "2",
        PROGRAM,
        "run",
        str(DECK),
        "-o",
        str(FILE),
        "--watchdog",
        str(watchdog),
        "--retry",
        *options,
    ]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        restore_signals=False,
        start_new_session=True,
    )


def finish(job, patience, what):
    try:
        return job.communicate(timeout=patience)
    except subprocess.TimeoutExpired as late:
        if what == "stop_one" and b"RESULT: " in (late.output or b""):
            # The run is over, the stopped rank has left MPI or is leaving it: only the launcher
            # waits for it.
            send(signal.SIGCONT, *ranks())
            return job.communicate(timeout=patience)
        send(signal.SIGKILL, *ranks())
        job.kill()
        said = job.communicate()
        raise AssertionError(
            f"{what}: the job hangs: {said[0][-2000:]} {said[1][-2000:]}"
        ) from None


def rows():
    """The last run of each case in the file, as a user reads them."""
    if not FILE.exists():
        return {}
    done = programs.call(PROGRAM, "show", FILE, "--json", timeout=PATIENCE)
    assert (
        done.returncode in (0, 1) and done.stderr == ""
    ), f"the file does not open: {done.returncode} {done.stderr}"
    return {row["identity"]: row for row in json.loads(done.stdout)["runs"]}


def finished(table):
    return {identity: row for identity, row in table.items() if row["status"] == "ok"}


def strike(blow):
    """Returns how the job ended, and how many cases are finished."""
    before = finished(rows())
    limit = chance.uniform(1, 5)
    job = start(
        *(["--time-limit", str(max(1, round(limit)))] if blow == "time_limit" else []),
        watchdog=WATCHDOG,
    )
    if blow != "time_limit":
        time.sleep(chance.uniform(0.05, 3))
        STRIKES[blow](job)
    said, complaint = finish(job, WATCHDOG + PATIENCE, blow)
    if (
        blow == "stop_one" and "no lane has moved" in complaint
    ):  # the sentence comes first, and names the stopped rank only
        assert stopped, (stopped, complaint)
        rank = stopped[0][0]
        assert complaint.startswith(f"minitaw: rank {rank} (node 0) does not answer\n"), complaint
        assert f"minitaw: rank {1 - rank}: no lane has moved" in complaint, complaint
    send(signal.SIGKILL, *ranks())  # a stopped rank outlives a launcher that was killed
    now = rows()
    announced = len(re.findall(r"(?m)^.* ok .*\[\d+/\d+\]$", said))
    assert (
        len(finished(now)) >= len(before) + announced
    ), f"{blow}: cases are lost: {said} {complaint}"
    for identity, row in before.items():
        assert now[identity] == row, f"{blow}: a finished case has changed"
    if job.returncode == 0:  # MPICH's launcher also returns 0 at times when a rank was killed
        assert (
            "RESULT: VALID" in said or "RESULT" not in said
        ), f"{blow}: exit 0 and not valid: {said}"
    return job.returncode, len(finished(now))


def finish_sweep():
    job = start()
    said, complaint = finish(job, 300, "the rest")
    assert job.returncode == 0 and complaint == "", f"exit {job.returncode}: {said} {complaint}"
    table = rows()
    assert len(table) == CASES and len(finished(table)) == CASES, len(table)
    left = sorted(path.name for path in FOLDER.glob("sweep.h5?*"))
    assert not left, f"files are left behind: {left}"
    FILE.unlink()


def wait_for(condition, what):
    end = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def running_case():
    """What runs, as the file beside the record names it."""
    mark = FILE.with_name(FILE.name + ".running")
    return mark.read_text() if mark.exists() else ""


def check_two_signals():
    """SIGTERM in a step that lasts: rank 0, and no other, says at once what will happen; a second
    SIGTERM ends the run now, and finished cases are kept."""
    sentence = "minitaw: the run ends after this step; a second signal ends it now\n"
    one = ["schedule=ddp", "groups=1", "seq=9"]
    # its steps take minutes (tokens), and its check against the reference is left out as too long
    long = [
        "schedule=ddp",
        "groups=1",
        "hidden=512",
        "heads=8",
        "ffn=1536",
        "micro_batches=64",
        "seq=8192",
    ]
    settings = [[word for setting in case for word in ("--set", setting)] for case in (one, long)]
    job = start(*settings[0])
    assert finish(job, PATIENCE, "a case")[1] == "" and job.returncode == 0
    job = start(*settings[1])
    try:
        wait_for(
            lambda: len(ranks()) == 2 and running_case(),
            "the case does not begin",
        )
        send(signal.SIGTERM, *ranks())
        time.sleep(2.5)
        assert job.poll() is None and len(ranks()) == 2, "the first signal has ended the step"
        send(signal.SIGTERM, *ranks())
        complaint = finish(job, PATIENCE, "two signals")[1]
        assert complaint.startswith(sentence) and complaint.count("second signal") == 1, complaint
        # not its exit code: MPICH's launcher says 0 at times where all ranks were killed at once
        wait_for(lambda: not ranks(), "ranks are left")
    finally:
        send(signal.SIGKILL, *ranks(), job.pid)
    assert [(row["seq"], row["status"]) for row in rows().values()] == [(9, "ok")], rows()


seed = int(os.environ.get("MINITAW_SEED", time.time()))
print(f"MINITAW_SEED={seed}")
chance = random.Random(seed)
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
DECK.write_text(TEXT, encoding="utf-8")
ends = collections.Counter()
count = int(sys.argv[5]) if len(sys.argv) > 5 else len(STRIKES)
for blow in chance.sample([*STRIKES] * -(-count // len(STRIKES)), count):
    code, cases = strike(blow)
    ends[f"{blow}, exit {code}"] += 1
    if cases == CASES:
        finish_sweep()
(finish_sweep if count > 0 else check_two_signals)()
for end, count in sorted(ends.items()):
    print(f"{count:4} {end}")
