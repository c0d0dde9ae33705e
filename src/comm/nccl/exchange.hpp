#pragma once

#include <span>
#include <vector>

#include "comm/nccl/collectives.hpp"

namespace minitaw::comm::nccl {

/// The messages of a batch as one group. NCCL has no tags: messages between two ranks match in order alone,
/// so both sides put theirs in the order of their payloads first. `ranks` are the members of the lane's
/// communicator for messages, ascending.
void exchange(const Seat& seat, const std::vector<int>& ranks, std::span<const Message> batch);

}  // namespace minitaw::comm::nccl
