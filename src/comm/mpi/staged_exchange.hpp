#pragma once

#include <span>

#include "comm/mpi/channel.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::mpi {

/// exchange() through slots. Every message gets slots of its own, so that none waits for another one: a peer
/// may not come to the first before it has had the last. Messages of equal payload to or from one rank follow
/// each other, since MPI matches them in order. Throws LogicError if the batch needs more slots than there
/// are.
void exchange_staged(Channel& channel, std::span<const Message> batch);

}  // namespace minitaw::comm::mpi
