# SPDX-License-Identifier: BSD-3-Clause
"""Has the working tree become slower, larger or wrong against a commit? Builds both, runs decks
with both in turn on this machine and lets scripts/compare judge; measures on while that says
AMBIGUOUS."""

import argparse
import itertools
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from minitaw.command import BadInput, Parser, guarded  # noqa: E402
from minitaw.numbers import plural  # noqa: E402
from minitaw.outputs import output_options, with_refusals  # noqa: E402

LEAST = 12  # pairs of each deck before the first verdict (docs/decisions.md, 11)
BASE_TREE = ROOT / "build/perf-gate-base"
# Options of scripts/compare that take a value.
JUDGING = "threshold quantile allow missing".split()
# One rank needs no second core, and decides within seconds on any machine. Then two, of tiny steps
# that communicate.
USUAL = [("computing", "gate.toml", 1), ("communication", "gate-communication.toml", 2)]
NIGHTLY = [("all schedules", "nightly.toml", 2), ("a long sequence", "nightly-long.toml", 1)]


@dataclass
class Stage:
    """What is measured until it is decided."""

    title: str
    deck: pathlib.Path
    ranks: int
    pairs: int = 0  # measured
    seconds: float = 0.0  # that they took
    rows: slice = field(default_factory=lambda: slice(0))  # of the table of compare


def say(text):
    print(f"minitaw: {text}", file=sys.stderr, flush=True)


def parse():
    parser = Parser(
        prog="scripts/perf-gate",
        usage="scripts/perf-gate [BASE] [OPTION ...]",
        description=__doc__,
        parents=[output_options()],
        epilog="Exit code: 0 same or faster, 1 a regression, 2 nothing can be compared, 3 not "
        "decided (docs/ci.md).",
    )
    add = parser.add_argument
    add(
        "base",
        metavar="BASE",
        nargs="?",
        help="a commit; default: where this branch left main, or the last commit there",
    )
    add(
        "--deck",
        type=pathlib.Path,
        help="what is run; default: inputs/gate.toml on one rank, then "
        "inputs/gate-communication.toml on two",
    )
    add("--ranks", type=int, help="of each run of --deck (2)")
    add(
        "--nightly",
        action="store_true",
        help="then every schedule, and a long sequence too: inputs/nightly.toml, nightly-long.toml",
    )
    add(
        "--rounds",
        type=int,
        default=144,
        help="at most so many pairs of runs of each deck (%(default)s)",
    )
    add(
        "--limit",
        metavar="SECONDS",
        type=float,
        help="measuring ends after so long, with what there is (300, with --nightly 1200)",
    )
    add(
        "-o",
        "--output",
        metavar="FOLDER",
        type=pathlib.Path,
        default=ROOT / "out/perf-gate",
        help="where the results go (out/perf-gate)",
    )
    add_programs(add)
    options = parser.parse_intermixed_args()
    check(options)
    options.stages = stages_of(options)
    options.limit = (1200 if options.nightly else 300) if options.limit is None else options.limit
    for stage in options.stages:
        if not os.path.isfile(stage.deck):
            raise BadInput(f"there is no deck {stage.deck}")
    return options


def add_programs(add):
    """Programs that are there already, and what scripts/compare is told."""
    for side in ("base", "new"):
        add(
            f"--{side}-run",
            metavar="COMMAND",
            help="how to start a program that is there already, up to its name; nothing is built; "
            "{ranks} in it becomes the number of ranks",
        )
    for name in (*JUDGING, "set"):
        whose = "minitaw run, for all decks" if name == "set" else "scripts/compare"
        add(
            f"--{name}",
            help=f"as of {whose}",
            dest="settings" if name == "set" else "judging",
            metavar="X",
            action="extend",
            type=lambda value, name=name: (f"--{name}", value),
            default=[],
        )


def check(options):
    if bool(options.base_run) != bool(options.new_run):
        raise BadInput("--base-run and --new-run go together")
    if options.base_run and options.base:
        raise BadInput(f"--base-run takes the place of a base: leave out '{options.base}'")
    if options.rounds < 1:
        raise BadInput(f"--rounds {options.rounds}: one pair of runs is the least")
    if options.deck and options.nightly:
        raise BadInput("--nightly has decks of its own: leave out --deck")
    if options.ranks and not options.deck:
        raise BadInput("--ranks belongs to --deck: the decks of the gate have their own")


def stages_of(options):
    if options.deck:
        return [Stage(options.deck.stem, options.deck, options.ranks or 2)]
    decks = USUAL + NIGHTLY * options.nightly
    return [Stage(title, ROOT / "inputs" / deck, ranks) for title, deck, ranks in decks]


def looks_of(most):
    """After how many pairs is judged: each time the measurements are 1.4 times as many. Few looks
    miss by chance less often."""
    steps = (round(LEAST * 2 ** (i / 2)) for i in itertools.count())
    return [*itertools.takewhile(lambda pairs: pairs < most, steps), most]


