#include "comm/nccl/collectives.hpp"

namespace minitaw::comm::nccl {
namespace {

/// Unequal slices: a broadcast of each, all in one group.
void gather_unequal(const Seat& seat, const Buffer& buffer) {
  for (int member = 0; member < seat.members; ++member) {
    const Slice part = slice(buffer.elements, seat.members, member);
    if (part.count > 0) broadcast(seat, {buffer.at(part.begin), part.count, buffer.scalar}, member);
  }
}

}  // namespace

void all_gather(const Seat& seat, const Buffer& buffer, int) {
  if (!even(seat, buffer)) return gather_unequal(seat, buffer);
  const Slice own = slice(buffer.elements, seat.members, seat.index);
  seat.communicator.all_gather(buffer.at(own.begin), buffer.data, static_cast<std::size_t>(own.count),
                               buffer.type(), seat.queue);
}

}  // namespace minitaw::comm::nccl
