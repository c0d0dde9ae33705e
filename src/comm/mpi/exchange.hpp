#pragma once

#include <cstddef>
#include <span>

#include "comm/mpi/channel.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::mpi {

/// MPI counts in int: longer messages travel in pieces of this size.
inline constexpr std::size_t largest_message = std::size_t{1} << 30;

/// All messages of a batch at once; the payload is the tag. `received` as in Transport::exchange(); a staged
/// batch does not call it.
void exchange(Channel& channel, std::span<const Message> batch, std::size_t largest = largest_message,
              const comm::Transport::Received& received = {});

}  // namespace minitaw::comm::mpi
