#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <span>
#include <utility>
#include <vector>

#include "comm/mpi/memory.hpp"
#include "comm/transport.hpp"
#include "schedule/account.hpp"

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

/// A communicator of our own with the ranks of another one, so that nobody else's messages match ours.
/// Failures come back as codes.
class OwnComm {
public:
  /// Collective over `world`.
  explicit OwnComm(MPI_Comm world);
  OwnComm(const OwnComm&) = delete;
  OwnComm& operator=(const OwnComm&) = delete;
  ~OwnComm();
  [[nodiscard]] MPI_Comm get() const { return comm_; }

private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// One lane's end of the network: the memory that its pieces pass through, and the count of what it sends.
/// Used by one thread at a time. All lanes share the communicator; tags keep apart what must not match.
class Channel {
public:
  /// `comm` and `cancelled` outlive this.
  Channel(MPI_Comm comm, const LaneMemory& memory, const std::atomic<bool>& cancelled);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Starts a message of at most INT_MAX bytes to or from a rank.
  [[nodiscard]] Request send(int peer, int tag, schedule::Traffic traffic, std::span<const std::byte> data);
  [[nodiscard]] Request receive(int peer, int tag, std::span<std::byte> place);
  /// Throws Cancelled once the flag is raised.
  void check_cancelled() const {
    if (cancelled_.load(std::memory_order_relaxed)) throw Cancelled();
  }

  [[nodiscard]] const Memory& moves() const { return memory_.moves; }
  /// Throws LogicError if this lane has no slots for what is to be added.
  [[nodiscard]] const Memory& sums() const;

  /// Adds what this lane sent, as rank `rank`; may be called from any thread.
  void add_sent(int rank, schedule::ByteMatrix& matrix) const;
  void reset_counters();

private:
  MPI_Comm comm_;
  LaneMemory memory_;
  const std::atomic<bool>& cancelled_;
  std::vector<std::atomic<std::uint64_t>> sent_;  ///< [peer][traffic]
};

}  // namespace minitaw::comm::mpi
