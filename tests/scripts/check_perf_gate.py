# SPDX-License-Identifier: BSD-3-Clause
"""scripts/perf-gate with stand-ins for cmake, mpiexec and the program: which commit it takes for
the base, in which order it runs both, when it stops, what it says and ends with. Called with the
repository and a folder to write to.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import programs

REPOSITORY, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
TREE = FOLDER / "tree"
DECKS = ("gate.toml", "gate-communication.toml", "nightly.toml", "nightly-long.toml")
MPIEXEC = 'echo "$*" >>"$STATE/calls"; shift 2; exec "$@"'
# Writes down who ran, and which deck.
MINITAW = """
basename "$2" >>"$STATE/decks"
shift 2
while [ "$1" != -o ]; do shift; done
basename "$2" >>"$STATE/runs"
[ ! -e "$STATE/fails" ] || { echo 'minitaw: no such key' >&2; exit 2; }
cat "$(dirname "$0")/source" >"$2" """
# Says what the file `verdicts` holds: a line each time, the last one over and over. A row for each
# case of the decks so far: those
# of the first words, then the closing line.
COMPARE = """
import os, pathlib, sys
state = pathlib.Path(os.environ["STATE"])
with open(state / "compares", "a") as file:
    print(*sys.argv[1:], file=file)
first, *others = (state / "verdicts").read_text().splitlines()
if others:
    (state / "verdicts").write_text("\\n".join(others))
code, times, verdict = first.split(maxsplit=2)
if code == "2":
    print("compare:", times, verdict, file=sys.stderr)
elif code != "9":
    figures = f"0.001 0.0012 1.23{len(others)} 1.1 1.3"
    rows = "".join(f"      0 serial 1 1 32 1 2 {figures} {word}\\n" for word in times.split(","))
    print(f"# notes\\n{rows}COMPARISON: {verdict}")
sys.exit(int(code) % 8)"""
# Configures by making the folder, builds by copying what the tree holds next to the program.
CMAKE = """
[ "$1" = --preset ] && exit 0
[ ! -e src/broken ] || exit 1
cp "$STATE/minitaw" "$2/minitaw" && cat src/kernel >"$2/source"
"""


def program(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def git(*arguments):
    command = [
        "git",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "init.defaultBranch=main",
        "-C",
        str(TREE),
        *arguments,
    ]
    return programs.call(*command, check=True).stdout.strip()


def commit(text):
    (TREE / "src" / "kernel").write_text(text)
    git("add", "-A")
    git("commit", "-qm", text)
    return git("rev-parse", "HEAD")


def machine(*verdicts):
    """Programs that stand in, and a repository of two commits, `first` and `second`, on main."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "bin").mkdir(parents=True)
    program(FOLDER / "bin" / "mpiexec", MPIEXEC)
    program(FOLDER / "bin" / "cmake", CMAKE)
    program(FOLDER / "minitaw", MINITAW)
    say(*verdicts)
    shutil.copytree(REPOSITORY / "scripts", TREE / "scripts")
    (TREE / "scripts" / "compare").write_text(COMPARE, encoding="utf-8")
    (TREE / "inputs").mkdir()
    for name in DECKS:
        (TREE / "inputs" / name).touch()
    (TREE / ".gitignore").write_text("/build/\n/out/\n")
    (TREE / "src").mkdir()
    git("init", "-q")
    return commit("first"), commit("second")


def say(*verdicts):
    (FOLDER / "verdicts").write_text("\n".join(verdicts) + "\n")


