#include "comm/mpi/collectives.hpp"

namespace minitaw::comm::mpi {

/// A ring: the sum of slice i starts at member i + 1 and grows on its way round to member i. Each member adds
/// what arrives to its own buffer and sends it from there.
void reduce_scatter(Channel& channel, const Ring& ring, const Buffer& buffer) {
  const auto slice_of = [&](int member) { return slice(buffer.elements, ring.size(), member); };
  std::vector<Piece> first, pieces;
  cut(buffer, slice_of(ring.position - 1), first);
  for (int step = 2; step < ring.size(); ++step) cut(buffer, slice_of(ring.position - step), pieces);
  const std::size_t handed_on = pieces.size();
  cut(buffer, slice_of(ring.position), pieces);

  // Sends are not limited: a ring in which everyone waits to send before receiving would stand still.
  Incoming arriving(channel, ring.previous(), ring.tag, staged(channel, pieces), 2);
  Outgoing leaving(channel, ring.next(), ring.tag, buffer.traffic);
  for (const Piece piece : first) leaving.send(piece);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    add(buffer.scalar, pieces[k], arriving.next());
    if (k < handed_on) leaving.send(pieces[k]);
  }
  leaving.finish();
}

}  // namespace minitaw::comm::mpi
