# SPDX-License-Identifier: BSD-3-Clause
"""scripts/perf-gate with stand-ins for cmake, mpiexec and the program: which commit it takes for the base, in which order it runs
both, when it stops, what it says and ends with. Called with the repository and a folder to write to."""

import os
import pathlib
import pty
import shutil
import subprocess
import sys

REPOSITORY, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
TREE = FOLDER / "tree"
MPIEXEC = 'echo "$*" >>"$STATE/calls"; shift 2; exec "$@"'
# Writes down who ran.
MINITAW = """
shift 2
while [ "$1" != -o ]; do shift; done
basename "$2" >>"$STATE/runs"
[ ! -e "$STATE/fails" ] || { echo 'minitaw: no such key' >&2; exit 2; }
cat "$(dirname "$0")/source" >"$2" """
# Says what the file `verdicts` holds: a line each time, the last one over and over.
COMPARE = """
import os, pathlib, sys
state = pathlib.Path(os.environ["STATE"])
with open(state / "compares", "a") as file:
    print(*sys.argv[1:], file=file)
first, *others = (state / "verdicts").read_text().splitlines()
if others:
    (state / "verdicts").write_text("\\n".join(others))
code, verdict = first.split(maxsplit=1)
if code == "2":
    print("compare:", verdict, file=sys.stderr)
else:
    print(f"# notes\\n      0 serial 1 1 32 1 2 0.001 0.0012 1.23{len(others)} 1.1 1.3 SLOWER\\nCOMPARISON: {verdict}")
sys.exit(int(code))"""
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
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-C", str(TREE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

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
    (TREE / "inputs" / "gate.toml").touch()
    (TREE / ".gitignore").write_text("/build/\n/out/\n")
    (TREE / "src").mkdir()
    git("init", "-q")
    return commit("first"), commit("second")

def say(*verdicts):
    (FOLDER / "verdicts").write_text("\n".join(verdicts) + "\n")

