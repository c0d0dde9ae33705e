# SPDX-License-Identifier: BSD-3-Clause
"""Every call of MPI by which the program could hand data over is defined in src/comm/mpi/sends.cpp,
where it is counted. Called with `nm` and the program. Ends with 77 if MPI is no shared library."""

import sys

import programs

CARRY_NOTHING = {
    "Abort",
    "Barrier",
    "Cancel",
    "Comm_create_keyval",
    "Comm_dup",
    "Comm_free",
    "Comm_get_attr",
    "Comm_rank",
    "Comm_set_attr",
    "Comm_set_errhandler",
    "Comm_size",
    "Comm_split",
    "Comm_split_type",
    "Error_string",
    "Finalize",
    "Get_count",
    "Get_library_version",
    "Ibarrier",
    "Init_thread",
    "Iprobe",
    "Irecv",
    "Probe",
    "Recv",
    "Request_free",
    "Test",
    "Testall",
    "Type_size",
    "Wtime",
}

nm, program = sys.argv[1:]
listed = programs.call(nm, "--dynamic", "--undefined-only", program, check=True).stdout
undefined = {line.split()[-1].partition("@")[0] for line in listed.splitlines()}
if "MPI_Init_thread" not in undefined:
    sys.exit(77)
uncounted = {name for name in undefined if name.startswith("MPI_")} - {
    f"MPI_{name}" for name in CARRY_NOTHING
}
assert (
    not uncounted
), f"the program calls {', '.join(sorted(uncounted))}: sends.cpp is to count what it sends"
assert {
    "PMPI_Isend",
    "PMPI_Send",
    "PMPI_Bcast",
    "PMPI_Allreduce",
} <= undefined, "the calls are not those of sends.cpp"
