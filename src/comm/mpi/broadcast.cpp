#include "comm/mpi/collectives.hpp"

namespace minitaw::comm::mpi {

/// A chain from the root: while piece k + 1 arrives, piece k is passed on.
void broadcast(Channel& channel, const Ring& ring, const Buffer& buffer) {
  constexpr std::size_t ahead = 4;
  const std::vector<Piece> pieces = whole(buffer);
  Incoming arriving(channel, ring.previous(), ring.tag, ring.is_first() ? std::vector<Piece>{} : pieces,
                    ahead);
  Outgoing leaving(channel, ring.next(), ring.tag, buffer.traffic);
  for (const Piece piece : pieces) {
    if (!ring.is_first()) arriving.next();
    if (!ring.is_last()) leaving.send(piece);
    leaving.limit(ahead);
  }
  leaving.finish();
}

}  // namespace minitaw::comm::mpi