def gate(*arguments, code, says="", stderr=subprocess.PIPE):
    """Calls it from another folder than the repository's; what it printed."""
    for name in ("runs", "compares", "calls"):
        (FOLDER / name).unlink(missing_ok=True)
    environment = os.environ | {"PATH": f"{FOLDER / 'bin'}:{os.environ['PATH']}", "STATE": str(FOLDER), "MINITAW_ENV": "host"}
    done = subprocess.run([TREE / "scripts" / "perf-gate", *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment, cwd=FOLDER, timeout=240)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
    assert says in f"{done.stdout}{done.stderr}", f"{arguments}: {done.stdout}{done.stderr!r} does not say {says!r}"
    return done

def refused(*arguments, says):
    """One sentence, nothing measured."""
    done = gate(*arguments, code=2, says=says)
    assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert not (FOLDER / "runs").exists()

def measured(side):
    return (TREE / "out" / "perf-gate" / f"{side}-001.h5").read_text()

def the_base_is_chosen():
    machine("0 SAME")
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
    assert git("status", "--porcelain") == "" and git("rev-parse", "--abbrev-ref", "HEAD") == "branch"

def a_base_folder_that_was_removed_or_spoilt_is_made_again():
    first, _ = machine("0 SAME")
    gate(first, code=0)
    base = TREE / "build" / "perf-gate-base"
    shutil.rmtree(base)
    gate(first, code=0)
    (base / ".git").unlink()  # git would now take the repository around it
    (TREE / "src" / "kernel").write_text("changed")
    gate(first, code=0)
    assert (measured("base"), measured("new")) == ("first", "changed")

def turns(*pairs):
    return [f"{side}-{i:03}.h5" for number in pairs for i in range(1, number + 1) for side in ("base", "new")[::1 if i % 2 else -1]]

def ran():
    return (FOLDER / "runs").read_text().split()

def pairs_turn_and_end_when_decided():
    machine(*["0 AMBIGUOUS: why"] * 7, "0 FASTER")  # compared after 1, 3, 6, 7, 8, 9, 10 and 11 pairs
    said = gate(code=0, says="COMPARISON: FASTER").stderr
    assert ran() == turns(11, 9), ran()
    calls = (FOLDER / "calls").read_text().splitlines()
    assert all(call.startswith("-n 1 ") and " --set ranks=1 --set groups=1 -o " in call for call in calls[:22]), calls
    assert all(call.startswith("-n 2 ") and " --set " not in call for call in calls[22:]) and "--first-decides" in (FOLDER / "compares").read_text(), calls
    assert "minitaw: one rank, pair 3 of 48, " in said and " s: new / base 1.236 (1.1 to 1.3)\n" in said and "two ranks, pair 9 of 9, " in said, said
    say("0 AMBIGUOUS: why")
    gate("--rounds", "12", code=0, says="or longer: --limit 600 --rounds 24")
    assert ran() == turns(12, 9)
    gate("--limit", "0", code=0, says="the limit came before the runs of two ranks")
    assert ran() == turns(1)
    say("0 SAME")
    gate("--rounds", "12", "--ranks", "2", code=0)
    assert ran() == turns(9) and "--first-decides" not in (FOLDER / "compares").read_text()
    gate("--rounds", "2", code=0)
    assert len(list((TREE / "out" / "perf-gate").glob("*-[0-9]*.h5"))) == 4, "results of an earlier call are left"

def a_terminal_sees_one_line_that_renews_itself():
    machine("0 SAME")
    ours, theirs = pty.openpty()
    gate("--rounds", "2", code=0, stderr=theirs)
    said = os.read(ours, 1 << 16).decode()
    assert said.count("\r\x1b[Kminitaw: one rank, pair ") == 2 and "pair 1 of 2" in said and said.count("\r\n") == 4 + 2, said  # commits, builds; ends

def two_commands_are_compared():
    """As of two MPIs: nothing is built; the words may hold options and variables."""
    machine("0 SAME")
    for name in ("old", "new tree"):
        (FOLDER / name).mkdir()
        (FOLDER / name / "source").write_text(name)
        program(FOLDER / name / "minitaw", MINITAW)
    gate("--base-run", f"WHICH=1 env {FOLDER}/old/minitaw", "--new-run", f"'{FOLDER}/new tree/minitaw'", "--set", "seq=8", code=0, says="COMPARISON: SAME")
    assert (measured("base"), measured("new")) == ("old", "new tree") and not (TREE / "build").exists()

def a_regression_is_told():
    machine("0 SAME", "1 REGRESSION: 1 of 2 cases")
    gate("--strict", "--junit", "a b.xml", "--threshold", "0.02", code=1, says="COMPARISON: REGRESSION: 1 of 2 cases")
    assert "--strict --junit a b.xml --threshold 0.02" in (FOLDER / "compares").read_text() and ran() == turns(9), "two ranks can wait"

def what_cannot_be_compared_is_said():
    machine("2 base-001.h5 has schema version 9, this program reads up to 4")
    assert gate(code=2).stderr.endswith("minitaw: base-001.h5 has schema version 9, this program reads up to 4\n")
    assert ran() == turns(1), "that shows after the first pair"
    (FOLDER / "fails").touch()
    gate(code=2, says="base-001.txt; minitaw: no such key")
    (FOLDER / "fails").unlink()
    (TREE / "src" / "broken").touch()
    gate(code=2, says="the working tree cannot be built")

def bad_calls_are_refused():
    machine("0 SAME")
    for words, says in (("no-such-commit", "there is no commit 'no-such-commit'"), ("HEAD HEAD~1", "HEAD~1"), ("--bogus x", "--bogus"),
                        ("--deck", "--deck"), ("--deck missing.toml", "there is no deck missing.toml"), ("--ranks two", "'two'"),
                        ("--base-run x", "go together"), ("HEAD --base-run x --new-run x", "leave out 'HEAD'")):
        refused(*words.split(), says=says)
    shutil.rmtree(TREE / ".git")
    refused(says="not a git repository")

for part in (the_base_is_chosen, a_base_folder_that_was_removed_or_spoilt_is_made_again, pairs_turn_and_end_when_decided,
             a_terminal_sees_one_line_that_renews_itself, two_commands_are_compared, a_regression_is_told, what_cannot_be_compared_is_said, bad_calls_are_refused):
    part()
