#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace minitaw::comm::mpi {

/// The text of every rank of `comm`, on every rank. Collective; throws comm::Error.
[[nodiscard]] std::vector<std::string> gather_texts(const std::string& mine, MPI_Comm comm);

/// The MPI library in one line: "MPICH 4.2.1, device ch4:ucx".
[[nodiscard]] std::string library_version();

/// What of MPI_Get_library_version's text says which library it is: its first line, and MPICH's device.
/// Without the rest: how and by whom it was built, for Open MPI even on which host.
[[nodiscard]] std::string library_line(const std::string& text);

}  // namespace minitaw::comm::mpi
