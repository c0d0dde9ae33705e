"""scripts/gpu-check with stand-ins for the programs: what it does when all is well, when a check fails, dies, hangs or is not
there, and when time runs out. Called with the repository, a folder to write to and the real program."""

import time

from stand_ins import (LDD, PLAIN, MPIEXEC, FOLDER, bad_calls_are_refused, check, commands_are_understood, every_row_shows_a_failure, failing, kept, machine,
                       row, test)


def all_is_well():
    machine()
    table, log = check("gpu-check", code=0)
    assert "RESULT: VALID" in table and "FAILED" not in table
    assert "NCCL 2.28.9" in row(table, "driver, cuDNN, NCCL") and "driver 580.159.03" in table and "built without cuDNN" in table
    assert "2 passed" in row(table, "kernels: layers") and "== kernels: layers" in log and kept("ranks.h5")
    names = [line[:56].strip() for line in table.splitlines()]
    order = ["libraries", "driver, cuDNN, NCCL", "serial: a run end to end", "kernels: layers", "transport: staged MPI, 2 ranks",
             "verify: 1, 2 and 4 ranks", "schedules, 4 ranks share the device"]
    assert sorted(order, key=names.index) == order, names


def a_missing_library_embeddings_the_run():
    machine(ldd="case $1 in */minitaw|*layers) printf '\\tlibcudnn.so.9 => not found\\n' ;; esac")
    table, log = check("gpu-check", code=1)
    assert "libcudnn.so.9 (for minitaw, test_kernels_layers) cannot be loaded: install" in table.splitlines()[-1], table
    assert "FAILED" in row(table, "libraries") and "kernels" not in table.split("RESULT")[0].replace("test_kernels_layers", "") and log == ""


def a_library_that_cannot_be_asked_is_a_failure():
    machine(ldd=LDD.replace("NCCL", "/nowhere/libnccl.so.2"))
    table, _ = check("gpu-check", code=1)
    assert "FAILED" in row(table, "driver, cuDNN, NCCL") and "/nowhere" in table
    machine(**{"nvidia-smi": "echo 'NVIDIA-SMI has failed'; exit 9"})
    table, _ = check("gpu-check", code=1)
    assert "FAILED" in row(table, "driver, cuDNN, NCCL") and "NVIDIA-SMI has failed" in table


def a_failure_is_told_and_the_rest_goes_on():
    machine(test_kernels_matmul=failing("Other"), test_kernels_layers=test('case $s in Typed*) kill -SEGV $$ ;; esac'))
    table, _ = check("gpu-check", code=1)
    assert "FAILED" in row(table, "kernels: matrix products") and "listed below" in row(table, "kernels: matrix products")
    assert "Segmentation fault" in row(table, "kernels: layers")
    assert " ok " in row(table, "kernels: attention") and "RESULT: INVALID" in table


def no_test_is_a_failure():
    machine(test_kernels_attention="echo '[==========] Running 0 tests from 0 test suites.'; echo '[  PASSED  ] 0 tests.'")
    table, _ = check("gpu-check", code=1)
    assert "no test was run" in row(table, "kernels: attention") and "no test was run" in row(table, "memcheck: attention")


def what_a_sanitizer_finds_is_a_failure():
    for tool, told in (("memcheck", "ERROR SUMMARY: 0 errors"), ("racecheck", "SUMMARY: 0 hazards")):
        machine(**{"compute-sanitizer": PLAIN["compute-sanitizer"].replace(told, told.replace("0", "2"))})
        table, _ = check("gpu-check", code=1)
        assert "FAILED" in row(table, f"{tool}: layers"), table


def what_may_fail_does_not_fail_the_check():
    machine(mpiexec='case "$*" in *HOSTID*) exit 3;; esac\n' + MPIEXEC)
    table, _ = check("gpu-check", code=0)
    assert "FAILED" in row(table, "NCCL: two ranks") and "RESULT: VALID" in table


def what_is_missing_is_skipped():
    machine(test_comm_device=None, ldd=LDD.replace("libnccl", "libother"), **{"compute-sanitizer": None})
    table, _ = check("gpu-check", code=0)
    assert "no test_comm_device here" in table and "not in PATH" in row(table, "compute-sanitizer")
    assert "built without NCCL" in row(table, "NCCL: one rank")


def time_runs_out_and_nobody_is_left():
    """Not even a rank whose launcher gave it a session of its own and died first."""
    orphan = f"[ -n \"$MINITAW_SMALL_SHAPES\" ] || setsid sh -c 'echo $$ >{FOLDER}/orphan; trap : TERM; while :; do sleep 1; done' &\n"
    machine(test_kernels_layers=test(orphan + "sleep 60"), test_kernels_matmul=None, test_kernels_attention=None)
    table, _ = check("gpu-check", "--limit", "8", code=1)
    assert "TIMEOUT" in row(table, "kernels: layers") and "[ RUN      ] Typed/float.Works" in row(table, "kernels: layers") and "NO TIME" in table
    machine(test_kernels_layers=test(orphan))
    check("gpu-check", code=0)
    pid = int((FOLDER / "orphan").read_text())
    try:
        state = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
    except OSError:
        state = "gone"
    assert state in ("gone", "Z"), state


def a_huge_log_is_cut_and_kept_in_the_archive():
    much = "head -c 9000000 /dev/zero | tr '\\0' x; echo\n"
    machine(test_kernels_layers=much + test(), test_kernels_attention=much + test(), test_model_step=much + test())
    _, log = check("gpu-check", code=0)
    assert len(log) < 9 << 20 and "bytes left out" in log and log.count("== ") and len(kept("log.txt")) > 11 << 20


began = time.monotonic()
for part in (all_is_well, a_missing_library_embeddings_the_run, a_library_that_cannot_be_asked_is_a_failure, a_failure_is_told_and_the_rest_goes_on,
             no_test_is_a_failure,
             what_a_sanitizer_finds_is_a_failure, what_may_fail_does_not_fail_the_check, what_is_missing_is_skipped,
             time_runs_out_and_nobody_is_left, a_huge_log_is_cut_and_kept_in_the_archive):
    part()
    print(f"{time.monotonic() - began:6.1f} s  {part.__name__}", flush=True)
bad_calls_are_refused("gpu-check")
machine()
commands_are_understood("gpu-check")
assert every_row_shows_a_failure("gpu-check", may=("NCCL: two ranks",), rounds=5) == 24
print(f"{time.monotonic() - began:6.1f} s  every row shows a failure")
