#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/mpi/memory.hpp"
#include "comm/mpi/request.hpp"
#include "schedule/account.hpp"

namespace minitaw::comm::mpi {

/// One lane's end of the network: an MPI communicator of its own, so that lanes never match each other's
/// messages; the memory that its pieces pass through; and the count of what it sends. Used by one thread.
class Channel {
public:
  /// Collective over `world`.
  Channel(MPI_Comm world, const LaneMemory& memory, const Waiter& waiter);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  /// Starts a message of at most INT_MAX bytes to or from a rank.
  [[nodiscard]] Request send(int peer, int tag, schedule::Traffic traffic, std::span<const std::byte> data);
  [[nodiscard]] Request receive(int peer, int tag, std::span<std::byte> place);
  void wait(Request& request) const { request.wait(waiter_); }
  [[nodiscard]] const Waiter& waiter() const { return waiter_; }

  [[nodiscard]] const Memory& moves() const { return memory_.moves; }
  /// Throws LogicError if this lane has no slots for what is to be added.
  [[nodiscard]] const Memory& sums() const;

  /// Adds what this lane sent, as rank `rank`; may be called from any thread.
  void add_sent(int rank, schedule::ByteMatrix& matrix) const;
  void reset_counters();

private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  LaneMemory memory_;
  Waiter waiter_;
  std::vector<std::atomic<std::uint64_t>> sent_;  ///< [peer][traffic]
};

}  // namespace minitaw::comm::mpi
