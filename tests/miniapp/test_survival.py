# SPDX-License-Identifier: BSD-3-Clause
"""A sweep is struck again and again at random moments: killed, told to end, one rank killed or
stopped, disk full, time over. After each blow the file opens and holds every case that was
finished, as it was; in the end `run` finishes the rest."""

import contextlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import time

import h5py
import pytest
from minitaw import evidence, record
from programs import (
    MINITAW,
    MPIEXEC,
    SMALL,
    call,
    minitaw,
    output_of,
    refused,
    says,
    settings,
    told,
)

WATCHDOG = 3
PATIENCE = 120  # s: what a crowded machine may add to the watchdog before the job counts as hanging
DECK = (
    SMALL
    + """schedule = ["tawpipe", "ddp", "fsdp", "weipipe"]
groups = [1, "1+1"]
vocab = 256
seq = [9, 20, 33]
micro_batches = 4
"""
)
CASES = 24


def send(number, *processes):
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


class Job:
    """The program on two ranks, which write sweep.h5 in the test's folder."""

    file = pathlib.Path("sweep.h5")

    def __init__(self, *options, watchdog=60, retry=True):
        pathlib.Path("sweep.toml").write_text(DECK)
        words = [MPIEXEC, "-n", "2", MINITAW, "run", "sweep.toml", "-o", self.file.resolve()]
        words += ["--watchdog", watchdog, *["--retry"] * retry, *options]
        # writes beyond a limit then fail as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.process = subprocess.Popen(
            [*map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            restore_signals=False,
            start_new_session=True,
        )

    def ranks(self):
        """Process ids in the order of ranks, which are in process groups of their own."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                words = (process / "cmdline").read_bytes().split(b"\0")
                if words[0] != bytes(MINITAW) or bytes(self.file.resolve()) not in words:
                    continue
                rank = re.search(rb"PMIX?_RANK=(\d+)", (process / "environ").read_bytes())
                found.append((int(rank[1]) if rank else 0, int(process.name)))
        return [process for _, process in sorted(found)]

    def end(self, may_wait_for_stopped=False):
        """What it said on standard output and standard error."""
        try:
            return self.process.communicate(timeout=WATCHDOG + PATIENCE)
        except subprocess.TimeoutExpired as late:
            # Where the run is over and the stopped rank is leaving MPI, only the launcher waits.
            if may_wait_for_stopped and b"RESULT: " in (late.output or b""):
                send(signal.SIGCONT, *self.ranks())
                return self.process.communicate(timeout=PATIENCE)
            send(signal.SIGKILL, *self.ranks())
            self.process.kill()
            raise AssertionError(f"the job hangs: {self.process.communicate()}") from None


def cases():
    """The last run of each case in the file, as a user reads them."""
    if not Job.file.exists():
        return {}
    done = call(MINITAW, "show", Job.file, "--json")
    assert done.returncode in (0, 1) and done.stderr == "", told(done)
    return {row["identity"]: row for row in json.loads(done.stdout)["runs"]}


def verdict():
    """Of the file: one, however it is read."""
    said = json.loads(call(MINITAW, "show", Job.file, "--json").stdout)["verdict"]
    text = call(MINITAW, "show", Job.file)
    with h5py.File(Job.file) as file:
        assert file["runs"].attrs["verdict"] == said
    assert text.stdout.splitlines()[-1] == f"RESULT: {said}"
    assert text.returncode == (0 if said.startswith("VALID") else 1)
    return said


def finished(table):
    return {identity: row for identity, row in table.items() if row["status"] == "ok"}


def fill_disk(job, chance):
    """No file of rank 0 grows any more."""
    for process in job.ranks()[:1]:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process, resource.RLIMIT_FSIZE, (4096, 4096))


def stop_one(job, chance):
    """Returns the rank, where both were running."""
    ranks = job.ranks()
    if len(ranks) != 2:
        return send(signal.SIGSTOP, job.process.pid)
    rank = chance.randrange(2)
    send(signal.SIGSTOP, ranks[rank])
    return rank


STRIKES = {
    "kill_all": lambda job, chance: send(signal.SIGKILL, *job.ranks(), job.process.pid),
    "kill_one": lambda job, chance: send(
        signal.SIGKILL, chance.choice(job.ranks() or [job.process.pid])
    ),
    "end_launcher": lambda job, chance: send(signal.SIGTERM, job.process.pid),
    "end_ranks": lambda job, chance: send(signal.SIGTERM, *job.ranks()),
    "stop_one": stop_one,
    "fill_disk": fill_disk,
    "time_limit": None,
}


def strike(blow, chance):
    before = finished(cases())
    limit = ["--time-limit", chance.randint(1, 5)] if blow == "time_limit" else []
    job, stopped = Job(*limit, watchdog=WATCHDOG), None
    if not limit:
        time.sleep(chance.uniform(0.05, 3))
        stopped = STRIKES[blow](job, chance)
    said, complaint = job.end(blow == "stop_one")
    if blow == "stop_one" and "no lane has moved" in complaint:
        # the sentence comes first, and names the stopped rank only
        assert complaint.startswith(f"minitaw: rank {stopped} (node 0) does not answer\n")
        assert f"minitaw: rank {1 - stopped}: no lane has moved" in complaint
    send(signal.SIGKILL, *job.ranks())  # a stopped rank outlives a launcher that was killed
    now = cases()
    announced = len(re.findall(r"(?m)^.* ok .*\[\d+/\d+\]$", said))
    assert len(finished(now)) >= len(before) + announced, f"cases are lost: {said} {complaint}"
    for identity, row in before.items():
        assert now[identity] == row, "a finished case has changed"
    if Job.file.exists():
        assert "RESULT: " not in said or f"RESULT: {verdict()}\n" in said
        unfinished = rf"INVALID: (stopped .*, )?unfinished cases: {CASES - len(now)} \("
        assert bool(re.match(unfinished, verdict())) == (len(now) < CASES), verdict()
    if job.process.returncode == 0:  # MPICH's launcher may return 0 where a rank was killed
        assert "RESULT: VALID" in said or "RESULT" not in said


def finish_sweep():
    job = Job()
    said, complaint = job.end()
    assert job.process.returncode == 0 and complaint == "", said
    table = cases()
    assert len(table) == len(finished(table)) == CASES
    assert not [*pathlib.Path().glob("sweep.h5?*")], "files are left behind"
    Job.file.unlink()


def test_no_finished_case_is_lost():
    """MINITAW_SEED=N in the environment repeats a failure."""
    seed = int(os.environ.get("MINITAW_SEED", time.time()))
    print(f"MINITAW_SEED={seed}")
    chance = random.Random(seed)
    for blow in chance.sample([*STRIKES], len(STRIKES)):
        print(blow)
        strike(blow, chance)
        if len(finished(cases())) == CASES:
            finish_sweep()
    finish_sweep()


def wait_for(condition, what):
    end = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def is_running(job, seq):
    """Whether its mark names a case of this length."""
    mark, ranks = pathlib.Path("sweep.h5.running"), job.ranks()
    said = mark.read_text() if mark.exists() else ""
    return len(ranks) == 2 and f" {ranks[0]} " in said and f" seq={seq} " in said


# the second of three cases takes seconds, in which the job is struck
THREE = settings(schedule="ddp", groups=1, seq="9,2048,10", micro_batches=16)


def test_a_case_that_kills_the_job_is_tried_last_and_once_more():
    for finished_before in [{9}, {9, 10}]:
        job = Job(*THREE, retry=False)
        wait_for(lambda: is_running(job, 2048), "the case does not begin")
        send(signal.SIGKILL, *job.ranks(), job.process.pid)
        job.end()
        wait_for(lambda: not job.ranks(), "ranks are left")
        assert {row["seq"] for row in finished(cases()).values()} == finished_before
    job = Job(*THREE, retry=False)
    said, complaint = job.end()
    assert job.process.returncode == 1 and complaint == ""
    says(said, "(ddp) ended error: the job died", "--retry runs it again", "has 2 of 3 cases")
    assert "[1/" not in said and verdict().startswith("INVALID: 1 of 3 cases")
    job = Job(*THREE)
    assert job.end()[1] == "" and job.process.returncode == 0
    assert len(finished(cases())) == 3
    assert evidence.contradictions(record.load(Job.file)) == []


def test_two_runs_do_not_write_one_file():
    """The second one says whose it is and ends at once; the first loses nothing."""
    job = Job(*THREE)
    wait_for(lambda: is_running(job, 2048), "the case does not begin")
    again = ["run", "sweep.toml", "-o", Job.file, *THREE]
    refused(minitaw(*again), "sweep.h5", f"process {job.ranks()[0]} of the host", "-o")
    assert job.end()[1] == "" and job.process.returncode == 0
    assert len(finished(cases())) == 3
    pathlib.Path("sweep.h5.running").write_text("elsewhere pid:[1] 12 34\na case\n")
    refused(minitaw(*again), "process 12 of the host elsewhere", "sweep.h5.running", "-o")


@pytest.fixture(params=["memory.limit_in_bytes", "memory.max"])
def limit(request):
    """Of a control group of this process's for the test, of version 1 or 2: the file of its limit."""
    entries = [line.split(":", 2) for line in open("/proc/self/cgroup").read().splitlines()]
    controller, mount = ("", "") if request.param == "memory.max" else ("memory", "memory")
    own = next((path for _, name, path in entries if name == controller), "/").lstrip("/")
    group = pathlib.Path("/sys/fs/cgroup", mount, own, f"minitaw-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group of this version can be made here")
    try:
        if not (group / request.param).exists():
            pytest.skip("no control group of this version limits memory here")
        yield group / request.param
    finally:
        group.rmdir()


