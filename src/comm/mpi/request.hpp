#pragma once

#include <mpi.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace minitaw::comm::mpi {

/// A message on its way; owns the MPI request. Move-only. The memory it reads or writes must live until
/// test() returns true.
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

  /// Whether the message is complete; not asked again when it is. Throws Error if it failed or arrived with
  /// another length.
  bool test();

private:
  /// Only on the way out of an error: a receive is withdrawn, a send is left to MPI.
  void abandon() noexcept;

  MPI_Request handle_ = MPI_REQUEST_NULL;
  std::size_t expected_ = 0;
  bool receives_ = false;
};

/// Messages that are taken as complete in the order in which they were started, so that a look costs one
/// test.
class Requests {
public:
  /// `count` messages will be added.
  void reserve(std::size_t count) { requests_.reserve(count); }
  void add(Request request) { requests_.push_back(std::move(request)); }
  /// Whether there was an oldest open message and it is complete now.
  bool finish_one();
  /// Whether there was any such message.
  bool finish();

  [[nodiscard]] std::size_t started() const { return requests_.size(); }
  [[nodiscard]] std::size_t finished() const { return finished_; }
  [[nodiscard]] std::size_t open() const { return started() - finished(); }

private:
  std::vector<Request> requests_;
  std::size_t finished_ = 0;
};

}  // namespace minitaw::comm::mpi
