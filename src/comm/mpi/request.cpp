#include "comm/mpi/request.hpp"

#include <fmt/format.h>

#include "comm/mpi/check.hpp"

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

}  // namespace minitaw::comm::mpi
