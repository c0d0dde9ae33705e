// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <mpi.h>
#include <set>
#include <vector>
#include "comm/nccl/api.hpp"
#include "comm/wait.hpp"

namespace minitaw::comm::nccl {
struct Options {
  std::array<Queue, schedule::lanes> queues{};  ///< by schedule::Lane; they outlive the transport
  /// Device memory, scratch_bytes(); in use until the queues are idle after make_transport().
  std::span<std::byte> scratch{};
  WaitPolicy policy{};
};

/// Bytes of device memory that the first messages and collectives need.
std::size_t scratch_bytes(const schedule::Program& program);

/// Transport over NCCL, on the device queue of each lane; connected here
/// (docs/decisions.md, 7).
///
/// NCCL wants the calls of all communicators of a device in an order that suits all ranks: let one
/// thread issue those of all lanes, in the order of the program; kernels of lanes in threads of
/// their own must find room together. A communicator executes calls in the order of their issue:
/// keep each to one lane, as schedule::lane_of() does.
///
/// sent() counts a message where it is handed to NCCL, and a collective by the rule of
/// schedule/account.hpp: NCCL does not say which way it takes.
///
/// Collective over `world`, the ranks of the program (else LogicError), each with a device of its
/// own, current on the calling thread. Throws Error if NCCL fails, or does not find all ranks
/// within five minutes.
std::unique_ptr<Transport> make_transport(
    MPI_Comm world, const schedule::Program& program, Api& api, const Options& options);

// Which communicators of NCCL a program needs (docs/decisions.md, 7).

/// A communicator that a program needs: for a communicator of its own on a lane, or for messages.
/// Messages of inputs, and those of gradients, have a few, such that no rank sends and receives on
/// the same one.
struct CommunicatorPlan {
  schedule::Lane lane = schedule::Lane::compute;  ///< that calls it; of messages: the sender's
  int communicator = -1;                          ///< of the program; -1: messages
  /// In the order of NCCL's ranks: the ring's, for messages ascending. Among replicas: each of them
  /// has a communicator of its own.
  std::vector<int> ranks{};
  std::set<schedule::Kind> kinds{};       ///< collectives that the program calls here
  std::set<std::pair<int, int>> links{};  ///< from and to, of messages

  bool among_replicas(const schedule::Program& program) const {
    return communicator >= 0 && program.communicators[communicator].among_replicas();
  }

  friend bool operator==(const CommunicatorPlan&, const CommunicatorPlan&) = default;
};

/// The communicators of a replica for messages (inputs, gradients), then for collectives of several
/// ranks; the same on all ranks.
std::vector<CommunicatorPlan> plan_communicators(const schedule::Program& program);
/// The plans (ascending indices) in rounds without a common rank, so that one ncclCommSplit makes
/// each.
std::vector<std::vector<int>> rounds(const std::vector<CommunicatorPlan>& plans);
}  // namespace minitaw::comm::nccl