def gate(*arguments, code, says="", stderr=subprocess.PIPE):
    """Calls it from another folder than the repository's; what it printed."""
    for name in ("runs", "compares", "calls", "decks"):
        (FOLDER / name).unlink(missing_ok=True)
    environment = os.environ | {
        "PATH": f"{FOLDER / 'bin'}:{os.environ['PATH']}",
        "STATE": str(FOLDER),
        "MINITAW_ENV": "host",
    }
    done = subprocess.run(
        [TREE / "scripts" / "perf-gate", *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment,
        cwd=FOLDER,
        timeout=240,
    )
    assert (
        done.returncode == code
    ), f"{arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
    assert (
        says in f"{done.stdout}{done.stderr}"
    ), f"{arguments}: {done.stdout}{done.stderr!r} does not say {says!r}"
    return done


def refused(*arguments, says):
    """One sentence, nothing measured."""
    done = gate(*arguments, code=2, says=says)
    assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert not (FOLDER / "runs").exists()


def measured(side):
    return (TREE / "out" / "perf-gate" / f"{side}-001.h5").read_text()


def the_base_is_chosen():
    machine("0 SAME SAME: x")
    gate(code=0, says="first (the commit before the last)")
    assert (measured("base"), measured("new")) == ("first", "second")
    (TREE / "src" / "kernel").write_text("changed")
    gate(code=0, says="second (the last commit, because files were changed)")
    assert (measured("base"), measured("new")) == ("second", "changed")
    git("checkout", "-q", "-b", "branch")
    commit("third")
    commit("fourth")
    gate(code=0, says="second (where this branch left main)")
    assert (measured("base"), measured("new")) == ("second", "fourth")
    gate("HEAD~1", code=0, says="third (as asked for)")
    assert (measured("base"), measured("new")) == ("third", "fourth")
    assert git("status", "--porcelain") == ""
    assert git("rev-parse", "--abbrev-ref", "HEAD") == "branch"


def a_base_folder_that_was_removed_or_spoilt_is_made_again():
    first, _ = machine("0 SAME SAME: x")
    gate(first, code=0)
    base = TREE / "build" / "perf-gate-base"
    shutil.rmtree(base)
    gate(first, code=0)
    (base / ".git").unlink()  # git would now take the repository around it
    (TREE / "src" / "kernel").write_text("changed")
    gate(first, code=0)
    assert (measured("base"), measured("new")) == ("first", "changed")


def turns(*pairs):
    return [
        f"{side}-{i:03}.h5"
        for number in pairs
        for i in range(1, number + 1)
        for side in ("base", "new")[:: 1 if i % 2 else -1]
    ]


def ran():
    return (FOLDER / "runs").read_text().split()


def looked():
    """After how many pairs compare was called."""
    return [
        len(line.partition(" --new ")[0].split()) - 1
        for line in (FOLDER / "compares").read_text().splitlines()
    ]


def pairs_turn_and_end_when_decided():
    """Each deck until its own cases are decided, whatever those before are; looks are few."""
    undecided = "0 AMBIGUOUS AMBIGUOUS: x"
    machine(
        undecided,
        undecided,
        "0 SAME SAME: x",
        *["0 SAME,AMBIGUOUS,SAME AMBIGUOUS: x"] * 3,
        "0 SAME,SAME,FASTER FASTER: x",
    )
    said = gate(code=0, says="COMPARISON: FASTER").stderr
    assert ran() == turns(17, 24) and looked() == [1, 12, 17, 17, 17, 17, 24], (ran(), looked())
    calls = (FOLDER / "calls").read_text().splitlines()
    assert all(call.startswith("-n 1 ") for call in calls[:34]), calls
    assert all(call.startswith("-n 2 ") for call in calls[34:]), calls
    assert (FOLDER / "decks").read_text().split() == ["gate.toml"] * 34 + [
        "gate-communication.toml"
    ] * 48
    assert "computing, pair 17 of 48, " in said, said
    assert "communication, pair 24 of 48, " in said, said
    assert " s: new / base 1.230 (1.1 to 1.3)\n" in said, said
    assert "--looks 10" in (FOLDER / "compares").read_text()
    assert "first-decides" not in (FOLDER / "compares").read_text()
    assert "--nightly adds every schedule" in said and "not decided" not in said, said


def what_stays_undecided_is_told():
    """Never as SAME. The first deck's open case does not keep the second one from its end."""
    machine(*["0 AMBIGUOUS AMBIGUOUS: x"] * 3, *["0 AMBIGUOUS,SAME,SAME AMBIGUOUS: x"] * 2)
    done = gate("--rounds", "14", code=0, says="COMPARISON: AMBIGUOUS")
    assert ran() == turns(14, 12) and looked() == [1, 12, 14, 14, 14], (ran(), looked())
    assert "not decided: computing. The load is " in done.stderr, done.stderr
    assert "or longer: --limit 600 --rounds 28" in done.stderr, done.stderr
    assert (
        "threshold" not in done.stderr
    ), "a threshold that is raised until a commit passes judges nothing"
    say("0 AMBIGUOUS AMBIGUOUS: x", "0 AMBIGUOUS,AMBIGUOUS AMBIGUOUS: x")
    gate("--limit", "0", code=0, says="not decided: computing and communication.")
    assert ran() == turns(1, 1), "each deck has its share of the time"
    say("1 AMBIGUOUS AMBIGUOUS: x")
    gate("--rounds", "2", "--strict", code=1, says="not decided: computing.")
    assert ran() == turns(2, 2), "what is not decided ends no stage, --strict or not"
    say("0 SAME SAME: x")
    gate("--rounds", "2", code=0)
    assert (
        len(list((TREE / "out" / "perf-gate").glob("*-[0-9]*.h5"))) == 4
    ), "results of an earlier call are left"


def other_decks_are_run_as_they_are():
    machine("0 SAME SAME: x")
    said = gate(
        "--deck",
        TREE / "inputs" / "nightly.toml",
        "--ranks",
        "3",
        "--rounds",
        "20",
        "--set",
        "seq=8",
        code=0,
    ).stderr
    assert ran() == turns(12)
    assert "--looks 3" in (FOLDER / "compares").read_text()
    assert "--nightly" not in said
    assert all(
        call.startswith("-n 3 ") and " --set seq=8 -o " in call
        for call in (FOLDER / "calls").read_text().splitlines()
    )
    said = gate("--nightly", code=0).stderr
    assert ran() == turns(12, 12, 12, 12)
    assert "--looks 20" in (FOLDER / "compares").read_text()
    assert "--nightly" not in said
    assert (FOLDER / "decks").read_text().split() == [deck for deck in DECKS for _ in range(24)]
    assert [call.split()[1] for call in (FOLDER / "calls").read_text().splitlines()[::24]] == [
        "1",
        "2",
        "2",
        "1",
    ]


def two_commands_are_compared():
    """As of two MPIs: nothing is built; the words may hold options and variables."""
    machine("0 SAME SAME: x")
    for name in ("old", "new tree"):
        (FOLDER / name).mkdir()
        (FOLDER / name / "source").write_text(name)
        program(FOLDER / name / "minitaw", MINITAW)
    gate(
        "--base-run",
        f"WHICH=1 env mpiexec -n {{ranks}} {FOLDER}/old/minitaw",
        "--new-run",
        f"'{FOLDER}/new tree/minitaw'",
        "--set",
        "seq=8",
        code=0,
        says="COMPARISON: SAME",
    )
    assert (measured("base"), measured("new")) == ("old", "new tree")
    assert not (TREE / "build").exists()
    assert ran() == turns(12, 12), "the stages of the gate"
    assert [call.split()[1] for call in (FOLDER / "calls").read_text().splitlines()] == [
        "1"
    ] * 12 + ["2"] * 12


def a_regression_is_told():
    machine("0 SAME SAME: x", "1 SLOWER REGRESSION: 1 of 2 cases")
    gate(
        "--strict",
        "--junit",
        "a b.xml",
        "--threshold",
        "0.02",
        code=1,
        says="not measured after the regression: communication\n",
    )
    assert (
        "--strict --junit a b.xml --threshold 0.02" in (FOLDER / "compares").read_text()
    ), "two ranks can wait"
    assert ran() == turns(12), "two ranks can wait"


def what_cannot_be_compared_is_said():
    machine("2 base-001.h5 has schema version 9, this program reads up to 4")
    assert gate(code=2).stderr.endswith(
        "minitaw: base-001.h5 has schema version 9, this program reads up to 4\n"
    )
    assert ran() == turns(1), "that shows after the first pair"
    say("9 x x")
    gate(
        code=2, says="scripts/compare ended with exit code 1 and said nothing"
    )  # as Python does that fails
    say("0 SAME SAME: x")
    (FOLDER / "fails").touch()
    gate(code=2, says="base-001.txt; minitaw: no such key")
    (FOLDER / "fails").unlink()
    (TREE / "src" / "broken").touch()
    gate(code=2, says="the working tree cannot be built")


def bad_calls_are_refused():
    machine("0 SAME SAME: x")
    for words, says in (
        ("no-such-commit", "there is no commit 'no-such-commit'"),
        ("HEAD HEAD~1", "HEAD~1"),
        ("--bogus x", "--bogus"),
        ("--deck", "--deck"),
        ("--deck missing.toml", "there is no deck missing.toml"),
        ("--ranks two", "'two'"),
        ("--ranks 2", "belongs to --deck"),
        ("--nightly --deck x", "leave out --deck"),
        ("--rounds 0", "--rounds 0"),
        ("--base-run x", "go together"),
        ("HEAD --base-run x --new-run x", "leave out 'HEAD'"),
    ):
        refused(*words.split(), says=says)
    shutil.rmtree(TREE / ".git")
    refused(says="not a git repository")


for part in (
    the_base_is_chosen,
    a_base_folder_that_was_removed_or_spoilt_is_made_again,
    pairs_turn_and_end_when_decided,
    what_stays_undecided_is_told,
    other_decks_are_run_as_they_are,
    two_commands_are_compared,
    a_regression_is_told,
    what_cannot_be_compared_is_said,
    bad_calls_are_refused,
):
    part()
