// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <mpi.h>
#include "comm/wait.hpp"
#include "model/model.hpp"

namespace minitaw::engine {
struct TransportRequest {
  MPI_Comm comm;  ///< the ranks of the case
  const schedule::Program& program;
  model::Buffer staging;       ///< of the arena
  comm::WaitPolicy waiting{};  ///< of NCCL
  bool shared_devices = false;
};

/// Makes the transport that `wanted` ("auto", "mpi" or "nccl") means in this build and place; its
/// name is "mpi", "mpi staged", "mpi direct" or "nccl". Collective. Throws InputError if it is not
/// available.
std::unique_ptr<comm::Transport> make_transport(
    const std::string& wanted, const TransportRequest& request);
/// Throws InputError for one that this build or place does not have. Not collective.
void require_transport(const std::string& wanted, bool shared_devices);

/// Memory of a rank's transport beside the arena.
struct TransportMemory {
  int communicators = 0;     ///< of NCCL
  std::uint64_t pinned = 0;  ///< bytes of host memory, for messages from and to a device over MPI
};

/// Returns that of every rank of a program.
std::vector<TransportMemory> transport_memory(
    const schedule::Program& program, const std::string& wanted, bool shared_devices);
/// Version of the NCCL that is loaded; empty in a build without.
std::string nccl_version();
}  // namespace minitaw::engine
