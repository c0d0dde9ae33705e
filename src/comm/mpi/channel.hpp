#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/error.hpp"
#include "comm/mpi/memory.hpp"
#include "comm/mpi/request.hpp"
#include "schedule/account.hpp"

namespace minitaw::comm::mpi {

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
