"""Stand-ins for the programs that scripts/gpu-check and scripts/gpu-speed call."""

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


def call(script, *arguments):
    """The script on that machine, whose programs go before the real ones."""
    environment = os.environ | {"PATH": f"{FOLDER / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run([FOLDER / "place/scripts" / script, *arguments], capture_output=True, text=True, env=environment, timeout=120)


def check(script, *arguments, code):
    """What it printed, which must be its table, and its log."""
    out = FOLDER / "out"
    done = call(script, out, *arguments)
    assert done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    table = (out / "table.txt").read_text(encoding="utf-8")
    assert table == done.stdout
    return table, (out / "log.txt").read_text(encoding="utf-8")


def row(table, name):
    (found,) = [line for line in table.splitlines() if line.startswith(name)]
    return found


def bad_calls_are_refused(script):
    machine()
    for arguments in ([], ["a", "b"], ["a", "--bogus"], ["a", "--limit"], ["a", "--limit", "x"], ["a", "--peer", "no"]):
        done = call(script, *arguments)
        assert done.returncode == 2 and f"usage: scripts/{script}" in done.stderr, arguments
    machine(minitaw=None)
    done = call(script, FOLDER / "out")
    assert done.returncode != 0 and "no minitaw in PATH" in done.stderr
