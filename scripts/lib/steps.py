# SPDX-License-Identifier: BSD-3-Clause
"""What scripts/gpu-check and scripts/gpu-speed share: the command line, the programs and their
libraries, steps with a time limit, and what comes back: table.txt, log.txt and a folder of
files."""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parents[2]  # the repository or the packed folder
NOT_WELL = (
    r"^\[  FAILED  \]|FAILED TEST|thrown in auxiliary|^RESULT: INVALID|^WRONG:|SUMMARY: [1-9]"
)
TOLD = r"FAILED|Failure|[Ee]rror|minitaw:|RESULT|^WRONG:|rank \d+:"
LONGEST = 140  # letters of a detail
# What a program says when all is well. An exit code of 0 proves nothing: MPICH's launcher now and
# then loses that of a rank, and GoogleTest is content with 0 tests.
WELL = {
    r"(^| )test_": (r"^\[  PASSED  \] [1-9]", "no test was run"),
    r"(^| )minitaw (run|verify|show) ": (r"^RESULT: VALID", "no verdict"),
    r"(^| )minitaw plan .*--json": (r'"fits": (true|false)', "no device"),
    r"(^| )minitaw_kernels .*--verify": (
        r"^(\d+) of \1 kernels are right",
        "no kernel was verified",
    ),
    r"(^| )compute-sanitizer .*memcheck": (r"ERROR SUMMARY: 0 errors", "no summary of memcheck"),
    r"(^| )compute-sanitizer .*racecheck": (
        r"RACECHECK SUMMARY: 0 hazards",
        "no summary of racecheck",
    ),
}
KERNELS_OF_A_MODEL = (
    "minitaw_kernels --tokens 16384 --hidden 4096 --ffn 11008 --vocab 32000 --heads 32 "
    "--dtype bf16"
).split()
# Programs that a machine or a build may lack.
MAY_LACK = r"test_\w+|minitaw_kernels|compute-sanitizer"


