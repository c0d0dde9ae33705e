# SPDX-License-Identifier: BSD-3-Clause
"""Stand-ins for the programs that scripts/gpu calls: they print what the programs print, and end
with their exit codes. A failure can be planted: one command line dies without a word and with code
0, or all fail.
"""

import os
import pathlib
import re
import shutil
import sys

import programs

REPOSITORY, FOLDER = map(pathlib.Path, sys.argv[1:3])
MINITAW_ITSELF = [
    path for path in sys.argv[3:] if os.path.exists(path)
]  # the real program, where it is built
TESTS = [
    "topology_devices",
    "energy_device",
    "kernels_layers",
    "kernels_matmul",
    "kernels_attention",
    "model_step",
    "model_context",
    "model_slices",
    "comm_device",
    "harness_job",
    "engine_quiet",
]
PLANTED = """nl='
'
case "$nl$PLANT_SILENT$nl" in *"$nl${0##*/}${*:+ $*}$nl"*) exit 0 ;; esac
[ -z "$PLANT_ALL" ] || [ "$*" = --version ] || { echo 'minitaw: planted'; exit 3; }"""
# As GoogleTest 1.16 prints it, for two suites of one test each.
TEST = """
set -- Typed/float Other
echo "[==========] Running $# tests from $# test suites."
for s in "$@"; do printf '[ RUN      ] %s.Works\\n' $s; BODY
  printf '[       OK ] %s.Works (0 ms)\\n' $s; done
echo "[==========] $# tests from $# test suites ran. (0 ms total)"
echo "[  PASSED  ] $# tests."
"""
# What is planted in one line is not planted in another that contains it.
INNER = 'unset PLANT_SILENT; "$@"'
MPIEXEC = f"shift 2; {INNER}"
# `run` judges as src/record/verdict.cpp does; results are text: the hidden size, recomputation and
# lengths that were asked for.
MINITAW = r"""
verb=$1 deck=$2 out= fits=65536
case $verb in --version) echo 'minitaw 0.2.0 (a commit, GNU 14.2.0, Release)'; exit ;; esac
[ ! -e "$deck" ] || eval "$(sed -nE 's/^(hidden|steps|recompute) = "?([^"]*)"?$/\1=\2/p' "$deck")"
for word in "$@"; do
  case $word in hidden=*|seq=*|steps=*|recompute=*) eval "$word" ;; esac
  [ "$last" != -o ] || out=$word
  last=$word
done
verdict() {
  if [ "${steps:-3}" -ge 3 ]; then
    echo 'figure of merit: 3384.62 tokens/s (serial, 1 rank in groups 1, 128 tokens)'
    echo 'RESULT: VALID'
    exit 0
  fi
  echo 'figure of merit: none'
  printf 'RESULT: INVALID: 1 of 1 case, first case 0 (serial): '
  echo "$steps timed steps, at least 3 are needed"
  exit 1
}
case $verb in
  run) [ -n "$out" ] || { echo 'minitaw: a stand-in writes no file of its own choice'; exit 2; }
    if grep -qsx "$hidden $recompute $seq" "$out"; then
      echo 'minitaw: a stand-in does not skip what is measured already'
      exit 2
    fi
    echo "$hidden $recompute $seq" >>"$out"
    verdict ;;
  verify)
    echo 'ddp            1 1           fp32  serial     0.0e+00   0.0e+00   0.0e+00  ok'
    echo 'RESULT: VALID' ;;
  plan) printf '{"notes": [], "cases": ['; comma=
    for length in $(echo "$seq" | tr ',' ' '); do
      [ "$length" -le 32768 ] && fits=true || fits=false
      printf '%s{"settings": {"hidden": %s}, ' "$comma" "$hidden"
      printf '"device": {"fits": %s}}' $fits
      comma=', '
    done; echo ']}' ;;
  show) cat "$deck"; verdict ;;
esac"""
KERNELS = r"""
case $* in *--verify*)
  echo 'ok     rmsnorm                  1 x 1               error 1.0e-08, at most 1e-05'
  echo '1 of 1 kernels are right' ;;
esac
while [ $# -gt 0 ]; do [ "$1" != --markdown ] || echo '| kernel |' >"$2"; shift; done"""
SANITIZER = r"""
tool=$6; shift 6; INNER; code=$?
case $tool in
  memcheck) echo '========= ERROR SUMMARY: 0 errors' ;;
  racecheck) echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)' ;;
esac
exit $code""".replace(
    "INNER", INNER
)
PLAIN = {
    "mpiexec": MPIEXEC,
    "minitaw": MINITAW,
    "minitaw_kernels": KERNELS,
    "compute-sanitizer": SANITIZER,
    "nvidia-smi": "echo 'A device, 580.159.03'",
}


