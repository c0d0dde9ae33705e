#pragma once

#include "comm/mpi/transport.hpp"

/// What the transport over MPI does on a lane.
namespace minitaw::comm::mpi {

/// One lane's end of the network. Used by one thread at a time. All lanes share the communicator; tags keep
/// apart what must not match.
struct Channel {
  MPI_Comm comm;
  LaneMemory memory;
  SentBytes& sent;
  const std::atomic<bool>& cancelled;
};

/// This rank's side of a message, not begun; the payload is the tag. A message of no bytes does not travel.
[[nodiscard]] std::unique_ptr<Operation> make_message(Channel& channel, const Message& message);

/// This rank's part in a collective of two members and more, not begun.
[[nodiscard]] std::unique_ptr<Operation> make_collective(Channel& channel, schedule::Kind kind,
                                                         const Membership& member, int tag,
                                                         const Collective& collective);

}  // namespace minitaw::comm::mpi
