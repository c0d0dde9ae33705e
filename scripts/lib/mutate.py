# SPDX-License-Identifier: BSD-3-Clause
"""Plants defects one at a time in a copy of the sources (build/mutate), builds what changed there,
runs the tests that are named for the file, and lists the defects that no test notices.
tests/mutations.txt says what is planted where. build/mutate.tsv keeps how each one ended: a second
call goes on where the first one stopped."""

import fcntl
import filecmp
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import slips  # noqa: E402
from minitaw.command import BadInput, Parser, guarded  # noqa: E402

TREE = ROOT / "build/mutate"
# As deep below its sources as build/host is, so that ccache knows the objects.
BUILD = TREE / "build/host"
LIST, ARGUED = ROOT / "tests/mutations.txt", ROOT / "tests/mutations.md"
RESULTS = ROOT / "build/mutate.tsv"
JOBS = os.environ.get("MINITAW_JOBS") or str(len(os.sched_getaffinity(0)))


class Mutant(typing.NamedTuple):
    file: str
    line: int
    old: str
    new: str
    tests: str  # what they are named like
    text: str  # of the file, without the defect

    @property
    def key(self):
        return self.file, one_line(self.old), one_line(self.new)

    def planted(self):
        lines = self.text.split("\n")
        first = self.line - 1
        lines[first : first + self.old.count("\n") + 1] = [self.new]
        return "\n".join(lines)


def generated(file, tests, options):
    """So many mutants of a file, of each pattern in turn. Seed and lines choose them, not where the
    lines stand."""
    text, found = (ROOT / file).read_text(encoding="utf-8"), {}
    code = slips.code_of(text, file.endswith(".py"))
    for number, (line, visible) in enumerate(zip(text.split("\n"), code.split("\n")), 1):
        for pattern, new in slips.slips_in(line, visible, options.kind):
            mutant = Mutant(file, number, line, new, tests, text)
            found.setdefault(pattern, {})[mutant.key] = mutant

    def dice(mutant):
        return hashlib.sha256(f"{options.seed} {mutant.key}".encode()).digest()

    shuffled = [sorted(mutants.values(), key=dice) for mutants in found.values()]
    turns = [turn for mutants in shuffled for turn in enumerate(mutants)]
    turns.sort(key=lambda turn: (turn[0], dice(turn[1])))
    return [mutant for _, mutant in turns[: options.count]]


