#include "comm/mpi/channel.hpp"

#include "base/error.hpp"
#include "comm/mpi/size.hpp"

namespace minitaw::comm::mpi {

OwnComm::OwnComm(MPI_Comm world) {
  check(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

OwnComm::~OwnComm() { MPI_Comm_free(&comm_); }

Channel::Channel(MPI_Comm comm, const LaneMemory& memory, const std::atomic<bool>& cancelled)
    : comm_(comm), memory_(memory), cancelled_(cancelled), sent_(size_of(comm) * schedule::traffic_kinds) {}

Request Channel::send(int peer, int tag, schedule::Traffic traffic, std::span<const std::byte> data) {
  Request request = Request::send(comm_, peer, tag, data.data(), data.size());
  sent_[peer * schedule::traffic_kinds + static_cast<int>(traffic)].fetch_add(data.size(),
                                                                              std::memory_order_relaxed);
  return request;
}

Request Channel::receive(int peer, int tag, std::span<std::byte> place) {
  return Request::receive(comm_, peer, tag, place.data(), place.size());
}

const Memory& Channel::sums() const {
  if (memory_.sums.landing.empty())
    throw LogicError("a reduction runs on a lane that was given no staging memory");
  return memory_.sums;
}

void Channel::add_sent(int rank, schedule::ByteMatrix& matrix) const {
  for (std::size_t cell = 0; cell < sent_.size(); ++cell)
    matrix.add(rank, static_cast<int>(cell / schedule::traffic_kinds),
               static_cast<schedule::Traffic>(cell % schedule::traffic_kinds),
               sent_[cell].load(std::memory_order_relaxed));
}

void Channel::reset_counters() {
  for (auto& cell : sent_) cell.store(0, std::memory_order_relaxed);
}

}  // namespace minitaw::comm::mpi
