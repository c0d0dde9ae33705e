# SPDX-License-Identifier: BSD-3-Clause
"""Every call of MPI by which the program could hand data over is defined in src/comm/mpi/sends.cpp,
where it is counted."""

import shutil

import pytest
from programs import MINITAW, call, output_of

CARRY_NOTHING = """
Abort Barrier Cancel Comm_create_keyval Comm_dup Comm_free Comm_get_attr Comm_rank Comm_set_attr
Comm_set_errhandler Comm_size Comm_split Comm_split_type Error_string Finalize Get_count
Get_library_version Ibarrier Init_thread Iprobe Irecv Probe Recv Request_free Test Testall
Type_size Wtime
"""


def test_every_call_that_sends_is_counted():
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("there is no nm")
    listed = output_of(call(nm, "--dynamic", "--undefined-only", MINITAW))
    undefined = {line.split()[-1].partition("@")[0] for line in listed.splitlines()}
    if "MPI_Init_thread" not in undefined:
        pytest.skip("MPI is no shared library")
    carrying = {name for name in undefined if name.startswith("MPI_")}
    assert carrying <= {f"MPI_{name}" for name in CARRY_NOTHING.split()}
    assert {"PMPI_Isend", "PMPI_Send", "PMPI_Bcast", "PMPI_Allreduce"} <= undefined
