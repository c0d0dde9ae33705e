# SPDX-License-Identifier: BSD-3-Clause
"""scripts/gpu, with stand-ins for the programs: every row of its table can fail, and what comes
back is complete."""

import argparse
import itertools
import json
import os
import pathlib
import re
import shutil
import tarfile
import time

import pytest
import steps
from programs import BUILD, REPOSITORY, call, minitaw, output_of, says

PASSED = "[  PASSED  ] 2 tests.\n"


@pytest.mark.parametrize(
    ("code", "command", "said", "state", "detail"),
    [
        (0, "test_x", PASSED, "ok", "2 passed"),
        (1, "test_x", "[  FAILED  ] A.b\n", "FAILED", "exit code 1; [  FAILED  ] A.b"),
        (0, "test_x", PASSED + "[  FAILED  ] A.b\n", "FAILED", "A.b"),
        (-11, "test_x", PASSED, "FAILED", "Segmentation fault"),
        (0, "test_x", "[  PASSED  ] 0 tests.\n", "FAILED", "no test was run"),
        (None, "test_x", "[ RUN      ] A.b\n", "TIMEOUT", "A.b"),
        (0, "test_x", "this machine has no NVML\n[  PASSED  ] 0 tests.\n", "skipped", "no NVML"),
        (2, "minitaw run d", "minitaw: this build has no NCCL; or\n", "skipped", "no NCCL"),
        (0, "minitaw run d", "RESULT: INVALID: 1 of 1\n", "FAILED", "1 of 1"),
        (0, "minitaw plan d --json", "{}", "FAILED", "no device"),
        (0, "minitaw_kernels --verify", "3 of 4 kernels are right\n", "FAILED", "no kernel"),
        (0, "compute-sanitizer memcheck", "ERROR SUMMARY: 2 errors\n", "FAILED", ""),
    ],
)
def test_a_step_is_judged(code, command, said, state, detail):
    found = run_of().judge(code, steps.Step("a row", 1, command.split()), said)
    assert found[0] == state and detail in found[1]


def run_of(**options):
    run = steps.Run.__new__(steps.Run)
    run.options, run.files = argparse.Namespace(limit=60, tiny=False, **options), pathlib.Path()
    run.began, run.numbers = time.monotonic(), itertools.count()
    return run


def test_time_runs_out_and_nobody_is_left():
    """Not even a rank whose launcher gave it a session of its own and died first."""
    orphan = "setsid sh -c 'echo $$ >pid; trap : TERM; while :; do sleep 1; done'"
    script = f"cd {pathlib.Path().absolute()}; {orphan} & sleep 60"
    assert run_of().perform(steps.Step("a row", 1, ["sh", "-c", script])).state == "TIMEOUT"
    status = pathlib.Path(f"/proc/{int(pathlib.Path('pid').read_text())}/status")
    assert not status.exists() or "zombie" in status.read_text()


def test_a_file_that_is_not_made_fails_a_step():
    step = steps.Step("a row", 1, ["minitaw", "run"], makes="a.h5")
    assert run_of().judge(0, step, "RESULT: VALID\n") == ("FAILED", "no a.h5")


# The script

