#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "comm/mpi/channel.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::mpi {

/// MPI counts in int: longer messages travel in pieces of this size.
inline constexpr std::size_t largest_message = std::size_t{1} << 30;

/// All messages of a batch at once; the payload is the tag. Messages of no bytes do not travel.
///
/// On a staged lane every message gets slots of its own, so that none waits for another one: a peer may not
/// come to the first before it has had the last. Messages of equal payload to or from one rank follow each
/// other, since MPI matches them in order. Throws LogicError if the batch needs more slots than there are.
[[nodiscard]] std::unique_ptr<Operation> make_exchange(Channel& channel, std::span<const Message> batch,
                                                       std::size_t largest = largest_message);

}  // namespace minitaw::comm::mpi
