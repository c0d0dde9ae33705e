"""scripts/gpu-check with stand-ins for the programs: what it does when all is well, when a check fails, hangs or is not
there, and when time runs out. Called with the repository and a folder to write to."""

from stand_ins import MPIEXEC, bad_calls_are_refused, check, machine, row


def all_is_well():
    machine()
    table, log = check("gpu-check", code=0)
    assert "RESULT: VALID" in table and "FAILED" not in table
    assert " ok " in row(table, "verify: 1, 2 and 4 ranks") and "== kernels: layers" in log


def a_failure_is_told_and_the_rest_goes_on():
    machine(test_kernels_matmul="echo '[  FAILED  ] Matmul.Odd'; exit 1")
    table, _ = check("gpu-check", code=1)
    assert "FAILED" in row(table, "kernels: matrix products") and "Matmul.Odd" in row(table, "kernels: matrix products")
    assert " ok " in row(table, "kernels: attention") and "RESULT: INVALID" in table


def a_failure_whose_exit_code_is_lost_is_seen():
    machine(test_engine_job="echo '[  FAILED  ] 1 test, listed below:'; exit 0")
    table, log = check("gpu-check", code=1)
    assert "FAILED" in row(table, "engine: 1 rank") and "listed below" in log


def what_may_fail_does_not_fail_the_check():
    machine(mpiexec=MPIEXEC.replace("exec", 'case "$*" in *HOSTID*) exit 3;; esac; exec'))
    table, _ = check("gpu-check", code=0)
    assert "FAILED" in row(table, "NCCL: two ranks") and "RESULT: VALID" in table


def what_is_missing_is_skipped():
    machine(test_comm_device=None, **{"compute-sanitizer": None})
    table, _ = check("gpu-check", code=0)
    assert "no test_comm_device here" in table and "not in PATH" in row(table, "compute-sanitizer")


def time_runs_out():
    machine(test_kernels_layers="sleep 60")
    table, _ = check("gpu-check", "--limit", "7", code=1)
    assert "TIMEOUT" in row(table, "kernels: layers") and "NO TIME" in table


all_is_well()
a_failure_is_told_and_the_rest_goes_on()
a_failure_whose_exit_code_is_lost_is_seen()
what_may_fail_does_not_fail_the_check()
what_is_missing_is_skipped()
time_runs_out()
bad_calls_are_refused("gpu-check")
