# SPDX-License-Identifier: BSD-3-Clause
"""scripts/gpu, whose commands are not run but say what a test makes up: every row of its table can
fail, and what comes back is complete."""

import json
import os
import pathlib
import re
import runpy
import shutil
import sys
import tarfile

import pytest
import steps
from programs import BUILD, REPOSITORY, call, minitaw, output_of, says

# Exit code, command, what it says, and the verdict on it.
JUDGED = """
0   | test_x                     | [  PASSED  ] 2 tests.         | ok      | 2 passed
1   | test_x                     | [  FAILED  ] A.b              | FAILED  | exit code 1; [  FAILED  ] A.b
0   | test_x                     | [  FAILED  ] A.b              | FAILED  | A.b
-11 | test_x                     | [  PASSED  ] 2 tests.         | FAILED  | Segmentation fault
0   | test_x                     | [  PASSED  ] 0 tests.         | FAILED  | no test was run
    | test_x                     | [ RUN      ] A.b              | TIMEOUT | A.b
0   | test_x                     | this machine has no NVML      | skipped | no NVML
2   | minitaw run d              | minitaw: this build has no NCCL; or | skipped | no NCCL
0   | minitaw run d              | RESULT: INVALID: 1 of 1       | FAILED  | 1 of 1
0   | minitaw_kernels --verify   | 3 of 4 kernels are right      | FAILED  | no kernel
0   | compute-sanitizer memcheck | ERROR SUMMARY: 2 errors       | FAILED  |
"""


@pytest.mark.parametrize("line", JUDGED.strip("\n").splitlines())
def test_a_step_is_judged(line):
    code, command, said, state, detail = (cell.strip() for cell in line.split("|"))
    step = steps.Step("a row", 1, command.split())
    found = steps.Run().judge(int(code) if code else None, step, said)
    assert found[0] == state and detail in found[1]


def test_time_runs_out_and_nobody_is_left():
    """Not even a rank whose launcher gave it a session of its own and died first."""
    orphan = "setsid sh -c 'echo $$ >pid; trap : TERM; while :; do sleep 1; done'"
    script = f"cd {pathlib.Path().absolute()}; {orphan} & sleep 60"
    assert steps.Run().perform(steps.Step("a row", 1, ["sh", "-c", script])).state == "TIMEOUT"
    status = pathlib.Path(f"/proc/{int(pathlib.Path('pid').read_text())}/status")
    assert not status.exists() or "zombie" in status.read_text()


def test_a_command_has_its_variables_and_is_left_out_without_its_program():
    words, also = ["sh", "-c", "pwd; echo $WHICH"], {"WHICH": "one"}
    done = steps.Run().perform(steps.Step("a row", 9, words, environment=also))
    assert done.said == f"{REPOSITORY}\none\n"
    done = steps.Run().perform(steps.Step("a row", 9, ["mpiexec", "test_nosuch"]))
    assert (done.state, done.detail) == ("skipped", "no test_nosuch here")


# The script

ALL_WELL = """
[  PASSED  ] 2 tests.
RESULT: VALID
1 of 1 kernels are right
ERROR SUMMARY: 0 errors
RACECHECK SUMMARY: 0 hazards
"""
TESTS = re.findall(r'"(test_\w+)"', (REPOSITORY / "scripts/gpu").read_text())
MORE = ("--more", "kernels: layers")


class Run(steps.Run):
    """Runs only the peer. Other commands say that all is well; that of one row is silent, as
    MPICH's launcher makes of a lost rank, with code 0."""

    silent = ""

    def __init__(self):
        super().__init__()
        self.performed, Run.last = [], self

    def perform(self, step):
        if step.name.startswith("peer"):
            return super().perform(step)
        self.performed.append(step)
        length = re.search(r" seq=(\d+)", " ".join(step.command))
        fits = json.dumps(length is not None and int(length[1]) <= 32768)
        said = f'{{"cases": [{{"device": {{"fits": {fits}}}}}]}}{ALL_WELL}'
        said *= step.name != self.silent
        for word in self.words(step):
            if step.makes and said and word.endswith(f"/{step.makes}"):
                pathlib.Path(word).write_text("a result")
        return steps.Done(*self.judge(0, step, said), said=said)