def test_a_case_that_no_control_group_allows_is_skipped(limit):
    pathlib.Path("sweep.toml").write_text(DECK)
    limit.write_text(str(1 << 28))
    words = settings(schedule="ddp", groups=1, seq="9,4096", micro_batches=8, micro_batch=64)
    run = [MINITAW, "run", "sweep.toml", "-o", Job.file, *words]
    enter = f"echo $$ > {limit.parent}/cgroup.procs; exec $0 $@"
    done = call("sh", "-c", enter, *run)
    assert done.returncode == 1, told(done)
    small, large = sorted(cases().values(), key=lambda row: row["seq"])
    assert small["status"] == "ok" and large["status"] == "skipped"
    says(large["reason"], "(node 0, ", limit)


def test_a_file_of_data_that_has_changed_is_not_gone_on_with():
    data = pathlib.Path("data.txt")
    data.write_bytes(bytes(range(200)))
    pathlib.Path("sweep.toml").write_text(DECK)
    run = ["run", "sweep.toml", "-o", Job.file, "--set=data=data.txt"]
    output_of(minitaw(*run, *settings(schedule="ddp", groups=1, seq=9)))
    before = Job.file.read_bytes()
    data.write_bytes(bytes(range(1, 201)))
    for seq in (9, 20):
        words = settings(schedule="ddp", groups=1, seq=seq)
        refused(minitaw(*run, *words), "sweep.h5", "data.txt", "checksum", "-o")
    assert Job.file.read_bytes() == before


