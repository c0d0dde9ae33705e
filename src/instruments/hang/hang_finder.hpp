// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include "comm/mpi/mpi.hpp"
#include "harness/instrument.hpp"
#include "instruments/hang/hang.hpp"

namespace minitaw::hang {
/// Finds what a job that hangs waits for. A thread of each rank answers when it is asked how far
/// its rank has come, whatever that rank waits for. When a rank's watchdog asks, a few ranks on
/// different nodes (rank 0 may be the one that hangs) collect the states of all; the lowest of them
/// that answers says the sentence.
class HangFinder final : public harness::Instrument {
public:
  /// Collective over `world`, whose ranks lie on these `nodes`.
  HangFinder(MPI_Comm world, const topology::Groups& nodes);

  void between_cases() override;
  [[nodiscard]] std::unique_ptr<harness::CaseListener> listen(
      const harness::RunningCase& running) override;
  /// Returns the sentence on the rank that has printed it; empty elsewhere, or after a few seconds.
  [[nodiscard]] std::string explain_stall() override;

private:
  class Watch;
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
  /// Never freed: a message to a rank that is dead does not end.
  std::deque<schedule::RankState> sent_;
  std::jthread thread_;
};
}  // namespace minitaw::hang
