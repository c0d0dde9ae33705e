// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include "comm/mpi/mpi.hpp"
#include "engine/runtime.hpp"
#include "instruments/hang/hang.hpp"

namespace minitaw::harness {
/// Finds what a job that hangs waits for. A thread of each rank answers when it is asked how far
/// its rank has come, whatever that rank waits for. When a rank's watchdog asks, a few ranks on
/// different nodes (rank 0 may be the one that hangs) collect the states of all; the lowest of them
/// that answers says the sentence.
class HangFinder {
public:
  HangFinder(MPI_Comm world, const topology::Groups& nodes);
  /// All ranks have come to the begin or end of a case.
  void next_case();
  /// The runtime executes the steps of this rank until the result is destroyed; it lives longer.
  [[nodiscard]] std::shared_ptr<const engine::Runtime> watch(const engine::Runtime& runtime);
  /// For the watchdog: returns the sentence on the rank that has printed it; empty elsewhere, or
  /// after a few seconds.
  [[nodiscard]] std::string find();

private:
  enum class Tag : int { ask, state, said };

  void serve(const std::stop_token& end);
  void answer();
  void send(int to, Tag tag);
  void collect();
  void conclude();
  void end(bool speaks);

  comm::mpi::OwnComm own_;
  topology::Groups nodes_;
  int rank_;
  std::set<int> collectors_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  const engine::Runtime* runtime_ = nullptr;
  std::int64_t position_ = 0;  ///< of this rank, without the steps of `runtime_`
  bool asks_ = false, said_ = false;
  std::string sentence_;
  // Of the thread alone:
  std::vector<schedule::RankState> states_;  ///< of all ranks; none before they are collected
  std::chrono::steady_clock::time_point asked_;
  std::deque<schedule::RankState>
      sent_;  ///< never freed: a message to a rank that is dead does not end
  std::jthread thread_;
};
}  // namespace minitaw::harness
