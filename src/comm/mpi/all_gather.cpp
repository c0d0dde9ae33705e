#include "comm/mpi/collectives.hpp"

namespace minitaw::comm::mpi {

/// A ring: every member sends its own slice, then hands on what arrives; the last slice to arrive is that of
/// the member behind the next one on, who is where it came from.
void all_gather(Channel& channel, const Ring& ring, const Buffer& buffer) {
  const Memory memory = moving_memory(channel, ring);
  const std::vector<RingStep> steps = ring_steps(ring, buffer, ring.position, memory);
  // Sends are not limited: a ring in which everyone waits to send before receiving would stand still.
  Outgoing leaving(channel, ring.next(), ring.tag, buffer.traffic);
  Incoming arriving(channel, memory, ring.previous(), ring.tag, pieces_of(steps, true), &leaving);
  Loading own(memory, pieces_of(steps, false), &leaving);
  for (const RingStep& step : steps) {
    Slot& piece = step.arrives ? arriving.next() : own.next();
    if (step.leaves) leaving.send(piece);
    if (step.arrives) arriving.keep(piece);
  }
  leaving.finish();
  arriving.finish();
}

}  // namespace minitaw::comm::mpi
