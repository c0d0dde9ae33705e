#include "comm/mpi/channel.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::mpi {

Request& Request::operator=(Request&& other) noexcept {
  abandon();
  handle_ = std::exchange(other.handle_, MPI_REQUEST_NULL);
  expected_ = other.expected_;
  receives_ = other.receives_;
  return *this;
}

Request Request::send(MPI_Comm comm, int peer, int tag, const std::byte* data, std::size_t bytes) {
  Request request;
  check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm, &request.handle_), "MPI_Isend");
  return request;
}

Request Request::receive(MPI_Comm comm, int peer, int tag, std::byte* data, std::size_t bytes) {
  Request request;
  request.expected_ = bytes;
  request.receives_ = true;
  check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm, &request.handle_), "MPI_Irecv");
  return request;
}

bool Request::test() {
  int done = 0;
  MPI_Status status;
  check(MPI_Test(&handle_, &done, &status), receives_ ? "MPI_Test of a receive" : "MPI_Test of a send");
  if (!done || !receives_) return done;
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  if (static_cast<std::size_t>(bytes) != expected_)
    throw Error(fmt::format("a message from rank {} has {} bytes where {} were expected", status.MPI_SOURCE,
                            bytes, expected_));
  return true;
}

void Request::abandon() noexcept {
  if (handle_ == MPI_REQUEST_NULL) return;
  if (receives_) MPI_Cancel(&handle_);
  MPI_Request_free(&handle_);
}

bool Requests::finish_one() {
  if (open() == 0 || !requests_[finished_].test()) return false;
  ++finished_;
  return true;
}

bool Requests::finish() {
  const std::size_t before = finished_;
  while (finish_one()) {
  }
  return finished_ > before;
}

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
