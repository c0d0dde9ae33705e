# SPDX-License-Identifier: BSD-3-Clause
"""scripts/perf-gate: which commit it takes for the base, in which order it runs both, when it
stops, what it says and ends with."""

import pathlib
import shutil
import sys
import types

import perf_gate
import pytest
from programs import MINITAW, call, process, refusal_of, says

DECKS = (
    ("gate.toml", 1),
    ("gate-communication.toml", 2),
    ("nightly.toml", 2),
    ("nightly-long.toml", 1),
)


def gate(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["perf-gate", "-o", "out", *words])
    return perf_gate.main()


def simulate(monkeypatch, verdicts):
    """In the place of runs, which take a second each, and of scripts/compare, which says each
    verdict once and the last one over and over: a word for each case, then that of all. Returns
    what ran, and after which pair it looked."""
    ran, looked = [], []

    def measure(options, program, name, stage):
        assert name.startswith(program)
        ran.append((stage.deck.name, stage.ranks, name))

    def judge(options):
        looked.append(int(ran[-1][2][-3:]))
        *words, verdict = verdicts[0].split()
        del verdicts[: len(verdicts) > 1]
        rows = [f"  0 tawpipe 1 1 32 1 2 0.001 0.0012 1.230 1.1 1.3 {word}\n" for word in words]
        return int(verdict == "REGRESSION"), f"# notes\n{''.join(rows)}COMPARISON: {verdict}: x\n"

    monkeypatch.setattr(perf_gate, "time", types.SimpleNamespace(monotonic=lambda: len(ran)))
    monkeypatch.setattr(perf_gate, "programs_of", lambda _: {"base": "base", "new": "new"})
    monkeypatch.setattr(perf_gate, "measure", measure)
    monkeypatch.setattr(perf_gate, "judge", judge)
    return ran, looked


OPEN, SAME = "AMBIGUOUS AMBIGUOUS", "SAME SAME"


@pytest.mark.parametrize(
    ("words", "verdicts", "code", "looks", "told"),
    [
        # each deck until its own cases are decided
        (
            "",
            [OPEN, OPEN, SAME, *["SAME AMBIGUOUS AMBIGUOUS"] * 3, "SAME FASTER FASTER"],
            0,
            [[1, 12, 17], [1, 12, 17, 24]],
            ["communication, pair 24 of 48", "new / base 1.230 (1.1 to 1.3)", "--nightly adds"],
        ),
        # an open case is told, and does not keep the second deck from its end
        (
            "--rounds 14",
            [OPEN] * 3 + ["AMBIGUOUS SAME AMBIGUOUS"],
            0,
            [[1, 12, 14], [1, 12]],
            ["not decided: computing.", "--limit 600 --rounds 28"],
        ),
        # each deck has its share of the time
        (
            "--limit 40",
            [OPEN, OPEN, f"AMBIGUOUS {OPEN}"],
            0,
            [[1, 10], [1, 10]],
            ["computing and communication."],
        ),
        (
            "",
            [SAME, "SLOWER REGRESSION"],
            1,
            [[1, 12]],
            ["not measured after the regression: comm"],
        ),
        ("--nightly", [SAME], 0, [[1, 12]] * 4, ["a long sequence, pair 12 of 48"]),
    ],
)
def test_pairs_turn_until_decided(words, verdicts, code, looks, told, monkeypatch, capsys):
    ran, looked = simulate(monkeypatch, [*verdicts])
    assert gate(monkeypatch, *words.split()) == code
    assert looked == sum(looks, [])
    assert ran == [
        (*deck, f"{side}-{number:03}")
        for deck, (*_, most) in zip(DECKS, looks)
        for number in range(1, most + 1)
        for side in ("base", "new")[:: 1 if number % 2 else -1]
    ]
    says(capsys.readouterr().err, *told)


def test_two_commands_are_measured_and_compared(monkeypatch):
    """By the programs themselves. One pair decides nothing."""
    pathlib.Path("tiny.toml").write_text(
        'schedule = ["serial", "tawpipe"]\nlayers = 1\nhidden = 16\nheads = 2\nvocab = 32\n'
    )
    start = f"-run=WHICH=1 env mpiexec -n {{ranks}} {MINITAW}"
    words = ["--base" + start, "--new" + start, "--deck=tiny.toml", "--set=seq=8"]
    says(refusal_of(gate, monkeypatch, *words, "--set=bogus=1"), "base-001.txt", "bogus")
    pathlib.Path("out/new-007.h5").touch()  # left by another call
    few = "--ranks 1 --rounds 1 --set steps=3 --junit a.xml -o out"
    done = process("perf-gate", *words, *few.split())
    assert done.returncode == 0, done
    says(done.stdout, "COMPARISON: AMBIGUOUS", "too few", "serial", "tawpipe")
    assert len([*pathlib.Path("out").glob("*.h5")]) == 2
    assert pathlib.Path("out/compare.txt").read_text() == done.stdout
    assert "<testsuite" in pathlib.Path("a.xml").read_text()


def test_the_base_is_chosen(monkeypatch, capsys):
    tree = pathlib.Path("tree").absolute()
    base, source = tree / "build/base", tree / "src/kernel"
    monkeypatch.setattr(perf_gate, "ROOT", tree)
    monkeypatch.setattr(perf_gate, "BASE_TREE", base)
    source.parent.mkdir(parents=True)
    (tree / ".gitignore").write_text("/build/\n")

    def git(*words):
        identity = "-c user.name=a -c user.email=a@b".split()
        return call("git", *identity, "-C", tree, *words, check=True).stdout

    def commit(text):
        source.write_text(text)
        git("add", "-A")
        git("commit", "-qm", text)

    def base_is(text, why, asked=None):
        perf_gate.check_out_base(perf_gate.choose_base(asked))
        assert (base / "src/kernel").read_text() == text
        says(capsys.readouterr().err, text, why)

    git("init", "-q", "-b", "main")
    commit("first")
    commit("second")
    base_is("first", "the commit before the last")
    source.write_text("changed")
    base_is("second", "because files were changed")
    git("checkout", "-qfb", "branch")
    commit("third")
    commit("fourth")
    base_is("second", "where this branch left main")
    base_is("third", "as asked for", "HEAD~1")
    shutil.rmtree(base)
    base_is("second", "left main")
    (base / ".git").unlink()  # git would take the repository around it
    base_is("fourth", "as asked for", "HEAD")
    assert git("status", "--porcelain", "--branch") == "## branch\n"
    says(refusal_of(perf_gate.choose_base, "no-such"), "no-such", "--base-run")
    says(refusal_of(perf_gate.build, "working tree", tree), "tree cannot be built", "log.txt")
    shutil.rmtree(tree / ".git")
    says(refusal_of(perf_gate.choose_base, None), "not a git repository")


REFUSED = """
HEAD HEAD~1                    | HEAD~1
--deck missing.toml            | missing.toml
--ranks 2                      | belongs to --deck
--nightly --deck x             | leave out --deck
--base-run x                   | go together
HEAD --base-run x --new-run x  | leave out 'HEAD'
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_bad_calls_are_refused(line, monkeypatch):
    words, _, told = line.partition("|")
    says(refusal_of(gate, monkeypatch, *words.split()), told.strip())