def told_of(number, *ranks):
    """The one line that says what a signal does."""
    return re.compile(
        rf"minitaw: {signal.Signals(number).name} came to rank ({'|'.join(map(str, ranks))}): "
        r"the run ends after this step; a second signal ends it now\n"
    )


ONE_RANK = {"ranks": 1, "schedule": "serial"}


@pytest.mark.parametrize(
    "number, ranks, changes",
    [
        (signal.SIGTERM, [0], {}),
        (signal.SIGINT, [1], {}),
        (signal.SIGHUP, [1], {}),
        (signal.SIGUSR1, [1], ONE_RANK),  # it has no part in the case
        (signal.SIGUSR2, [0, 1], {}),
        (signal.SIGXCPU, [1, 0], {}),
    ],
)
def test_a_signal_ends_a_run(number, ranks, changes):
    """To whichever rank it comes: the case is left after its step, the file is complete."""
    endless = {"schedule": "ddp", "seq": "9,20", "groups": 1, "steps": 1000000} | changes
    job = Job(*settings(**endless))
    wait_for(lambda: is_running(job, 9), "the case does not begin")
    processes = job.ranks()
    send(number, *(processes[rank] for rank in ranks))
    said, complaint = job.end()
    assert told_of(number, *ranks).fullmatch(complaint)
    assert job.process.returncode == 1
    reason = f"stopped by {signal.Signals(number).name}, unfinished cases: 2"
    assert verdict() == f"INVALID: {reason} (the same command continues)"
    assert f"\nRESULT: {verdict()}\n" in said
    assert not [*pathlib.Path().glob("sweep.h5?*")], "files are left behind"


def test_a_second_signal_ends_a_step_that_lasts():
    """One line says at once what the first one does, whose rank has it; finished cases are kept."""
    job = Job(*settings(schedule="ddp", groups=1, seq=9))
    assert job.end()[1] == "" and job.process.returncode == 0
    # its steps take minutes, and its check against the reference is left out as too long
    long = {"hidden": 512, "heads": 8, "ffn": 1536, "micro_batches": 64, "seq": 8192}
    job = Job(*settings(schedule="ddp", groups=1, **long))
    try:
        wait_for(lambda: is_running(job, 8192), "the case does not begin")
        send(signal.SIGUSR1, job.ranks()[1])
        assert told_of(signal.SIGUSR1, 1).fullmatch(job.process.stderr.readline())
        send(signal.SIGXCPU, *job.ranks())
        time.sleep(2.5)
        send(signal.SIGXCPU, *job.ranks())  # the kernel repeats it
        time.sleep(0.5)
        assert job.process.poll() is None and len(job.ranks()) == 2
        send(signal.SIGTERM, *job.ranks())
        assert "second signal" not in job.end()[1]
        # not its exit code: MPICH's launcher says 0 at times where all ranks were killed at once
        wait_for(lambda: not job.ranks(), "ranks are left")
    finally:
        send(signal.SIGKILL, *job.ranks(), job.process.pid)
    assert [(row["seq"], row["status"]) for row in cases().values()] == [(9, "ok")]
