# SPDX-License-Identifier: BSD-3-Clause
"""Has the working tree become slower, larger or wrong against a commit? Builds both, runs a deck with both in turn on this machine and
lets scripts/compare judge; measures on while that says AMBIGUOUS."""

import itertools
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from minitaw.command import BadInput, Parser, guarded  # noqa: E402

LEAST, FEWEST = 9, 6  # pairs before the first verdict (docs/decisions/0011-comparing-times.md), and for an interval
BASE_TREE = ROOT / "build/perf-gate-base"
JUDGING = ("--threshold", "--memory-threshold", "--confidence", "--quantile", "--allow", "--missing", "--junit", "--markdown")

def say(text):
    print(f"minitaw: {text}", file=sys.stderr, flush=True)

def parse():
    parser = Parser(prog="scripts/perf-gate", usage="scripts/perf-gate [BASE] [OPTION ...]", description=__doc__,
                    epilog="Exit code: 0 same or faster (or AMBIGUOUS), 1 a regression, 2 nothing can be compared (docs/compare.md).")
    add = parser.add_argument
    add("base", metavar="BASE", nargs="?", help="a commit; default: where this branch left main, or the last commit there")
    add("--deck", help="what is run, as it is; default: inputs/gate.toml with one rank, which decides, then with two")
    add("--ranks", type=int, help="of each run of the deck as it is (2)")
    add("--rounds", type=int, default=48, help="at most so many pairs of runs (%(default)s)")
    add("--limit", metavar="SECONDS", type=float, default=300, help="measuring ends after so long, with what there is (%(default)s)")
    add("-o", "--output", metavar="FOLDER", type=pathlib.Path, default=ROOT / "out/perf-gate", help="where the results go (out/perf-gate)")
    for side in ("base", "new"):
        add(f"--{side}-run", metavar="COMMAND", help="how to start a program that is there already, up to its name; nothing is built")
    add("--strict", dest="judging", action="append_const", const="--strict", default=[], help="as of scripts/compare, and so are:")
    for name, words in (*((name, "judging") for name in JUDGING), ("--set", "settings")):
        add(name, dest=words, metavar="X", action="extend", type=lambda value, name=name: (name, value), default=[])
    options = parser.parse_intermixed_args()
    if bool(options.base_run) != bool(options.new_run):
        raise BadInput("--base-run and --new-run go together")
    if options.base_run and options.base:
        raise BadInput(f"--base-run takes the place of a base: leave out '{options.base}'")
    options.stages = stages_of(options)
    options.deck = options.deck or ROOT / "inputs/gate.toml"
    if not os.path.isfile(options.deck):
        raise BadInput(f"there is no deck {options.deck}")
    return options

def stages_of(options):
    """(title, ranks, settings, pairs before a verdict, most pairs). One rank decides within seconds on any machine. Two put their cases into
    the same files: what MPI moves and holds is compared exactly, its time only where that is clear."""
    if options.deck or options.ranks or options.base_run:
        return [("", options.ranks or 2, [], LEAST, options.rounds)]
    options.judging.append("--first-decides")
    few = min(LEAST, options.rounds)
    return [("one rank, ", 1, ["--set", "ranks=1", "--set", "groups=1"], LEAST, options.rounds), ("two ranks, ", 2, [], few, few)]

def git(*words, otherwise=None):
    """What it says. The repository may belong to somebody else, as in a container; one around it is another's."""
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", ROOT, *words], capture_output=True, text=True, check=False,
                          env=os.environ | {"GIT_CEILING_DIRECTORIES": str(ROOT.parent)})
    if done.returncode and otherwise is None:
        raise BadInput(f"git {words[0]}: {done.stderr.strip()}; programs that are there already are compared by --base-run and --new-run")
    return otherwise if done.returncode else done.stdout.strip()

def choose_base(base):
    """The commit; says which one it is, and why."""
    head, why = git("rev-parse", "HEAD"), "as asked for"
    # What is compiled differs from HEAD: the same question as in cmake/GitHash.cmake.
    changed = git("status", "--porcelain", "--untracked-files=no") or git("ls-files", "-o", "--exclude-standard", "--", "src", "miniapp", "cmake")
    if not base:
        main = next((main for main in ("origin/main", "main") if git("merge-base", "HEAD", main, otherwise="")), "HEAD")
        base, why = git("merge-base", "HEAD", main), f"where this branch left {main}"
        if base == head:
            base, why = ("HEAD", "the last commit, because files were changed") if changed else ("HEAD~1", "the commit before the last")
    if not (commit := git("rev-parse", "--verify", f"{base}^{{commit}}", otherwise="")):
        raise BadInput(f"there is no commit '{base}'; name one, or compare programs that are there already with --base-run and --new-run")
    say(f"base: {git('log', '-1', '--format=%h %s', commit)} ({why})")
    say(f"new:  {git('log', '-1', '--format=%h %s')}{', with your changes' if changed else ''}")
    return commit