def test(body=":"):
    """A test program; `body` runs in each test, `$s` is its suite."""
    return TEST.replace("BODY", body)


def failing(suite="*"):
    return test(
        f"case $s in {suite}) printf '[  FAILED  ] %s.Works (0 ms)\\n' $s; "
        "echo '[  FAILED  ] 1 test, listed below:'; exit 1 ;; esac"
    )


def machine(**programs):
    """A copy of the scripts and a folder of programs; None leaves one out."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "bin").mkdir(parents=True)
    (FOLDER / "place").mkdir()
    shutil.copytree(REPOSITORY / "scripts", FOLDER / "place" / "scripts")
    shutil.copytree(REPOSITORY / "inputs", FOLDER / "place" / "inputs")
    for name, body in ({f"test_{name}": test() for name in TESTS} | PLAIN | programs).items():
        if body is not None:
            path = FOLDER / "bin" / name
            path.write_text(f"#!/bin/sh\n{PLANTED}\n{body}\n", encoding="utf-8")
            path.chmod(0o755)


def call(*arguments, **environment):
    """The script on that machine, whose programs go before the real ones."""
    environment = os.environ | {"PATH": f"{FOLDER / 'bin'}:{os.environ['PATH']}"} | environment
    return programs.call(FOLDER / "place/scripts/gpu", *arguments, env=environment)


def check(*arguments, code, **environment):
    """What it printed, which must be its table, and its log. Nothing else but one folder is
    left."""
    out = FOLDER / "out"
    done = call(out, *arguments, **environment)
    assert done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    table = (out / "table.txt").read_text(encoding="utf-8")
    assert table == done.stdout
    left = ["files", "gpu.tar.xz", "log.txt", "table.txt"]
    assert sorted(file.name for file in out.iterdir()) == left
    return table, (out / "log.txt").read_text(encoding="utf-8")


def kept(name):
    """A file that came back."""
    return (FOLDER / "out/files" / name).read_text(encoding="utf-8")


def row(table, name):
    (found,) = [line for line in table.splitlines() if line.startswith(name)]
    return found


def commands(log):
    return re.findall(r"^== (.*?): ((?:mpiexec|minitaw|test_|compute-sanitizer).*)$", log, re.M)


def every_row_shows_a_failure(*arguments):
    """Of a command that dies without a word and with code 0, as MPICH's launcher makes of a lost
    rank, or in plain words. Several rows are tried at once, but for plans, on which others depend,
    and tables of what was measured. The real program takes every deck with its settings. Returns
    how many rows there are.
    """
    _, log = check(*arguments, code=0)
    every = commands(log)
    commands_are_understood([line for _, line in every])
    tables, others = (
        [(name, line) for name, line in every if name.startswith(("plan", "results")) == which]
        for which in (True, False)
    )
    for some in filter(None, (tables, others[::2], others[1::2])):
        table, _ = check(*arguments, code=1, PLANT_SILENT="\n".join(line for _, line in some))
        failed = [text for text in table.splitlines() if " FAILED " in text]
        assert failed == [row(table, f"{name} ") for name, _ in some], f"{some}:\n{table}"
        assert "RESULT: INVALID" in table, f"{some}:\n{table}"
    table, _ = check(*arguments, code=1, PLANT_ALL="yes")
    rows = re.findall(r"^.* \d+\.\d s.*", table, re.M)
    assert rows and all(" FAILED " in text or " skipped " in text for text in rows), table
    return len(every)


def commands_are_understood(lines):
    for words in (
        line.split()
        for line in lines
        if "minitaw" in line.split() and " show " not in line and MINITAW_ITSELF
    ):
        deck, settings = words[words.index("minitaw") + 2], [
            word for flag, word in zip(words, words[1:]) if flag == "--set"
        ]
        plan = [
            MINITAW_ITSELF[0],
            "plan",
            REPOSITORY / deck,
            *(word for setting in settings for word in ("--set", setting)),
        ]
        done = programs.call(*plan)
        assert done.returncode == 0, f"{words}: {done.stderr}"


def bad_calls_are_refused():
    machine()
    for arguments in ([], ["a", "--bogus"], ["a", "--limit", "x"], ["a", "--peer", "no"]):
        done = call(*arguments)
        assert done.returncode == 2 and "usage: scripts/gpu " in done.stderr, arguments
    done = call(FOLDER / "out", "--more", "no such row")
    assert done.returncode == 2 and "no row 'no such row'" in done.stderr, done.stderr
    assert "kernels: layers" in done.stderr, done.stderr
    machine(minitaw=None)
    done = call(FOLDER / "out")
    assert done.returncode != 0 and "no minitaw in PATH" in done.stderr
