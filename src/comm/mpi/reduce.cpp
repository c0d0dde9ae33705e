#include "comm/mpi/collectives.hpp"

namespace minitaw::comm::mpi {
namespace {

/// The end of the chain has nothing to add to.
void start(Channel& channel, const Ring& ring, const Buffer& buffer) {
  constexpr std::size_t ahead = 4;
  Outgoing leaving(channel, ring.previous(), ring.tag, buffer.traffic);
  for (const Piece piece : whole(buffer)) {
    leaving.limit(ahead);
    leaving.send(piece);
  }
  leaving.finish();
}

/// Adds its own piece to what has come, in staging memory, since its buffer is only read.
void pass_on(Channel& channel, const Ring& ring, const Buffer& buffer) {
  const std::vector<Piece> own = whole(buffer);
  Incoming arriving(channel, ring.next(), ring.tag, staged(channel, own), 2);
  Outgoing leaving(channel, ring.previous(), ring.tag, buffer.traffic);
  for (const Piece piece : own) {
    leaving.finish();  // the next receive reuses the staging memory of the piece before
    const Piece sum = arriving.next();
    add(buffer.scalar, sum, piece);
    leaving.send(sum);
  }
  leaving.finish();
}

void collect(Channel& channel, const Ring& ring, const Buffer& buffer) {
  const std::vector<Piece> own = whole(buffer);
  Incoming arriving(channel, ring.next(), ring.tag, staged(channel, own), 2);
  for (const Piece piece : own) add(buffer.scalar, piece, arriving.next());
}

}  // namespace

/// A chain towards the root, so the order of the sum is that of the ring and its bits repeat.
void reduce(Channel& channel, const Ring& ring, const Buffer& buffer) {
  if (ring.is_last()) start(channel, ring, buffer);
  else if (ring.is_first()) collect(channel, ring, buffer);
  else pass_on(channel, ring, buffer);
}

}  // namespace minitaw::comm::mpi
