#include "comm/nccl/collectives.hpp"

namespace minitaw::comm::nccl {

/// NCCL writes only the root's buffer.
void reduce(const Seat& seat, const Buffer& buffer, int root) {
  seat.communicator.reduce(buffer.data, buffer.data, buffer.count(), buffer.type(), root, seat.queue);
}

}  // namespace minitaw::comm::nccl
