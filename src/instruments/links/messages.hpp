// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <limits>
#include "comm/mpi/mpi.hpp"

/// Messages of MPI from host memory, and their times: `topo`, `screen` and minitaw_comm measure by
/// these.
namespace minitaw::links {
/// Bytes of a message that a rate is measured with, and the most of them in one measurement.
inline constexpr std::size_t message_bytes = 1 << 20;
inline constexpr int most_messages = 4096;
/// Ranks that measure test again at once, yielding to others on their core.
inline constexpr comm::WaitPolicy busy_wait{.spins = 0, .yields = std::numeric_limits<int>::max()};

/// The largest of all ranks of `comm`, on all ranks; a barrier, too. Collective; ranks that wait
/// for those who measure sleep, 0.2 ms at a time.
double largest(double mine, MPI_Comm comm);

/// Returns the value of every rank of `comm`, on all ranks. Collective.
template <class T>
[[nodiscard]] std::vector<T> all_gather(const T& mine, MPI_Comm comm) {
  std::vector<T> all(comm::mpi::size_of(comm));
  comm::mpi::check(
      MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm),
      "MPI_Allgather");
  return all;
}

/// How often something that took `once` s is done in `seconds`: at least once.
[[nodiscard]] int times_in(double seconds, double once, int most = most_messages);
/// Seconds of a round trip of a word; one side is the `first` to send.
double round_trip(int peer, bool first, MPI_Comm comm);

/// Sends and receives. Two messages of each sender are under way: the handshake of one passes while
/// another one does.
class Exchange {
public:
  /// Returns the seconds until `count` messages from each of `from` are here, while as many go to
  /// each of `to`.
  double run(std::span<const int> to,
      std::span<const int> from,
      int count,
      std::size_t bytes,
      MPI_Comm comm);

private:
  std::vector<std::byte> sent_;
  std::vector<std::vector<std::byte>> received_;
};

/// Times what the ranks of a communicator do at the same time.
class Stopwatch {
public:
  /// `share_cores`: the ranks are on one machine and outnumber its cores. Those in a barrier of
  /// MPI's would keep the others from leaving it, and slices of the scheduler be what is measured.
  Stopwatch(MPI_Comm comm, bool share_cores) : comm_(comm), share_cores_(share_cores) {}

  /// Returns the seconds until `work` has ended on the slowest rank; all begin together.
  /// Collective.
  double slowest(const std::function<void()>& work) const;

private:
  void begin_together() const;

  MPI_Comm comm_;
  bool share_cores_;
};
}  // namespace minitaw::links