def written(file, tests, old, new):
    """One that somebody has thought of: a text that stands once in its file, and what takes its
    place. Where a formatter breaks lines does not matter, nor a comma that it adds to a list."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found = list(re.finditer(anyhow_broken(old), text))
    if len(found) != 1:
        raise BadInput(f"tests/mutations.txt: '{old}' stands {len(found)} times in {file}")
    begin = text.rfind("\n", 0, found[0].start()) + 1
    end = (text + "\n").index("\n", found[0].end())
    lines = text[begin : found[0].start()] + new + text[found[0].end() : end]
    return Mutant(file, text.count("\n", 0, begin) + 1, text[begin:end], lines, tests, text)


def anyhow_broken(text):
    """A pattern of the text, in which spaces may be line breaks."""
    pattern = ""
    for before, space, sign in re.findall(r"()(\s*)(\w+|\S)", text):
        comma = r"(?:,(?=\s))?" if sign in ")]}" else ""
        gap = r"\s+" if space else r"\s*" if not sign.isalnum() or pattern[-1:] in "([{" else ""
        pattern += comma + (gap if pattern else "") + re.escape(sign)
    return pattern


def files_of(names):
    """a.cpp, or a/{b,c}.cpp for several."""
    first, *several = re.split("[{}]", names)
    return [first + stem + several[1] for stem in several[0].split(",")] if several else [names]


def chosen(options):
    mutants = {}
    rows = (
        line.split("\t")
        for line in LIST.read_text(encoding="utf-8").splitlines()
        if line[:1] != "#"
    )
    for names, tests, *texts in rows:
        for file in filter(re.compile(options.only).search, files_of(names)):
            some = [written(file, tests, *pair) for pair in zip(texts[::2], texts[1::2])]
            some = [] if options.kind else some
            some += [] if texts else generated(file, tests, options)
            mutants |= {
                mutant.key: mutant._replace(tests=options.tests or mutant.tests) for mutant in some
            }
    return sorted(mutants.values(), key=lambda mutant: (mutant.file, mutant.tests))


def copy_sources():
    """Only what differs, so that only that is built again: also what an interrupted call has left
    there."""
    git = ["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
    for to, name in ((TREE / name, ROOT / name) for name in listed if (ROOT / name).is_file()):
        if not to.is_file() or not filecmp.cmp(name, to, shallow=False):
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, to)
    for folder, folders, files in os.walk(TREE):
        folders[:] = [inner for inner in folders if folder != str(TREE) or inner != "build"]
        there = {os.path.relpath(os.path.join(folder, file), TREE) for file in files}
        for left in there - set(listed):
            (TREE / left).unlink()


def execute(words, limit=None, **environment):
    """Its exit code and output. Past the limit everything that it started ends, and the code is
    None."""
    with subprocess.Popen(
        words,
        cwd=TREE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env=os.environ | environment,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit)
            return process.returncode, said
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return None, ""
            raise


@functools.cache
class Tests:
    """What a regular expression of ctest chooses, and what has to be built for it."""

    def __init__(self, regex):
        self.words = [
            "ctest",
            "--test-dir",
            BUILD,
            "-R",
            regex,
            "-j",
            JOBS,
            "--stop-on-failure",
            "--no-tests=error",
        ]
        shown = json.loads(execute([*self.words, "--show-only=json-v1"])[1])
        names = {test["name"] for test in shown["tests"]}
        # ctest itself tells no command of a program that is not built yet.
        plans = [file.read_text(encoding="utf-8") for file in BUILD.rglob("CTestTestfile.cmake")]
        words = []
        for name, line in re.findall(r"^add_test\(\W*([\w.]+)\W* (.*)\)$", "".join(plans), re.M):
            if name in names:
                words += re.findall(r'"([^"]*)"', line)
        known = execute(["ninja", "-C", BUILD, "-t", "targets", "all"])[1]
        paths = sorted({os.path.relpath(word, BUILD) for word in words})
        self.targets = [path for path in paths if f"\n{path}: " in known]
        # Of several ranks, one that stops at its first failure would leave the others waiting for
        # it.
        self.fast = "0" if any("mpiexec" in word for word in words) else "1"
        code, said = self.build()
        self.programs, begin = None if code else self.digest(), time.monotonic()
        code, said = (code, said) if code else self.run()
        if code:
            raise BadInput(f"without a defect, the tests {regex} fail: {said[-500:]}")
        self.seconds = time.monotonic() - begin

    def build(self):
        return (
            execute(["ninja", "-C", BUILD, "-j", JOBS, *self.targets]) if self.targets else (0, "")
        )

    def digest(self):
        return [hashlib.sha256((BUILD / target).read_bytes()).digest() for target in self.targets]

    def run(self, limit=None):
        return execute(self.words, limit, GTEST_FAIL_FAST=self.fast)

    def judge(self, mutant, patience):
        """What becomes of it, and which test has noticed it. Tests that take much longer than
        without it hang."""
        planted = mutant.planted()
        (TREE / mutant.file).write_text(planted, encoding="utf-8")
        try:
            if mutant.file.endswith(".py"):
                compile(planted, mutant.file, "exec")
            elif self.build()[0]:
                return "no program", ""
            elif self.digest() == self.programs:
                return "same program", ""
        except SyntaxError:
            return "no program", ""
        code, said = self.run(patience + 10 * self.seconds)
        noticed = re.search(r"#\d+: (\S+) .*\*\*\*", said)
        return (
            ("survived", "") if code == 0 else ("killed", noticed[1] if noticed else "time limit")
        )


def judge_all(mutants, known, patience):
    new = (mutant for mutant in mutants if mutant.key not in known)
    for (file, regex), some in itertools.groupby(
        new, key=lambda mutant: (mutant.file, mutant.tests)
    ):
        tests = Tests(regex)  # while there is no defect
        try:
            for mutant in some:
                begin = time.monotonic()
                known[mutant.key] = tests.judge(mutant, patience)
                with open(RESULTS, "a", encoding="utf-8") as results:
                    results.write("\t".join([*mutant.key, *known[mutant.key]]) + "\n")
                seconds = f"{time.monotonic() - begin:.0f} s"
                print(
                    known[mutant.key],
                    seconds,
                    f"{file}:{mutant.line}: {mutant.new.strip()}",
                    flush=True,
                )
        finally:
            (TREE / file).write_text(mutant.text, encoding="utf-8")


def one_line(text):
    return " ".join(text.split())


def table(mutants, known):
    """A line per file, then what survived. The exit code."""
    print("\n| file | planted | killed | survived |\n|---|--:|--:|--:|")
    for name in [*sorted({mutant.file for mutant in mutants}), "all"]:
        ends = [known[mutant.key][0] for mutant in mutants if name in ("all", mutant.file)]
        killed, survived = ends.count("killed"), ends.count("survived")
        print(f"| {name} | {killed + survived} | {killed} | {survived} |")
    argued = one_line(ARGUED.read_text(encoding="utf-8")) if ARGUED.exists() else ""
    left = [mutant for mutant in mutants if known[mutant.key][0] == "survived"]
    left = [mutant for mutant in left if one_line("{} - {} + {}".format(*mutant.key)) not in argued]
    print(f"\n{len(left)} survivors are not argued in tests/mutations.md", "" if left else "\n")
    for mutant in left:
        print(
            f"{mutant.file}:{mutant.line}\n  - {one_line(mutant.old)}\n  + {one_line(mutant.new)}"
        )
    return bool(left)


def parse():
    parser = Parser(
        prog="scripts/mutate",
        description=__doc__,
        epilog="Exit code: 1 if a survivor is not argued.",
    )
    add = parser.add_argument
    add("--list", action="store_true", help="print the mutants, plant none")
    add("--only", metavar="REGEX", default="", help="in files whose names match")
    add(
        "--count",
        metavar="N",
        type=int,
        default=5,
        help="generated ones of each file (%(default)s)",
    )
    add(
        "--kind",
        metavar="REGEX",
        default="",
        help=f"only generated ones of these kinds: {', '.join(slips.KINDS)}",
    )
    add("--seed", metavar="N", type=int, default=1, help="chooses which ones (%(default)s)")
    add(
        "--tests",
        metavar="REGEX",
        help="run these tests instead of those that are named for the file",
    )
    add("--again", action="store_true", help="judge survivors once more, as after a new test")
    add(
        "--patience",
        metavar="SECONDS",
        type=float,
        default=20,
        help="beyond ten times what the tests take, they hang (%(default)s)",
    )
    return parser.parse_args()


def configure():
    werror = os.environ.get("MINITAW_WERROR", "OFF")
    code, said = execute(["cmake", "--preset", "host", f"-DMINITAW_WERROR={werror}"])
    if code:
        raise BadInput(f"{TREE} cannot be configured: {said[-500:]}")


def known_results(again):
    """{mutant: its outcome and more} of earlier calls; with `again` without survivors."""
    if not RESULTS.exists():
        return {}
    rows = (row.split("\t") for row in RESULTS.read_text(encoding="utf-8").splitlines())
    known = {tuple(row[:3]): row[3:] for row in rows}
    return {key: row for key, row in known.items() if not again or row[0] != "survived"}


def main():
    options = parse()
    mutants = chosen(options)
    if options.list:
        for mutant in mutants:
            change = f"{one_line(mutant.old)}  ->  {one_line(mutant.new)}"
            print(f"{mutant.file}:{mutant.line}: {change}")
        return 0
    BUILD.mkdir(parents=True, exist_ok=True)
    lock = open(BUILD.parent / "lock", "w")  # until the end
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as busy:
        raise BadInput(f"another call works in {TREE}") from busy
    copy_sources()
    if not (BUILD / "build.ninja").exists():
        configure()
    known = known_results(options.again)
    judge_all(mutants, known, options.patience)
    return table(mutants, known)


for name in (signal.SIGINT, signal.SIGTERM):
    # Also where a shell has put it into the background.
    signal.signal(name, signal.default_int_handler)
try:
    sys.exit(guarded("mutate", main))
except KeyboardInterrupt:
    sys.exit(130)
