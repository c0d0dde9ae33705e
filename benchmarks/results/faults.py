# SPDX-License-Identifier: BSD-3-Clause
"""Faults of processes, planted in a job that runs on this machine."""

import os
import pathlib
import random
import signal
import threading
import time

GROUP = pathlib.Path("/sys/fs/cgroup/cpu/minitaw_tries")  # of control groups, version 1
PERIOD, QUOTA = 20000, 8000  # microseconds: 40 % of a core
LOOKS, PAUSE = 500, 0.02  # how often a process is looked for, and seconds in between


def process_of(program, rank):
    """The number of a rank's process; None if there is none."""
    command, variable = str(program).encode(), f"PMI_RANK={rank}".encode()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0] == command and variable in (process / "environ").read_bytes().split(b"\0"):
                return int(process.name)
        except OSError:
            pass
    return None


def when_there(program, rank, act):
    """In the background, as soon as the process of the rank is there."""

    def wait():
        for _ in range(LOOKS):
            if process := process_of(program, rank):
                return act(process)
            time.sleep(PAUSE)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def limit_processor(process):
    """Needs root."""
    GROUP.mkdir(exist_ok=True)
    (GROUP / "cpu.cfs_period_us").write_text(str(PERIOD))
    (GROUP / "cpu.cfs_quota_us").write_text(str(QUOTA))
    (GROUP / "cgroup.procs").write_text(str(process))


def stop(process):
    """In the midst of the work."""
    time.sleep(2 + 3 * random.random())
    os.kill(process, signal.SIGSTOP)
