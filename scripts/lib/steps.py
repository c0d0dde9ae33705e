# SPDX-License-Identifier: BSD-3-Clause
"""The steps of scripts/gpu: the command line, the programs and their libraries, commands with a
time limit, alone or side by side, and what comes back: table.txt, log.txt, a folder of files, and
an archive of these."""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parents[2]  # the repository or the packed folder
NOT_WELL = (
    r"^\[  FAILED  \]|FAILED TEST|thrown in auxiliary|^RESULT: INVALID|^WRONG:|SUMMARY: [1-9]"
)
TOLD = r"FAILED|Failure|[Ee]rror|minitaw:|RESULT|^WRONG:|rank \d+:"
LONGEST = 140  # letters of a detail
KEPT = 200_000  # bytes of the log of a step: its last ones
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
# Programs that a machine or a build may lack.
MAY_LACK = r"test_\w+|minitaw_kernels|compute-sanitizer"


def settings(**keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


@dataclasses.dataclass
class Step:
    """A command and the row of the table that tells how it went."""

    name: str
    seconds: float
    command: list
    may: bool = False  # it may fail without failing the whole
    environment: dict = dataclasses.field(default_factory=dict)
    makes: str = ""  # a file that must be there afterwards; minitaw run gets it as -o


@dataclasses.dataclass
class Done:
    state: str
    detail: str
    seconds: float = 0.0
    said: str = ""


def answer(command):
    """What a command says that only tells something."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
        return done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def end_all(mark, process=None):
    """Ends what has the mark: an orphaned rank would keep the device. Launchers give ranks sessions
    of their own, so the process group is not enough; all inherit a variable."""
    alive, until = True, time.monotonic() + 8
    while alive and time.monotonic() < until:
        alive = False
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (folder / "environ").read_bytes().split(b"\0")
                if any(word.startswith(mark) for word in environment):
                    os.kill(int(folder.name), signal.SIGKILL)
                    alive = True
        if process is not None:
            process.poll()
        time.sleep(0.05 * alive)


def parse():
    parser = argparse.ArgumentParser(prog="scripts/gpu", allow_abbrev=False)
    parser.add_argument("out", metavar="OUT", type=pathlib.Path)
    parser.add_argument("--peer", metavar="STEP.py", type=os.path.realpath)
    parser.add_argument("--limit", metavar="SECONDS", type=int, default=570)
    parser.add_argument("--more", metavar="ROW", nargs="?", const="")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    if options.peer and not os.path.isfile(options.peer):
        parser.error(f"there is no file {options.peer}")
    return options


class Run:
    """One call of the script: its steps, and the verdict on them."""

    def __init__(self):
        self.options = parse()
        built = HERE / "build/cuda"
        if built.is_dir():
            folders = [built, built / "benchmarks", *sorted((built / "tests").glob("**/"))]
            os.environ["PATH"] = ":".join([*map(str, folders), os.environ["PATH"]])
        if not shutil.which("minitaw"):
            sys.exit(
                "minitaw: no minitaw in PATH: run it from a packed folder "
                "(packed/run scripts/gpu OUT), or build build/cuda first"
            )
        # Several ranks share the processor; the device does the work.
        os.environ |= {
            "OMP_NUM_THREADS": "1",
            "OMP_PROC_BIND": "false",
            "KOKKOS_DISABLE_WARNINGS": "1",
        }
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # steps are ended on the way out
        self.out = self.options.out.resolve()
        self.files, self.table, self.log = (
            self.out / name for name in ("files", "table.txt", "log.txt")
        )
        shutil.rmtree(self.files, ignore_errors=True)
        self.files.mkdir(parents=True)
        for file in (self.table, self.log):
            file.write_text("")
        self.failed, self.said, self.began = False, "", time.monotonic()
        self.numbers = itertools.count(1)
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

    def row(self, name, done, may=False):
        self.print_lines(
            f"{name:<56} {done.state:<8} {done.seconds:6.1f} s  {done.detail}".rstrip()
        )
        self.failed |= done.state not in ("ok", "skipped") and not may

    def skip(self, name, why):
        self.row(name, Done("skipped", why))

    def step(self, step):
        """Runs a step and writes its row; whether all was well. What it said is in the log and in
        self.said."""
        return self.tell(step, self.perform(step))

    def together(self, steps):
        """Runs steps side by side, as many as there are cores for two ranks each."""
        workers = max(1, (os.cpu_count() or 1) // 2)
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            try:
                for step, done in zip(steps, pool.map(self.perform, steps)):
                    self.tell(step, done)
            except BaseException:
                self.options.limit = 0  # nothing else begins
                end_all(f"MINITAW_STEP={os.getpid()}.".encode())
                raise

    def words(self, step):
        """The command of a step."""
        makes = step.makes and "run" in step.command
        return [*step.command, "-o", self.path(step.makes)] if makes else step.command

    def tell(self, step, done):
        self.said = done.said
        line = " ".join(self.words(step))
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"\n== {step.name}: {line}\n{done.said[-KEPT:]}")
        self.row(step.name, done, step.may)
        return done.state == "ok"

    def perform(self, step):
        """Runs the command of a step, and ends all that it has started."""
        for word in step.command:
            if re.fullmatch(MAY_LACK, word) and not shutil.which(word):
                return Done("skipped", f"no {word} here")
        if self.left() < 5:
            return Done("NO TIME", "")
        began, mark = time.monotonic(), f"{os.getpid()}.{next(self.numbers)}."
        with tempfile.TemporaryFile() as log:
            with subprocess.Popen(
                self.words(step),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=HERE,
                env=os.environ | step.environment | {"MINITAW_STEP": mark},
            ) as process:
                try:
                    seconds = step.seconds * (10 if self.options.tiny else 1)
                    code = process.wait(min(seconds, self.left()))
                except subprocess.TimeoutExpired:
                    code = None
                finally:
                    end_all(f"MINITAW_STEP={mark}".encode(), process)
            log.seek(0)
            said = log.read().decode(errors="replace")
        state, detail = self.judge(code, step, said)
        return Done(state, detail, time.monotonic() - began, said)

    def judge(self, code, step, said):
        """The state of a step that has ended, and what else there is to say."""
        told = re.findall(f"^.*(?:{TOLD}).*", said, re.M)[-1:]
        if code is None:
            return "TIMEOUT", "".join(re.findall(r"^\[ RUN      \] .*", said, re.M)[-1:])
        no_part = re.search(r"^minitaw: .*(this build has no \w+)", said, re.M)
        if code == 2 and no_part:
            return "skipped", no_part[1]
        if code != 0 or re.search(NOT_WELL, said, re.M):
            ended = signal.strsignal(-code) if code < 0 else f"exit code {code}"
            return "FAILED", "; ".join([ended, *told])[:LONGEST]
        no_device = re.search(r"^this machine has no .*", said, re.M)
        if no_device and not re.search(r"^\[  PASSED  \] [1-9]", said, re.M):
            return "skipped", no_device[0]  # a test that does not run without it
        line = " ".join(self.words(step))
        lacking = [
            why
            for program, (words, why) in WELL.items()
            if re.search(program, line) and not re.search(words, said, re.M)
        ]
        if step.makes:
            file = self.files / step.makes
            if not (file.is_file() and file.stat().st_size):
                lacking.append(f"no {step.makes}")
        if lacking:
            return "FAILED", "; ".join(lacking)
        counts = re.findall(r"^\[  (PASSED|SKIPPED) +\] (\d+)", said, re.M)
        return "ok", "; ".join(f"{count} {word.lower()}" for word, count in counts)

    def end(self, why=""):
        """The last line, what comes back, and the exit code."""
        verdict = f"INVALID: {why or 'see the rows above and log.txt'}" if self.failed else "VALID"
        self.print_lines("", f"RESULT: {verdict} ({time.monotonic() - self.began:.0f} s)")
        with tarfile.open(self.out / "gpu.tar.xz", "w:xz") as archive:
            for path in (self.table, self.log, self.files):
                archive.add(path, path.name)
        sys.exit(self.failed)
