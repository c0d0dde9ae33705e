#include "comm/nccl/collectives.hpp"

namespace minitaw::comm::nccl {

void broadcast(const Seat& seat, const Buffer& buffer, int root) {
  seat.communicator.broadcast(buffer.data, buffer.data, buffer.count(), buffer.type(), root, seat.queue);
}

}  // namespace minitaw::comm::nccl