def check_out_base(commit):
    """Kept for the next call, which then compiles only what differs. Its own .git is named, lest git takes the one around it."""
    if git(f"--git-dir={BASE_TREE}/.git", f"--work-tree={BASE_TREE}", "checkout", "-q", "-f", "--detach", commit, otherwise="fails") == "fails":
        shutil.rmtree(BASE_TREE, ignore_errors=True)
        git("worktree", "prune")
        git("worktree", "add", "-q", "--detach", BASE_TREE, commit)

def build(name, tree):
    """Both alike, whatever options build/host has. The folders have the same depth, so that ccache finds what the other compiled."""
    folder = tree / "build/perf-gate"
    say(f"building the {name} in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    jobs = os.environ.get("MINITAW_JOBS") or str(len(os.sched_getaffinity(0)))
    with open(folder / "log.txt", "wb") as log:
        for words in (["--preset", "host", "-B", folder, "-DMINITAW_TESTS=OFF", "-DMINITAW_BENCHMARKS=OFF"],
                      ["--build", folder, "-j", jobs, "--target", "minitaw"]):
            if subprocess.run(["cmake", *words], cwd=tree, stdout=log, stderr=log, check=False).returncode:
                raise BadInput(f"the {name} cannot be built: see {log.name}")
    return folder

def programs_of(options):
    """The words that start the program of each side; mpiexec stands before those that are built here."""
    if options.base_run:
        return {"base": options.base_run, "new": options.new_run}
    check_out_base(choose_base(options.base))
    folders = {"base": build("base", BASE_TREE), "new": build("working tree", ROOT)}
    return {side: shlex.quote(str(folder / "minitaw")) for side, folder in folders.items()}

def measure(options, program, name, ranks, settings):
    """A run that is not valid is for compare to judge."""
    record, said = (options.output / f"{name}.{kind}" for kind in ("h5", "txt"))
    launcher = "" if options.base_run else f"mpiexec -n {ranks} "
    with open(said, "ab") as log:
        words = ["bash", "-c", f'{launcher}{program} "$@"', name, "run", options.deck, *options.settings, *settings, "-o", record]
        code = subprocess.run(words, stdout=log, stderr=log, check=False).returncode
    if code not in (0, 1) or not record.exists():
        told = [line for line in said.read_text(errors="replace").splitlines() if line.startswith("minitaw: ")]
        raise BadInput(f"the run {name} failed (exit code {code}): see {said}; {''.join(told[-1:])}")

def judge(options):
    """The exit code of compare, and what it says. It needs libraries that the programs to be compared may do without."""
    sides = [word for side in ("base", "new") for word in (f"--{side}", *sorted(options.output.glob(f"{side}-*.h5")))]
    done = subprocess.run([ROOT / "scripts/env", "python3", ROOT / "scripts/compare", *sides, *options.judging], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise BadInput(done.stderr.strip().removeprefix("compare: "))
    (options.output / "compare.txt").write_text(done.stdout, encoding="utf-8")
    return done.returncode, done.stdout

def tell(text, said, ends):
    """How far it is, with the ratio of the last case: a line that renews itself on a terminal, else one each time."""
    rows = [line.split() for line in said.splitlines() if line.startswith(" ")]
    ratio = "".join(f": new / base {row[9]}" + (f" ({row[10]} to {row[11]})" if row[10] != "-" else "") for row in rows[-1:])
    renews = sys.stderr.isatty()
    print("\r\033[K" * renews + f"minitaw: {text}{ratio}", end="" if renews and not ends else "\n", file=sys.stderr, flush=True)

def measure_stage(options, programs, stage, began):
    """Pairs: base first, then new first. Compared at once, so that bad options show early. Exit code, what compare says, no time for more."""
    title, ranks, settings, least, most = stage
    longest = 0.0
    for number in itertools.count(1):
        begin = time.monotonic()
        for side in ("base", "new")[::1 if number % 2 else -1]:
            measure(options, programs[side], f"{side}-{number:03}", ranks, settings)
        longest = max(longest, time.monotonic() - begin)
        late = time.monotonic() - began + longest > options.limit
        if number in (1, 3) or number >= min(FEWEST, most) or late:
            code, said = judge(options)
        ends = late or number >= most or (number >= least and "\nCOMPARISON: AMBIGUOUS" not in said)
        tell(f"{title}pair {number} of {most}, {time.monotonic() - began:.0f} s", said if number > 2 else "", ends)
        if ends:
            return code, said, late

def measure_until_decided(options, programs):
    for left in options.output.glob("*-[0-9][0-9][0-9].*"):
        left.unlink()
    began = time.monotonic()
    for stage in options.stages:
        code, said, late = measure_stage(options, programs, stage, began)
        if late or code:
            break
    print(said, end="")
    if late and stage is not options.stages[-1]:
        say("the limit came before the runs of two ranks")
    if "\nCOMPARISON: AMBIGUOUS" in said:
        wider = ", or with the --threshold above" * ("take --threshold" in said)
        say(f"not decided: the load is {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores. Try again when less else runs, or longer: "
            f"--limit {2 * options.limit:g} --rounds {2 * options.rounds}{wider}; --strict fails what is not decided")
    return code

def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = parse()
    options.output.mkdir(parents=True, exist_ok=True)
    return measure_until_decided(options, programs_of(options))

sys.exit(guarded("minitaw", main))