# As MPICH's launcher makes of a lost rank: no word, and code 0.
PLANTED = """nl='
'
case "$nl$PLANT_SILENT$nl" in *"$nl${0##*/}${*:+ $*}$nl"*) exit 0 ;; esac
"""
MINITAW = r"""
for word in "$@"; do
  case $word in seq=*) eval "$word" ;; esac
  [ "$last" != -o ] || echo "a result" >"$word"
  last=$word
done
case $1 in
  --version) echo 'minitaw 0.2.0' ;;
  plan) [ "$seq" -le 32768 ] && fits=true || fits=false
    echo '{"cases": [{"device": {"fits": '$fits'}}]}' ;;
  *) echo 'RESULT: VALID' ;;
esac"""
# What is planted in one line is not planted in another that contains it.
INNER = 'unset PLANT_SILENT; "$@"'
PROGRAMS = {
    "minitaw": MINITAW,
    "mpiexec": f"shift 2; {INNER}",
    "minitaw_kernels": "echo '1 of 1 kernels are right'; for w in \"$@\"; do "
    'case $w in *.md) echo a table >"$w" ;; esac; done',
    "compute-sanitizer": f"shift 6; {INNER}; echo 'ERROR SUMMARY: 0 errors'; "
    "echo 'RACECHECK SUMMARY: 0 hazards'",
    "nvidia-smi": "echo 'A device, 580.159.03'",
}
TESTS = re.findall(r'"(test_\w+)"', (REPOSITORY / "scripts/gpu").read_text(encoding="utf-8"))
MORE = ["--more", "kernels: layers"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A packed folder, whose programs are stand-ins."""
    folder = tmp_path_factory.mktemp("gpu")
    for name in ("scripts", "inputs"):
        shutil.copytree(REPOSITORY / name, folder / name)
    (folder / "bin").mkdir()
    for name, body in (PROGRAMS | dict.fromkeys(TESTS, f"echo '{PASSED}'")).items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{PLANTED}\n{body}\n", encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    return folder


def gpu(place, *words, **variables):
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    return call(place / "scripts/gpu", *words, env=os.environ | {"PATH": path} | variables)


def rows_of(table):
    return dict(re.findall(r"^(\S.*?) +(ok|FAILED|skipped) +\d+\.\d s", table, re.MULTILINE))


def test_its_tests_are_built_and_packed():
    listed = re.search(
        r"for name in (kernels.*?);", (REPOSITORY / "scripts/pack").read_text(), re.S
    )
    packed = call("bash", "-c", f"echo {listed[1]}").stdout.split()
    files = (REPOSITORY / "tests").rglob("CMakeLists.txt")
    built = re.findall(r"NAME\s+(\w+)", " ".join(file.read_text() for file in files))
    assert {name.removeprefix("test_") for name in TESTS} == {*packed} <= {*built}


@pytest.fixture(scope="module")
def out(place):
    """Of both calls, with a peer that says what it was asked for."""
    (place / "peer.py").write_text("import json, sys; print(json.dumps(sys.argv[1:], indent=1))")
    for name, more in (("first", []), ("second", MORE)):
        done = gpu(place, place / name, *more, "--peer", place / "peer.py")
        assert done.returncode == 0 and "RESULT: VALID" in done.stdout, done.stdout
        assert {*rows_of(done.stdout).values()} == {"ok"}, done.stdout
        assert (place / name / "table.txt").read_text() == done.stdout
    return place


@pytest.mark.parametrize(
    ("name", "more", "count", "planted"),
    [("first", [], 35, r"(?!step)"), ("second", MORE, 22, r"(?!plan|results)")],
)
def test_every_row_shows_a_failure(name, more, count, planted, out):
    log = (out / name / "log.txt").read_text()
    lines = re.findall(r"^== (.*?): ((?:mpiexec|minitaw|test_|compute-s).*)$", log, re.MULTILINE)
    assert len(lines) == count
    for deck, words in re.findall(r"minitaw (?:run|verify|plan) (\S+)(.*)", log):
        sets = re.findall(r"(--set) (\S+)", words)
        output_of(minitaw("plan", REPOSITORY / deck, *itertools.chain(*sets)))
    for program, tests in {*re.findall(r"(test_\w+) (--gtest_filter=\S+)", log)}:
        (built,) = BUILD.glob(f"tests/*/{program}")
        assert "\n  " in call(built, tests, "--gtest_list_tests").stdout, tests
    wrong = {row: line for row, line in lines if re.match(planted, row)}
    silent = "\n".join(wrong.values()).replace(f"/{name}/", "/again/")
    done = gpu(out, out / "again", *more, PLANT_SILENT=silent)
    assert done.returncode == 1 and "RESULT: INVALID" in done.stdout
    failed = {row for row, state in rows_of(done.stdout).items() if state == "FAILED"}
    assert failed == wrong.keys()


def test_steps_stand_beside_the_peer(out):
    """Both compute nothing twice where that fits, at the same lengths."""
    peers = [json.loads(line) for line in (out / "first/files/peer.jsonl").open()]
    assert ["--no-recompute" in peer for peer in peers] == [True] * 3 + [False]
    assert [peer[peer.index("--seq") + 1] for peer in peers] == ["4096", "16384", "16384", "65536"]
    with tarfile.open(out / "first/gpu.tar.xz") as archive:
        assert {"table.txt", "log.txt", "files/peer.jsonl"} < {*archive.getnames()}


def test_what_may_fail_or_is_not_there_fails_nothing(out):
    """NCCL promises no two ranks on one device. Small sizes rehearse the call."""
    name, log = "NCCL: two ranks, one device", (out / "first/log.txt").read_text()
    (line,) = re.findall(rf"^== {name}: (.*)$", log, re.MULTILINE)
    (out / "bin/test_comm_device").unlink()
    done = gpu(out, out / "first", "--tiny", PLANT_SILENT=line)
    rows = rows_of(done.stdout)
    assert done.returncode == 0 and rows.pop(name) == "FAILED"
    assert {*rows.values()} == {"ok", "skipped"} and "no test_comm_device here" in done.stdout
    assert "seq=4096" not in (out / "first/log.txt").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "usage: scripts/gpu"),
        ("a --bogus", "--bogus"),
        ("a --peer no", "no file"),
        ("a --more no-such", "no row 'no-such'"),
    ],
)
def test_bad_calls_are_refused(words, told, place):
    done = gpu(place, *words.split())
    assert done.returncode == 2 and told in done.stderr


def test_a_missing_library_ends_the_run(place):
    (place / "bin/minitaw").write_text("#!/bin/sh\necho libcudnn.so.9 >&2; exit 127\n")
    done = gpu(place, "out")
    assert done.returncode == 1
    says(done.stdout, "libcudnn.so.9", "INVALID: minitaw does not start")
