#pragma once

#include <mpi.h>

#include <memory>

#include "comm/mpi/device/reach.hpp"
#include "comm/mpi/transport.hpp"

namespace minitaw::comm::mpi {

/// A transport over MPI for buffers in the memory of Kokkos's default execution space. Collective over
/// `world`. Takes pinned_bytes() of pinned host memory, once, and needs no staging memory on the device. All
/// ranks must name the same reach (agreed_reach()). On a host build the copies are plain ones.
[[nodiscard]] std::unique_ptr<Transport>
device_transport(MPI_Comm world, const schedule::Program& program, Reach reach,
                 const Patience& patience = {.spins = 2, .yields = 4});

}  // namespace minitaw::comm::mpi
