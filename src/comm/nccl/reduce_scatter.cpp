#include "comm/nccl/collectives.hpp"

namespace minitaw::comm::nccl {
namespace {

/// Unequal slices: a reduction of each to its member, all in one group.
void scatter_unequal(const Seat& seat, const Buffer& buffer) {
  for (int member = 0; member < seat.members; ++member) {
    const Slice part = slice(buffer.elements, seat.members, member);
    if (part.count > 0) reduce(seat, {buffer.at(part.begin), part.count, buffer.scalar}, member);
  }
}

}  // namespace

void reduce_scatter(const Seat& seat, const Buffer& buffer, int) {
  if (!even(seat, buffer)) return scatter_unequal(seat, buffer);
  const Slice own = slice(buffer.elements, seat.members, seat.index);
  seat.communicator.reduce_scatter(buffer.data, buffer.at(own.begin), static_cast<std::size_t>(own.count),
                                   buffer.type(), seat.queue);
}

}  // namespace minitaw::comm::nccl
