# SPDX-License-Identifier: BSD-3-Clause
"""scripts/gpu-check with stand-ins for the programs: what it does when all is well, when a check
fails, dies, hangs or is not there, and when time runs out. Called with the repository, a folder to
write to and the real program.
"""

import time

from stand_ins import (
    FOLDER,
    MPIEXEC,
    PLAIN,
    bad_calls_are_refused,
    check,
    every_row_shows_a_failure,
    failing,
    kept,
    machine,
    row,
    test,
)


def all_is_well_but_for_what_may_fail():
    machine(mpiexec='case "$*" in *HOSTID*) exit 3;; esac\n' + MPIEXEC)
    table, log = check("gpu-check", code=0)
    assert "FAILED" in row(table, "NCCL: two ranks")
    assert table.count("FAILED") == 1
    assert "RESULT: VALID" in table
    assert "580.159.03" in table
    assert "2 passed" in row(table, "kernels: layers")
    assert "== kernels: layers" in log
    assert kept("ranks.h5")
    names = [line[:56].strip() for line in table.splitlines()]
    order = [
        "serial: a run end to end",
        "kernels: layers",
        "transport: staged MPI, 2 ranks",
        "verify: 1, 2 and 4 ranks",
        "schedules, 4 ranks share the device",
    ]
    assert sorted(order, key=names.index) == order, names


def a_missing_library_ends_the_run():
    machine(
        minitaw="echo 'minitaw: error while loading shared libraries: libcudnn.so.9' >&2; exit 127"
    )
    table, log = check("gpu-check", code=1)
    assert "INVALID: minitaw does not start" in table.splitlines()[-1], table
    assert "shared libraries: libcudnn.so.9" in table, table
    assert log == "", table


def failures_are_told_and_the_rest_goes_on():
    """A test that fails, one that dies, a program without tests, and what either sanitizer
    finds."""
    found = (
        PLAIN["compute-sanitizer"]
        .replace("ERROR SUMMARY: 0", "ERROR SUMMARY: 2")
        .replace("SUMMARY: 0 hazards", "SUMMARY: 2 hazards")
    )
    machine(
        test_kernels_matmul=failing("Other"),
        test_model_step=test("case $s in Typed*) kill -SEGV $$ ;; esac"),
        **{"compute-sanitizer": found},
        test_kernels_attention=(
            "echo '[==========] Running 0 tests from 0 test suites.'; "
            "echo '[  PASSED  ] 0 tests.'"
        ),
    )
    table, _ = check("gpu-check", code=1)
    for name, told in (
        ("kernels: matrix products", "listed below"),
        ("model: against double precision", "Segmentation fault"),
        ("kernels: attention", "no test was run"),
        ("memcheck: layers", ""),
        ("racecheck: layers", ""),
    ):
        assert "FAILED" in row(table, name) and told in row(table, name), table
    assert " ok " in row(table, "kernels: layers") and "RESULT: INVALID" in table


def what_is_missing_is_skipped():
    refusal = (
        'case "$*" in *HOSTID*) echo "minitaw: transport = nccl: this build has no NCCL; use '
        'transport = mpi or auto"; exit 2;; esac\n'
    )
    skips = (
        "echo 'test_device.cpp:26: Skipped'; echo 'this machine has no NVML: libnvidia-ml.so.1'; "
        "echo '[  PASSED  ] 0 tests.'; echo '[  SKIPPED ] 1 test'"
    )
    machine(
        test_comm_device=None,
        test_energy_device=skips,
        mpiexec=refusal + MPIEXEC,
        **{"compute-sanitizer": None},
    )
    table, _ = check("gpu-check", code=0)
    assert "skipped" in (told := row(table, "device: clocks, power, energy")), told
    assert "this machine has no NVML: libnvidia-ml.so.1" in told, told
    assert "skipped" in row(table, "NCCL: two ranks")
    assert "this build has no NCCL" in row(table, "NCCL: two ranks")
    assert "no test_comm_device here" in table
    assert "no compute-sanitizer here" in row(table, "memcheck: layers")


def time_runs_out_and_nobody_is_left():
    """Not even a rank whose launcher gave it a session of its own and died first."""
    orphan = (
        f'[ -n "$MINITAW_SMALL_SHAPES" ] || setsid sh -c \'echo $$ >{FOLDER}/orphan; trap : '
        "TERM; while :; do sleep 1; done' &\n"
    )
    machine(
        test_kernels_layers=test(orphan + "sleep 60"),
        test_kernels_matmul=None,
        test_kernels_attention=None,
    )
    table, _ = check("gpu-check", "--limit", "15", code=1)
    assert "TIMEOUT" in row(table, "kernels: layers")
    assert "[ RUN      ] Typed/float.Works" in row(table, "kernels: layers")
    assert "NO TIME" in table
    pid = int((FOLDER / "orphan").read_text())
    try:
        state = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
    except OSError:
        state = "gone"
    assert state in ("gone", "Z"), state


def every_row_counts():
    machine()
    assert every_row_shows_a_failure("gpu-check") == 23


began = time.monotonic()
for part in (
    all_is_well_but_for_what_may_fail,
    a_missing_library_ends_the_run,
    failures_are_told_and_the_rest_goes_on,
    what_is_missing_is_skipped,
    time_runs_out_and_nobody_is_left,
    every_row_counts,
):
    part()
    print(f"{time.monotonic() - began:6.1f} s  {part.__name__}", flush=True)
bad_calls_are_refused("gpu-check")
