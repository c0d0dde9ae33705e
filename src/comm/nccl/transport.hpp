#pragma once

#include <mpi.h>

#include "comm/mpi/wait.hpp"
#include "comm/nccl/api.hpp"

namespace minitaw::comm::nccl {

struct Options {
  std::array<Queue, schedule::lanes> queues{};  ///< by schedule::Lane; they outlive the transport
  /// Device memory, scratch_bytes(); in use until the queues are idle after make_transport().
  std::span<std::byte> scratch{};
  mpi::WaitPolicy policy{};
};

/// Bytes of device memory that the first messages and collectives need.
[[nodiscard]] std::size_t scratch_bytes(const schedule::Program& program);

/// Transport over NCCL: work goes on the device queue of its lane, where NCCL executes it. Communicators and
/// connections are made here (docs/decisions/0007-nccl-communicators.md).
///
/// NCCL wants the calls of all communicators of a device in an order that suits all ranks: let one thread
/// issue those of all lanes, in the order of the program. Lanes in threads of their own do not disturb each
/// other, but their kernels must then find room on the device together. A communicator executes its calls in
/// the order of their issue, whatever their lanes: keep each to one lane, as schedule::lane_of() does.
///
/// sent() counts a message where it is handed to NCCL, and a collective by the rule of schedule/account.hpp:
/// NCCL does not say which way it takes. cancel() aborts all communicators, so that what is on the device
/// queues ends as well.
///
/// Collective over `world`, whose ranks are those of the program (else LogicError) and have a device each,
/// current on the calling thread. Keeps nothing of `program`. Throws Error with NCCL's words, or if NCCL has
/// not found all ranks within five minutes.
[[nodiscard]] std::unique_ptr<Transport> make_transport(MPI_Comm world, const schedule::Program& program,
                                                        Api& api, const Options& options);

}  // namespace minitaw::comm::nccl