def git(*words, otherwise=None):
    """What it says. The repository may belong to somebody else, as in a container; one around it is
    another's."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", ROOT, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"GIT_CEILING_DIRECTORIES": str(ROOT.parent)},
    )
    if done.returncode and otherwise is None:
        raise BadInput(
            f"git {words[0]}: {done.stderr.strip()}; programs that are there already are compared "
            "by --base-run and --new-run"
        )
    return otherwise if done.returncode else done.stdout.strip()


def usual_base(changed):
    """A commit, and why it is taken."""
    for main in ("origin/main", "main"):
        left = git("merge-base", "HEAD", main, otherwise="")
        if left and left != git("rev-parse", "HEAD"):
            return left, f"where this branch left {main}"
        if left:
            break
    if changed:
        return "HEAD", "the last commit, because files were changed"
    return "HEAD~1", "the commit before the last"


def choose_base(base):
    """The commit; says which one it is, and why."""
    # What is compiled differs from HEAD: the same question as in cmake/GitHash.cmake.
    changed = git("status", "--porcelain", "--untracked-files=no") or git(
        "ls-files", "-o", "--exclude-standard", "--", "src", "miniapp", "cmake"
    )
    base, why = (base, "as asked for") if base else usual_base(changed)
    commit = git("rev-parse", "--verify", f"{base}^{{commit}}", otherwise="")
    if not commit:
        raise BadInput(
            f"there is no commit '{base}'; name one, or compare programs that are there already "
            "with --base-run and --new-run"
        )
    say(f"base: {git('log', '-1', '--format=%h %s', commit)} ({why})")
    say(f"new:  {git('log', '-1', '--format=%h %s')}{', with your changes' if changed else ''}")
    return commit


def check_out_base(commit):
    """Kept for the next call, which then compiles only what differs. Its own .git is named, lest
    git takes the one around it."""
    there = (f"--git-dir={BASE_TREE}/.git", f"--work-tree={BASE_TREE}")
    checkout = ("checkout", "-q", "-f", "--detach", commit)
    if git(*there, *checkout, otherwise="fails") == "fails":
        shutil.rmtree(BASE_TREE, ignore_errors=True)
        git("worktree", "prune")
        git("worktree", "add", "-q", "--detach", BASE_TREE, commit)


def build(name, tree):
    """Both alike, whatever options build/host has. The folders have the same depth, so that ccache
    finds what the other compiled."""
    folder = tree / "build/perf-gate"
    say(f"building the {name}, which takes minutes the first time: {folder}/log.txt")
    folder.mkdir(parents=True, exist_ok=True)
    jobs = os.environ.get("MINITAW_JOBS") or str(len(os.sched_getaffinity(0)))
    with open(folder / "log.txt", "wb") as log:
        for words in (
            ["--preset", "host", "-B", folder, "-DMINITAW_TESTS=OFF", "-DMINITAW_BENCHMARKS=OFF"],
            ["--build", folder, "-j", jobs, "--target", "minitaw"],
        ):
            words = ["cmake", *words]
            done = subprocess.run(words, cwd=tree, stdout=log, stderr=log, check=False)
            if done.returncode:
                raise BadInput(f"the {name} cannot be built: see {log.name}")
    return folder


def programs_of(options):
    """The words that start the program of each side, where {ranks} stands for a number."""
    if options.base_run:
        return {"base": options.base_run, "new": options.new_run}
    check_out_base(choose_base(options.base))
    folders = {"base": build("base", BASE_TREE), "new": build("working tree", ROOT)}
    launch = "mpiexec -n {ranks} "
    return {side: launch + shlex.quote(f"{folder}/minitaw") for side, folder in folders.items()}


def measure(options, program, name, stage):
    """A run that is not valid is for compare to judge."""
    record, said = (options.output / f"{name}.{kind}" for kind in ("h5", "txt"))
    with open(said, "ab") as log:
        command = f'{program.replace("{ranks}", str(stage.ranks))} "$@"'
        words = ["bash", "-c", command, name, "run", stage.deck, *options.settings, "-o", record]
        code = subprocess.run(words, stdout=log, stderr=log, check=False).returncode
    if code not in (0, 1) or not record.exists():
        lines = said.read_text(errors="replace").splitlines()
        told = "".join([f"; {line}" for line in lines if line.startswith("minitaw: ")][-1:])
        raise BadInput(f"the run {name} failed (exit code {code}): see {said}{told}")


# What compare says.


def rows_of(said):
    """Those of its table, in words."""
    return [line.split() for line in said.splitlines() if line.startswith(" ")]


def verdict(said):
    """The closing line's word."""
    return said.rpartition("\nCOMPARISON: ")[2].split(":")[0].strip()


