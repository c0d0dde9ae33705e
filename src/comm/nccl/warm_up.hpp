#pragma once

#include <span>

#include "comm/nccl/communicators.hpp"

namespace minitaw::comm::nccl {

/// Bytes of device memory that warm_up() needs.
[[nodiscard]] std::size_t scratch_bytes(const schedule::Program& program);

/// A few bytes to and from every peer that the program has, communicator by communicator, and every
/// collective that it calls on each, in one order on all ranks: NCCL connects two ranks when they first talk,
/// waiting for each other, and that is not to happen in a step. `scratch` is in use until the queues are
/// idle.
void warm_up(const schedule::Program& program, int rank, const Colours& colours,
             const Communicators& communicators, Launcher& launcher, std::span<const Queue> queues,
             std::span<std::byte> scratch);

}  // namespace minitaw::comm::nccl