def gpu(monkeypatch, *words, silent=""):
    """Calls the script: its exit code."""
    monkeypatch.setattr(steps, "Run", Run)
    monkeypatch.setattr(Run, "silent", silent)
    pathlib.Path("peer.py").write_text("import json, sys; print(json.dumps(sys.argv, indent=1))")
    monkeypatch.setattr(sys, "argv", ["gpu", "out", "--peer=peer.py", *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(REPOSITORY / "scripts/gpu"))
    return int(ended.value.code)


def rows():
    table = pathlib.Path("out/table.txt").read_text()
    return dict(re.findall(r"^(\S.*?) +(ok|FAILED|skipped) +\d+\.\d s", table, re.MULTILINE))


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(os, "environ", {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"})
    monkeypatch.setattr(steps, "answer", lambda _: "minitaw 0.2.0\n")
    monkeypatch.setattr(sys, "argv", ["gpu", "out"])


def test_its_tests_are_built_and_packed():
    pack = (REPOSITORY / "scripts/pack").read_text()
    listed = re.search(r"for name in (kernels.*?);", pack, re.S)
    packed = call("bash", "-c", f"echo {listed[1]}").stdout.split()
    files = (REPOSITORY / "tests").rglob("CMakeLists.txt")
    built = re.findall(r"NAME\s+(\w+)", " ".join(file.read_text() for file in files))
    assert {name.removeprefix("test_") for name in TESTS} == {*packed} <= {*built}


@pytest.mark.parametrize(("more", "count"), [((), 35), (MORE, 22)])
def test_every_row_can_fail_and_asks_for_what_exists(more, count, monkeypatch, capsys):
    assert gpu(monkeypatch, *more) == 0 and {*rows().values()} == {"ok"}
    assert capsys.readouterr().out == pathlib.Path("out/table.txt").read_text()
    assert len(Run.last.performed) == count
    shutil.rmtree("out/files")
    for step in Run.last.performed:
        assert Run.last.judge(0, step, "")[0] == "FAILED", step
        line = " ".join(step.command)
        if deck := re.search(r"minitaw (?:run|verify|plan) (\S+)", line):
            sets = re.findall(r"--set \S+", line)
            output_of(minitaw("plan", REPOSITORY / deck[1], *" ".join(sets).split()))
        if tests := re.search(r"(test_\w+) (--gtest_filter=\S+)", line):
            (built,) = BUILD.glob(f"tests/*/{tests[1]}")
            assert "\n  " in call(built, tests[2], "--gtest_list_tests").stdout, step


@pytest.mark.parametrize(
    ("words", "silent", "code"),
    [(MORE, "memcheck: kernels: layers", 1), (["--tiny"], "NCCL: two ranks, one device", 0)],
)
def test_a_row_fails_the_whole_unless_it_may_fail(words, silent, code, monkeypatch, capsys):
    """NCCL promises no two ranks on one device. Small sizes rehearse the call."""
    assert gpu(monkeypatch, *words, silent=silent) == code
    assert [row for row, state in rows().items() if state == "FAILED"] == [silent]
    says(capsys.readouterr().out, "RESULT: INVALID" if code else "RESULT: VALID")
    assert "seq=4096" not in pathlib.Path("out/log.txt").read_text() or code


def test_steps_stand_beside_the_peer(monkeypatch):
    """Both compute nothing twice where that fits, at the same lengths."""
    gpu(monkeypatch)
    peers = [json.loads(line) for line in open("out/files/peer.jsonl")]
    assert ["--no-recompute" in peer for peer in peers] == [True] * 3 + [False]
    assert [peer[peer.index("--seq") + 1] for peer in peers] == ["4096", "16384", "16384", "65536"]
    with tarfile.open("out/gpu.tar.xz") as archive:
        assert {"table.txt", "log.txt", "files/peer.jsonl"} < {*archive.getnames()}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--peer", "no"], "no file"),
        (["--more", "no-such"], "no row 'no-such'"),
    ],
)
def test_bad_calls_are_refused(words, told, monkeypatch, capsys):
    assert gpu(monkeypatch, *words) == 2
    says(capsys.readouterr().err, told)


def test_a_missing_library_ends_the_run(monkeypatch, capsys):
    monkeypatch.setattr(steps, "answer", lambda _: "libcudnn.so.9\n")
    with pytest.raises(SystemExit, match="True"):
        steps.Run()
    says(capsys.readouterr().out, "libcudnn.so.9", "INVALID: minitaw does not start")