@dataclass
class Gate:
    """What was measured, and what compare said of it last."""

    options: argparse.Namespace
    programs: dict
    began: float
    longest: float = 0.0  # seconds of a pair
    code: int = 0
    said: str = ""

    def seconds(self):
        return time.monotonic() - self.began

    def has_time(self):
        """For another pair; the first one needs none."""
        return not self.said or self.seconds() + self.longest <= self.options.limit

    def is_open(self, stage):
        return self.code == 3 and any(
            row[12] == "AMBIGUOUS" for row in rows_of(self.said)[stage.rows]
        )

    def judge(self, *more):
        """By scripts/compare. It needs libraries that the programs to be compared may do
        without."""
        options = self.options
        looks = len(looks_of(options.rounds)) * len(options.stages)
        words = [ROOT / "scripts/env", "python3", ROOT / "scripts/compare", "--looks", str(looks)]
        for side in ("base", "new"):
            words += [f"--{side}", *sorted(options.output.glob(f"{side}-*.h5"))]
        for name in ("junit", "markdown"):
            path = getattr(options, name)
            words += [f"--{name}", path] if path else []
        words += [*options.judging, *more]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        # Python's own errors have the exit code of a regression.
        if done.returncode not in (0, 1, 3) or "\nCOMPARISON: " not in done.stdout:
            nothing = f"scripts/compare ended with exit code {done.returncode} and said nothing"
            told = done.stderr.strip().splitlines() or [nothing]
            raise BadInput(told[-1].removeprefix("compare: "))
        (options.output / "compare.txt").write_text(done.stdout, encoding="utf-8")
        self.code, self.said = done.returncode, done.stdout

    def measure_pair(self, stage):
        """Base first, then new first."""
        begin = self.seconds()
        stage.pairs += 1
        for side in ("base", "new") if stage.pairs % 2 else ("new", "base"):
            measure(self.options, self.programs[side], f"{side}-{stage.pairs:03}", stage)
        took = self.seconds() - begin
        stage.seconds += took
        self.longest = max(self.longest, took)

    def measure_stage(self, stage, most):
        """Until there are so many pairs, or time is over. The first is compared at once, so that
        bad options show early, and is no verdict."""
        if not stage.pairs:
            self.measure_pair(stage)
            before = len(rows_of(self.said))
            self.judge()
            stage.rows = slice(before, len(rows_of(self.said)))
        while stage.pairs < most and self.has_time():
            self.measure_pair(stage)
        self.judge()
        self.tell(stage)

    def tell(self, stage):
        """How far it is, with the ratio of its last case."""
        pairs = f"pair {stage.pairs} of {self.options.rounds}"
        text = f"{stage.title}, {pairs}, {self.seconds():.0f} s"
        for row in rows_of(self.said)[stage.rows][-1:]:
            text += f": new / base {row[9]}"
            text += f" ({row[10]} to {row[11]})" if row[10] != "-" else ""
        say(text)

    def next_stage(self):
        """Each has its least number of pairs before one goes on; then the one that had the least
        time."""
        unmeasured = [stage for stage in self.options.stages if not stage.pairs]
        most = self.options.rounds
        still_open = [one for one in self.options.stages if one.pairs < most and self.is_open(one)]
        still_open.sort(key=lambda stage: stage.seconds)
        return next(iter(unmeasured + still_open), None)

    def measure(self):
        looks = looks_of(self.options.rounds)
        while self.has_time() and verdict(self.said) != "REGRESSION":
            stage = self.next_stage()
            if not stage:
                return
            self.measure_stage(stage, next(most for most in looks if most > stage.pairs))

    def conclude(self):
        """What was not seen, and what to do next."""
        options = self.options
        left = [stage.title for stage in options.stages if not stage.pairs]
        if left:
            self.judge(*(f"--not-measured={title}" for title in left))
        print(self.said, end="")
        still_open = [stage for stage in options.stages if self.is_open(stage)]
        if still_open:
            cores, most = len(os.sched_getaffinity(0)), max(stage.ranks for stage in still_open)
            few = f" for {most} ranks" if most > cores else ""
            say(
                f"not decided: {' and '.join(stage.title for stage in still_open)}. The load is "
                f"{os.getloadavg()[0]:.1f} on {plural(cores, 'core')}{few}. Try again when less "
                f"else runs, or longer: --limit {2 * options.limit:g} --rounds "
                f"{2 * options.rounds}"
            )
        if not (left or options.deck or options.nightly):
            say(
                "seen were tawpipe on one rank and its transfers between two, with short "
                "sequences; --nightly adds every schedule and a long one"
            )


def compared():
    options = parse()
    options.output.mkdir(parents=True, exist_ok=True)
    for left in options.output.glob("*-[0-9][0-9][0-9].*"):
        left.unlink()
    gate = Gate(options, programs_of(options), time.monotonic())
    gate.measure()
    gate.conclude()
    return gate.code


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return with_refusals(None, compared)


if __name__ == "__main__":
    sys.exit(guarded("minitaw", main))
