#include "comm/mpi/collectives.hpp"

namespace minitaw::comm::mpi {
namespace {

void start(Channel& channel, const Ring& ring, const Buffer& buffer) {
  const Memory memory = moving_memory(channel, ring);
  const std::vector<Piece> pieces = whole(buffer, memory);
  Outgoing leaving(channel, ring.next(), ring.tag, buffer.traffic);
  Loading own(memory, pieces, &leaving);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    leaving.send(own.next());
    leaving.limit(memory.ahead);
  }
  leaving.finish();
}

void pass_on(Channel& channel, const Ring& ring, const Buffer& buffer) {
  const Memory memory = moving_memory(channel, ring);
  const std::vector<Piece> pieces = whole(buffer, memory);
  Outgoing leaving(channel, ring.next(), ring.tag, buffer.traffic);
  Incoming arriving(channel, memory, ring.previous(), ring.tag, pieces, &leaving);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    Slot& piece = arriving.next();
    if (!ring.is_last()) leaving.send(piece);
    arriving.keep(piece);
    leaving.limit(memory.ahead);
  }
  leaving.finish();
  arriving.finish();
}

}  // namespace

/// A chain from the root: while piece k + 1 arrives, piece k is passed on.
void broadcast(Channel& channel, const Ring& ring, const Buffer& buffer) {
  if (ring.is_first()) start(channel, ring, buffer);
  else pass_on(channel, ring, buffer);
}

}  // namespace minitaw::comm::mpi
