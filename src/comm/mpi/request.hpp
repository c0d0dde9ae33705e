#pragma once

#include <mpi.h>

#include <cstddef>
#include <utility>

#include "comm/mpi/wait.hpp"

namespace minitaw::comm::mpi {

/// A message on its way; owns the MPI request. Move-only. The memory it reads or writes must live until
/// wait() returns.
class Request {
public:
  Request() = default;
  Request(Request&& other) noexcept
      : handle_(std::exchange(other.handle_, MPI_REQUEST_NULL)), expected_(other.expected_),
        receives_(other.receives_) {}
  Request& operator=(Request&& other) noexcept;
  ~Request() { abandon(); }

  [[nodiscard]] static Request send(MPI_Comm comm, int peer, int tag, const std::byte* data,
                                    std::size_t bytes);
  [[nodiscard]] static Request receive(MPI_Comm comm, int peer, int tag, std::byte* data, std::size_t bytes);

  /// Throws Error if the message failed or arrived with another length, Cancelled if `waiter` was told so.
  void wait(const Waiter& waiter);
  /// Whether the message is complete; throws as wait() does.
  bool test();

private:
  /// Only on the way out of an error: a receive is withdrawn, a send is left to MPI.
  void abandon() noexcept;

  MPI_Request handle_ = MPI_REQUEST_NULL;
  std::size_t expected_ = 0;
  bool receives_ = false;
};

}  // namespace minitaw::comm::mpi
