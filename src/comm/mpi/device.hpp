#pragma once

#include <memory>
#include <mpi.h>
#include <string_view>

#include "comm/mpi/transport.hpp"

namespace minitaw::comm::mpi {

/// How device buffers get to MPI.
enum class Reach {
  staged,  ///< through pinned host memory
  direct,  ///< MPI is handed device pointers where data only moves; sums are staged
};
[[nodiscard]] std::string_view name_of(Reach reach);

/// `wish` is the text of MINITAW_MPI_DIRECT, or nullptr: 1 is direct, 0 staged, unset what MPI says
/// (`aware`). Throws InputError for any other text.
[[nodiscard]] Reach reach(const char* wish, bool aware);

/// The reach of a job: direct if every rank's MPI and environment say so. An MPI that cannot be asked whether
/// it takes pointers to this build's kind of device memory does not. Collective; throws on all ranks or on
/// none.
[[nodiscard]] Reach agreed_reach(MPI_Comm world);

/// A transport over MPI for buffers in the memory of Kokkos's default execution space. Collective over
/// `world`. Takes 16 MiB of pinned host memory for each lane on which this rank communicates, once, and needs
/// no staging memory on the device. All ranks must name the same reach (agreed_reach()). On a host build the
/// copies are plain ones.
[[nodiscard]] std::unique_ptr<Transport> device_transport(MPI_Comm world, const schedule::Program& program,
                                                          Reach reach, const WaitPolicy& policy = {});

}  // namespace minitaw::comm::mpi
