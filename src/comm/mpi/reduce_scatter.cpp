#include "comm/mpi/collectives.hpp"

namespace minitaw::comm::mpi {
namespace {

std::vector<Piece> all_pieces(const std::vector<RingStep>& steps) {
  std::vector<Piece> pieces;
  for (const RingStep& step : steps) pieces.push_back(step.piece);
  return pieces;
}

}  // namespace

/// A ring: the sum of slice i starts at member i + 1 and grows on its way round to member i. Each member adds
/// its own part; in host memory it does so in its buffer and sends from there.
void reduce_scatter(Channel& channel, const Ring& ring, const Buffer& buffer) {
  const Memory& memory = channel.sums();
  const std::vector<RingStep> steps = ring_steps(ring, buffer, ring.position - 1, memory);
  // Sends are not limited: a ring in which everyone waits to send before receiving would stand still.
  Outgoing leaving(channel, ring.next(), ring.tag, buffer.traffic);
  Incoming arriving(channel, memory, ring.previous(), ring.tag, pieces_of(steps, true), &leaving);
  Loading own(memory, all_pieces(steps), &leaving);
  for (const RingStep& step : steps) {
    Slot& part = own.next();
    Slot& piece = step.arrives ? sum(buffer.scalar, arriving.next(), part, true) : part;
    if (step.leaves) leaving.send(piece);
    else arriving.keep(piece);
  }
  leaving.finish();
  arriving.finish();
}

}  // namespace minitaw::comm::mpi