def settings(**keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def answer(command):
    """What a command says that only tells something."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
        return done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def end_all(process, mark):
    """Ends what a step has left: an orphaned rank would keep the device. Launchers give ranks
    sessions of their own, so the process group is not enough; all inherit a variable."""
    alive, until = True, time.monotonic() + 8
    while alive and time.monotonic() < until:
        alive = False
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)
                    alive = True
        process.poll()
        time.sleep(0.05 * alive)
    process.wait()


class Run:
    """One call of a script: its steps, and the verdict on them."""

    def __init__(self, script, takes_peer=False):
        parser = argparse.ArgumentParser(prog=f"scripts/{script}", allow_abbrev=False)
        parser.add_argument("out", metavar="OUT", type=pathlib.Path)
        if takes_peer:
            parser.add_argument("--peer", metavar="SCRIPT.py", type=os.path.realpath)
        parser.add_argument("--limit", metavar="SECONDS", type=int, default=540)
        self.options = parser.parse_args()
        if takes_peer and self.options.peer and not os.path.isfile(self.options.peer):
            parser.error(f"there is no file {self.options.peer}")
        built = HERE / "build/cuda"
        if built.is_dir():
            folders = [built, built / "benchmarks", *sorted((built / "tests").glob("*"))]
            os.environ["PATH"] = ":".join([*map(str, folders), os.environ["PATH"]])
        if not shutil.which("minitaw"):
            sys.exit(
                "minitaw: no minitaw in PATH: run it from a packed folder "
                f"(packed/run scripts/{script} OUT), or build build/cuda first"
            )
        # Several ranks share the processor; the device does the work.
        os.environ |= {
            "OMP_NUM_THREADS": "1",
            "OMP_PROC_BIND": "false",
            "KOKKOS_DISABLE_WARNINGS": "1",
        }
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # steps are ended on the way out
        out = self.options.out.resolve()
        self.files, self.table, self.log = out / "files", out / "table.txt", out / "log.txt"
        shutil.rmtree(self.files, ignore_errors=True)
        self.files.mkdir(parents=True)
        for file in (self.table, self.log):
            file.write_text("")
        self.failed, self.said, self.began = False, "", time.monotonic()
        query = "--query-gpu=name,memory.total,clocks.max.sm,power.limit,driver_version"
        device = answer(["nvidia-smi", query, "--format=csv,noheader"])
        version = answer(["minitaw", "--version"])
        self.print_lines(time.strftime("%FT%TZ", time.gmtime()), version + device)
        if not version.startswith("minitaw "):  # then nothing else will run: a library is missing
            self.failed = True
            self.end("minitaw does not start; LD_LIBRARY_PATH may name the folder of a library")

    def path(self, name):
        """A file that comes back."""
        return str(self.files / name)

    def left(self):
        return self.options.limit - (time.monotonic() - self.began)

    def print_lines(self, *lines):
        """On standard output and in the table."""
        with open(self.table, "a", encoding="utf-8") as table:
            for stream in (sys.stdout, table):
                print(*lines, sep="\n", file=stream, flush=True)

    def row(self, name, state, seconds=0.0, detail="", may=False):
        self.print_lines(f"{name:<56} {state:<8} {seconds:6.1f} s  {detail}".rstrip())
        self.failed |= state not in ("ok", "skipped") and not may

    def skip(self, name, why):
        self.row(name, "skipped", detail=why)

    def step(self, name, seconds, command, may=False, environment=None, makes=None):
        """Runs a command and writes its row; whether all was well. What `may` fail does not fail
        the whole. It must leave the file `makes`, if that is given. What it said is in the log and
        in self.said."""
        for word in command:
            if re.fullmatch(MAY_LACK, word) and not shutil.which(word):
                self.skip(name, f"no {word} here")
                return False
        if self.left() < 5:
            self.row(name, "NO TIME", may=may)
            return False
        line, began = " ".join(command), time.monotonic()
        with open(self.log, "ab+") as log:
            log.write(f"\n== {name}: {line}\n".encode())
            log.flush()
            begin = log.tell()
            code = self.execute(command, min(seconds, self.left()), log, environment or {})
            log.seek(begin)
            self.said = log.read().decode(errors="replace")
        state, detail = self.judge(code, line, makes)
        self.row(name, state, time.monotonic() - began, detail, may)
        return state == "ok"

    def execute(self, command, seconds, log, environment):
        """The exit code; None if time is over. All that it has started ends."""
        mark = f"{os.getpid()}.{time.monotonic()}"
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=HERE,
            env=os.environ | environment | {"MINITAW_STEP": mark},
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end_all(process, f"MINITAW_STEP={mark}".encode())

    def judge(self, code, line, makes):
        """The state of a step that has ended, and what else there is to say."""
        told = re.findall(f"^.*(?:{TOLD}).*", self.said, re.M)[-1:]
        if code is None:
            return "TIMEOUT", "".join(re.findall(r"^\[ RUN      \] .*", self.said, re.M)[-1:])
        no_part = re.search(r"^minitaw: .*(this build has no \w+)", self.said, re.M)
        if code == 2 and no_part:
            return "skipped", no_part[1]
        if code != 0 or re.search(NOT_WELL, self.said, re.M):
            ended = signal.strsignal(-code) if code < 0 else f"exit code {code}"
            return "FAILED", "; ".join([ended, *told])[:LONGEST]
        no_device = re.search(r"^this machine has no .*", self.said, re.M)
        if no_device and not re.search(r"^\[  PASSED  \] [1-9]", self.said, re.M):
            return "skipped", no_device[0]  # a test that does not run without it
        lacking = [
            why
            for program, (words, why) in WELL.items()
            if re.search(program, line) and not re.search(words, self.said, re.M)
        ]
        if makes and not (os.path.isfile(makes) and os.path.getsize(makes)):
            lacking.append(f"no {os.path.basename(makes)}")
        if lacking:
            return "FAILED", "; ".join(lacking)
        counts = re.findall(r"^\[  (PASSED|SKIPPED) +\] (\d+)", self.said, re.M)
        return "ok", "; ".join(f"{count} {word.lower()}" for word, count in counts)

    def end(self, why=""):
        """The last line, what comes back, and the exit code."""
        verdict = f"INVALID: {why or 'see the rows above and log.txt'}" if self.failed else "VALID"
        self.print_lines("", f"RESULT: {verdict} ({time.monotonic() - self.began:.0f} s)")
        sys.exit(self.failed)
