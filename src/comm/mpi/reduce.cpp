#include "comm/mpi/collectives.hpp"

namespace minitaw::comm::mpi {
namespace {

/// The end of the chain has nothing to add to.
void start(Channel& channel, const Ring& ring, const Buffer& buffer) {
  constexpr std::size_t open = 4;
  const std::vector<Piece> pieces = whole(buffer, channel.sums());
  Outgoing leaving(channel, ring.previous(), ring.tag, buffer.traffic);
  Loading own(channel.sums(), pieces, &leaving);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    leaving.limit(open);
    leaving.send(own.next());
  }
  leaving.finish();
}

/// Adds its own piece to what has come, in the slot where it came, since its buffer is only read.
void pass_on(Channel& channel, const Ring& ring, const Buffer& buffer) {
  const std::vector<Piece> pieces = whole(buffer, channel.sums());
  Outgoing leaving(channel, ring.previous(), ring.tag, buffer.traffic);
  Incoming arriving(channel, channel.sums(), ring.next(), ring.tag, pieces, &leaving);
  Loading own(channel.sums(), pieces, &leaving);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    Slot& piece = own.next();
    leaving.send(sum(buffer.scalar, arriving.next(), piece, false));
  }
  leaving.finish();
}

void collect(Channel& channel, const Ring& ring, const Buffer& buffer) {
  const std::vector<Piece> pieces = whole(buffer, channel.sums());
  Incoming arriving(channel, channel.sums(), ring.next(), ring.tag, pieces, nullptr);
  Loading own(channel.sums(), pieces, nullptr);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    Slot& piece = own.next();
    arriving.keep(sum(buffer.scalar, arriving.next(), piece, true));
  }
  arriving.finish();
}

}  // namespace

/// A chain towards the root, so the order of the sum is that of the ring and its bits repeat.
void reduce(Channel& channel, const Ring& ring, const Buffer& buffer) {
  if (ring.is_last()) start(channel, ring, buffer);
  else if (ring.is_first()) collect(channel, ring, buffer);
  else pass_on(channel, ring, buffer);
}

}  // namespace minitaw::comm::mpi
