# SPDX-License-Identifier: BSD-3-Clause
"""scripts/perf-gate: which commit it takes for the base, in which order it runs both, when it
stops, what it says and ends with."""

import html
import pathlib
import shutil
import sys
import types
import xml.etree.ElementTree as xml

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
    """In the place of runs, which take a second for each rank, and of scripts/compare, which says each
    verdict once and the last one over and over: a word for each case, then that of all. Returns
    what ran, after which pair it looked, and what compare was told beyond the files."""
    ran, looked, told = [], [], []

    def measure(options, program, name, stage):
        assert name.startswith(program)
        ran.append((stage.deck.name, stage.ranks, name))

    def judge(self, *more):
        looked.append(int(ran[-1][2][-3:]))
        told.extend(more)
        *words, verdict = verdicts[0].split()
        del verdicts[: len(verdicts) > 1]
        rows = [f"  0 tawpipe 1 1 32 1 2 0.001 0.0012 1.230 1.1 1.3 {word}\n" for word in words]
        self.code = {"REGRESSION": 1, "AMBIGUOUS": 3}.get(verdict, 0)
        self.said = f"# notes\n{''.join(rows)}COMPARISON: {verdict}: x\n"

    monkeypatch.setattr(
        perf_gate, "time", types.SimpleNamespace(monotonic=lambda: sum(run[1] for run in ran))
    )
    monkeypatch.setattr(perf_gate, "programs_of", lambda _: {"base": "base", "new": "new"})
    monkeypatch.setattr(perf_gate, "measure", measure)
    monkeypatch.setattr(perf_gate.Gate, "judge", judge)
    return ran, looked, told


OPEN, SAME = "AMBIGUOUS AMBIGUOUS", "SAME SAME"


@pytest.mark.parametrize(
    ("words", "verdicts", "code", "parts", "looks", "said"),
    [
        # each deck has its least number of pairs before one goes on, until it is decided
        (
            "",
            [OPEN, OPEN, *["AMBIGUOUS SAME AMBIGUOUS"] * 3, "SAME SAME SAME"],
            0,
            [(0, 1, 12), (1, 1, 12), (0, 13, 17), (0, 18, 24)],
            [1, 12, 1, 12, 17, 24],
            ["computing, pair 24 of 144", "new / base 1.230 (1.1 to 1.3)", "--nightly adds"],
        ),
        (
            "",
            [SAME, SAME, *[f"SAME {OPEN}"] * 3, "SAME FASTER FASTER"],
            0,
            [(0, 1, 12), (1, 1, 12), (1, 13, 17), (1, 18, 24)],
            [1, 12, 1, 12, 17, 24],
            ["communication, pair 24 of 144"],
        ),
        (
            "--rounds 14",
            [OPEN, OPEN, f"AMBIGUOUS {OPEN}"],
            3,
            [(0, 1, 12), (1, 1, 12), (0, 13, 14), (1, 13, 14)],
            [1, 12, 1, 12, 14, 14],
            ["not decided: computing and communication.", "--limit 600 --rounds 28"],
        ),
        # together they are decided
        (
            "",
            [OPEN, OPEN, OPEN, "AMBIGUOUS AMBIGUOUS FASTER"],
            0,
            [(0, 1, 12), (1, 1, 12)],
            [1, 12, 1, 12],
            ["communication, pair 12 of 144"],
        ),
        # time that one leaves goes to the others
        (
            "--limit 100",
            [SAME, SAME, f"SAME {OPEN}"],
            3,
            [(0, 1, 12), (1, 1, 12), (1, 13, 17), (1, 18, 19)],
            [1, 12, 1, 12, 17, 19],
            ["not decided: communication."],
        ),
        # 48 s for both, then 68 s and 60 s
        (
            "--limit 130",
            [OPEN, OPEN, f"AMBIGUOUS {OPEN}"],
            3,
            [(0, 1, 12), (1, 1, 12), (0, 13, 17), (0, 18, 24), (0, 25, 34), (1, 13, 15)],
            [1, 12, 1, 12, 17, 24, 34, 15],
            ["communication, pair 15 of 144"],
        ),
        ("--nightly", [SAME], 0, [(i, 1, 12) for i in range(4)], [1, 12] * 4, ["a long sequence"]),
    ],
)
def test_pairs_turn_until_decided(words, verdicts, code, parts, looks, said, monkeypatch, capsys):
    ran, looked, told = simulate(monkeypatch, [*verdicts])
    assert gate(monkeypatch, *words.split()) == code
    assert looked == looks
    assert ran == [
        (*DECKS[deck], f"{side}-{number:03}")
        for deck, first, last in parts
        for number in range(first, last + 1)
        for side in ("base", "new")[:: 1 if number % 2 else -1]
    ]
    assert told == []
    says(capsys.readouterr().err, *said)


@pytest.mark.parametrize(
    ("words", "verdicts", "pairs"),
    [("", [OPEN, "SLOWER REGRESSION"], 12), ("--limit 19", [SAME], 9)],
)
def test_what_was_not_measured_is_told(words, verdicts, pairs, monkeypatch):
    ran, _, told = simulate(monkeypatch, [*verdicts])
    gate(monkeypatch, *words.split())
    assert ran[-1][:2] == DECKS[0] and len(ran) == 2 * pairs
    assert told == ["--not-measured=communication"]


def test_two_commands_are_measured_and_compared(monkeypatch):
    """By the programs themselves. One pair decides nothing."""
    pathlib.Path("tiny.toml").write_text(
        'schedule = ["serial", "tawpipe"]\nlayers = 1\nhidden = 16\nheads = 2\nvocab = 32\n'
    )
    start = f"-run=WHICH=1 env mpiexec -n {{ranks}} {MINITAW}"
    words = ["--base" + start, "--new" + start, "--deck=tiny.toml", "--set=seq=8"]
    reports = ["--junit=new/a.xml", "--markdown=new/a.md"]
    sentence = refusal_of(gate, monkeypatch, *words, *reports, "--set=bogus=1")
    says(sentence, "base-001.txt", "bogus")
    (error,) = xml.parse("new/a.xml").getroot().iter("error")
    assert error.get("message") == sentence
    assert pathlib.Path("new/a.md").read_text() == f"**ERROR**: nothing was compared: {sentence}\n"
    pathlib.Path("out/new-007.h5").touch()  # left by another call
    few = "--ranks 1 --rounds 1 --set steps=3 -o out"
    done = process("perf-gate", *words, *reports, *few.split())
    assert done.returncode == 3, done
    says(done.stdout, "COMPARISON: AMBIGUOUS", "too few", "serial", "tawpipe")
    assert len([*pathlib.Path("out").glob("*.h5")]) == 2
    assert pathlib.Path("out/compare.txt").read_text() == done.stdout
    assert [*xml.parse("new/a.xml").getroot().iter("skipped")]
    assert "| tawpipe |" in pathlib.Path("new/a.md").read_text()


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
    refusal = refusal_of(gate, monkeypatch, *words.split(), "--junit=new/a.xml")
    says(refusal, told.strip())
    assert html.escape(refusal, quote=False) in pathlib.Path("new/a.xml").read_text()
