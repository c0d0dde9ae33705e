#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "comm/mpi/wait.hpp"
#include "comm/transport.hpp"
#include "model/buffer.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// What a transport is made for.
struct TransportPlace {
  MPI_Comm comm;  ///< the ranks of the case
  const schedule::Program& program;
  model::Buffer staging;  ///< of the arena
  comm::mpi::Patience waiting;
  bool shared_devices = false;
};

/// Which transport `wanted` ("auto", "mpi" or "nccl") means in this build: "mpi" or "nccl". Throws InputError
/// for one that cannot be had.
[[nodiscard]] std::string resolve_transport(const std::string& wanted, bool shared_devices);

/// A transport and what it is called in results: "mpi", "mpi staged", "mpi direct" or "nccl".
struct NamedTransport {
  std::unique_ptr<comm::Transport> transport;
  std::string name;
};
/// Collective over the ranks of the case.
[[nodiscard]] NamedTransport make_transport(const std::string& wanted, const TransportPlace& place);

/// Of the NCCL that is loaded; empty in a build without.
[[nodiscard]] std::string nccl_version();

}  // namespace minitaw::engine
