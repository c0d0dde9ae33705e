"""scripts/gpu-check with stand-ins for the programs: what it does when all is well, when a check fails, hangs or is not
there, and when time runs out. Called with the repository and a folder to write to."""

import os
import pathlib
import shutil
import subprocess
import sys

REPOSITORY, FOLDER = map(pathlib.Path, sys.argv[1:])
TESTS = ["topology_devices", "meters_device", "kernels_layers", "kernels_matmul", "kernels_attention", "kernels_quiet", "model_step",
         "comm_device", "engine_job", "engine_quiet"]
MPIEXEC = 'shift 2; exec "$@"'
MINITAW = """
case $1 in
  run) while [ $# -gt 0 ]; do [ "$1" = -o ] && echo result >"$2"; shift; done ;;
  show) echo 'the table of the file' ;;
esac"""


def machine(**programs):
    """A copy of the scripts and a folder of programs; None leaves one out."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "bin").mkdir(parents=True)
    (FOLDER / "place").mkdir()
    shutil.copytree(REPOSITORY / "scripts", FOLDER / "place" / "scripts")
    shutil.copytree(REPOSITORY / "inputs", FOLDER / "place" / "inputs")
    default = {f"test_{name}": "true" for name in TESTS}
    default |= {"mpiexec": MPIEXEC, "minitaw": MINITAW, "minitaw_kernels": "true", "compute-sanitizer": "exit 0",
                "nvidia-smi": "echo a device"}
    for name, body in (default | programs).items():
        if body is not None:
            path = FOLDER / "bin" / name
            path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
            path.chmod(0o755)


def check(*arguments, code):
    environment = os.environ | {"PATH": f"{FOLDER / 'bin'}:{os.environ['PATH']}"}
    out = FOLDER / "out"
    done = subprocess.run([FOLDER / "place/scripts/gpu-check", out, *arguments], capture_output=True, text=True,
                          env=environment, timeout=120)
    assert done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    table = (out / "table.txt").read_text(encoding="utf-8")
    assert table == done.stdout
    return table, (out / "log.txt").read_text(encoding="utf-8")


def row(table, name):
    (found,) = [line for line in table.splitlines() if line.startswith(name)]
    return found


def all_is_well():
    machine()
    table, log = check(code=0)
    assert "RESULT: VALID" in table and "FAILED" not in table and "the table of the file" in table
    assert " ok " in row(table, "verify: 1, 2 and 4 ranks") and "== kernels: layers" in log
    assert "skipped" in row(table, "peer")


def a_failure_is_told_and_the_rest_goes_on():
    machine(test_kernels_matmul="echo '[  FAILED  ] Matmul.Odd'; exit 1")
    table, _ = check(code=1)
    assert "FAILED" in row(table, "kernels: matrix products") and "Matmul.Odd" in row(table, "kernels: matrix products")
    assert " ok " in row(table, "kernels: attention") and "RESULT: INVALID" in table


def a_failure_whose_exit_code_is_lost_is_seen():
    machine(test_engine_job="echo '[  FAILED  ] 1 test, listed below:'; exit 0")
    table, log = check(code=1)
    assert "FAILED" in row(table, "engine: 1 rank") and "listed below" in log


def what_may_fail_does_not_fail_the_check():
    machine(mpiexec=MPIEXEC.replace("exec", 'case "$*" in *HOSTID*) exit 3;; esac; exec'))
    table, _ = check(code=0)
    assert "FAILED" in row(table, "NCCL: two ranks") and "RESULT: VALID" in table


def what_is_missing_is_skipped():
    machine(test_comm_device=None, **{"compute-sanitizer": None})
    table, _ = check(code=0)
    assert "no test_comm_device here" in table and "not in PATH" in row(table, "compute-sanitizer")


def time_runs_out():
    machine(test_kernels_layers="sleep 60")
    table, _ = check("--limit", "7", code=1)
    assert "TIMEOUT" in row(table, "kernels: layers") and "NO TIME" in table


def bad_calls_are_refused():
    machine()
    for arguments in ([], ["a", "b"], ["a", "--bogus"], ["a", "--limit"], ["a", "--limit", "x"], ["a", "--peer", "no"]):
        done = subprocess.run([FOLDER / "place/scripts/gpu-check", *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "usage" in done.stderr, arguments
    machine(minitaw=None)
    done = subprocess.run([FOLDER / "place/scripts/gpu-check", FOLDER / "out"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "no minitaw in PATH" in done.stderr


all_is_well()
a_failure_is_told_and_the_rest_goes_on()
a_failure_whose_exit_code_is_lost_is_seen()
what_may_fail_does_not_fail_the_check()
what_is_missing_is_skipped()
time_runs_out()
bad_calls_are_refused()
