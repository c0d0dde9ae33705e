# SPDX-License-Identifier: BSD-3-Clause
"""scripts/gpu with stand-ins for the programs: what it does when all is well, when a step fails,
dies, hangs or is not there, and when time runs out; the tables it makes of results. Called with the
repository, a folder to write to and the real program.
"""

import tarfile
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

PEER = """
import json, sys
value = lambda name: int(sys.argv[sys.argv.index(name) + 1])
recompute = "--no-recompute" not in sys.argv
found = {"hidden": value("--hidden"), "seq": value("--seq"), "recompute": recompute}
print(json.dumps(found, indent=1))"""


def peer(text=PEER):
    path = FOLDER / "peer.py"
    path.write_text(text, encoding="utf-8")
    return path


def all_is_well_but_for_what_may_fail():
    machine(mpiexec='case "$*" in *HOSTID*) exit 3;; esac\n' + MPIEXEC)
    table, log = check(code=0)
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
        "verify: every family, bf16",
        "kernels: layers",
        "transport: 2 ranks, one device",
        "step, H = 4096, S = 4K, recompute none",
        "kernel rates",
        "step, H = 4096, S = 64K, recompute keep-attention",
    ]
    assert sorted(order, key=names.index) == order, names
    with tarfile.open(FOLDER / "out/gpu.tar.xz") as archive:
        assert {"table.txt", "log.txt", "files/ranks.h5"} < set(archive.getnames())


def steps_stand_beside_the_peer():
    """Both compute nothing twice where that fits, at the lengths that the plan says."""
    machine()
    table, log = check("--peer", peer(), code=0)
    for steps in ("4096 none 4096", "4096 none 16384", "4096 keep-attention 65536"):
        assert f"\n{steps}\n" in table, table
    assert '"hidden":4096,"seq":4096,"recompute":false' in table, table
    assert '"hidden":4096,"seq":65536,"recompute":true' in table, table
    assert len(kept("peer.jsonl").splitlines()) == 4
    assert "--set ffn=2816" in log
    assert kept("single-1024-16K.h5")
    assert "no --peer" in row(check(code=0)[0], "peer, H = 4096, S = 4K")
    for text in ("raise SystemExit('out of memory: error')", "print('error: out of memory')"):
        table, _ = check("--peer", peer(text), code=0)
        assert "FAILED" in row(table, "peer, H = 4096, S = 64K"), table


def a_second_call_looks_closer():
    machine(test_model_step=failing())
    table, log = check("--more", "model: against double precision", code=1)
    assert "FAILED" in row(table, "model: against double precision")
    assert "--tool memcheck test_model_step" in log
    assert "FAILED" in row(table, "memcheck: model: against double precision")
    assert " ok " in row(table, "step, H = 4096, S = 128K, recompute keep-attention")
    assert " ok " in row(table, "racecheck: attention, small shapes")
    assert "kernel rates" not in table
    table, _ = check("--more", code=0)
    assert "model:" not in table


def small_sizes_rehearse_both_calls():
    machine()
    for more in ([], ["--more"]):
        table, log = check("--tiny", *more, code=0)
        assert "seq=4096" not in log and "hidden=64 " in log
        assert "RESULT: VALID" in table


def a_missing_library_ends_the_run():
    machine(
        minitaw="echo 'minitaw: error while loading shared libraries: libcudnn.so.9' >&2; exit 127"
    )
    table, log = check(code=1)
    assert "INVALID: minitaw does not start" in table.splitlines()[-1], table
    assert "shared libraries: libcudnn.so.9" in table, table
    assert log == "", table


def failures_are_told_and_the_rest_goes_on():
    """A test that fails, one that dies, a program without tests, what either sanitizer finds, and
    results that are not complete."""
    machine(
        minitaw=PLAIN["minitaw"]
        .replace("show)", "show) echo 'minitaw: that is no HDF5 file'; exit 2 ;; other)")
        .replace('[ "${steps:-3}" -ge 3 ]', "case $seq in 65536) false ;; esac"),
        test_kernels_matmul=failing("Other"),
        test_model_step=test("case $s in Typed*) kill -SEGV $$ ;; esac"),
        test_kernels_attention=(
            "echo '[==========] Running 0 tests from 0 test suites.'; "
            "echo '[  PASSED  ] 0 tests.'"
        ),
    )
    table, _ = check(code=1)
    for name, told in (
        ("kernels: matrix products", "listed below"),
        ("model: against double precision", "Segmentation fault"),
        ("kernels: attention", "no test was run"),
        ("step, H = 4096, S = 64K", "RESULT: INVALID: 1 of 1"),
        ("results of single-4096-4K.h5", "no HDF5 file"),
    ):
        assert "FAILED" in row(table, name) and told in row(table, name), table
    assert " ok " in row(table, "kernels: layers") and "RESULT: INVALID" in table
    found = (
        PLAIN["compute-sanitizer"]
        .replace("ERROR SUMMARY: 0", "ERROR SUMMARY: 2")
        .replace("SUMMARY: 0 hazards", "SUMMARY: 2 hazards")
    )
    machine(**{"compute-sanitizer": found})
    table, _ = check("--more", code=1)
    for name in ("memcheck: layers", "racecheck: layers"):
        assert "FAILED" in row(table, name), table


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
    table, _ = check(code=0)
    assert "skipped" in (told := row(table, "device: energy")), told
    assert "this machine has no NVML: libnvidia-ml.so.1" in told, told
    assert "skipped" in row(table, "NCCL: two ranks")
    assert "this build has no NCCL" in row(table, "NCCL: two ranks")
    assert "no test_comm_device here" in table
    table, _ = check("--more", code=0)
    assert "no compute-sanitizer here" in row(table, "memcheck: layers")


def time_runs_out_and_nobody_is_left():
    """Not even a rank whose launcher gave it a session of its own and died first."""
    orphan = f"setsid sh -c 'echo $$ >{FOLDER}/orphan; trap : TERM; while :; do sleep 1; done' &\n"
    machine(test_kernels_layers=test(orphan + "sleep 60"))
    table, _ = check("--limit", "15", code=1)
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
    assert every_row_shows_a_failure() == 35
    assert every_row_shows_a_failure("--more") == 20


began = time.monotonic()
for part in (
    all_is_well_but_for_what_may_fail,
    steps_stand_beside_the_peer,
    a_second_call_looks_closer,
    small_sizes_rehearse_both_calls,
    a_missing_library_ends_the_run,
    failures_are_told_and_the_rest_goes_on,
    what_is_missing_is_skipped,
    time_runs_out_and_nobody_is_left,
    every_row_counts,
    bad_calls_are_refused,
):
    part()
    print(f"{time.monotonic() - began:6.1f} s  {part.__name__}", flush=True)
