#include "comm/nccl/collectives.hpp"
#include "comm/sum.hpp"

namespace minitaw::comm::nccl {

std::byte* Buffer::at(std::int64_t element) const {
  return data + static_cast<std::size_t>(element) * bytes_of(scalar);
}

void all_reduce(const Seat& seat, const Buffer& buffer, int) {
  seat.communicator.all_reduce(buffer.data, buffer.data, buffer.count(), buffer.type(), seat.queue);
}

}  // namespace minitaw::comm::nccl
