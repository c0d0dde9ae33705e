#include "comm/mpi/collectives.hpp"

namespace minitaw::comm::mpi {

/// A ring: every member sends its own slice, then hands on what arrives; the last slice to arrive is that of
/// the member behind the next one on, who is where it came from.
void all_gather(Channel& channel, const Ring& ring, const Buffer& buffer) {
  constexpr std::size_t ahead = 4;
  const auto slice_of = [&](int member) { return slice(buffer.elements, ring.size(), member); };
  std::vector<Piece> own, pieces;
  cut(buffer, slice_of(ring.position), own);
  for (int step = 1; step < ring.size() - 1; ++step) cut(buffer, slice_of(ring.position - step), pieces);
  const std::size_t handed_on = pieces.size();
  cut(buffer, slice_of(ring.position + 1), pieces);

  // Sends are not limited: a ring in which everyone waits to send before receiving would stand still.
  Incoming arriving(channel, ring.previous(), ring.tag, pieces, ahead);
  Outgoing leaving(channel, ring.next(), ring.tag, buffer.traffic);
  for (const Piece piece : own) leaving.send(piece);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    arriving.next();
    if (k < handed_on) leaving.send(pieces[k]);
  }
  leaving.finish();
}

}  // namespace minitaw::comm::mpi
