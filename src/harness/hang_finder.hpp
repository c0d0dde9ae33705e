// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <deque>
#include <mpi.h>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi/mpi.hpp"
#include "engine/runtime.hpp"
#include "schedule/hang.hpp"

namespace minitaw::harness {
/// Finds what a job that hangs waits for. A thread of each rank answers when it is asked how far its rank has
/// come, whatever that rank waits for. When a rank's watchdog asks, a few ranks on different nodes (rank 0
/// may be the one that hangs) collect the states of all; the lowest of them that answers says the sentence.
class HangFinder {
public:
  /// Collective.
  HangFinder(MPI_Comm world, const topology::Groups& nodes);
  HangFinder& operator=(HangFinder&&) = delete;
  ~HangFinder() { thread_ = {}; }

  /// All ranks have come to the begin or end of a case.
  void next_case();
  /// The runtime whose executor runs the steps of this rank from now on; it outlives the object.
  class Watch {
  public:
    Watch(HangFinder& finder, const engine::Runtime& runtime) : finder_(finder) { finder_.watch(&runtime); }
    Watch& operator=(Watch&&) = delete;
    ~Watch() { finder_.watch(nullptr); }

  private:
    HangFinder& finder_;
  };

  /// For the watchdog: returns when the sentence is printed, or after a few seconds without one. Returns it
  /// on the rank that has printed it; empty elsewhere.
  [[nodiscard]] std::string find();

private:
  enum class Tag : int { hangs, ask, state, said };

  void watch(const engine::Runtime* runtime);
  [[nodiscard]] schedule::RankState own_state();
  void serve(const std::stop_token& end);
  void answer();
  void send(int to, Tag tag);
  void collect();
  void conclude();
  void end(const std::function<void()>& say);
  [[nodiscard]] bool is_collector() const;

  comm::mpi::OwnComm own_;
  topology::Groups nodes_;
  int rank_;
  std::vector<int> collectors_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  const engine::Runtime* runtime_ = nullptr;
  std::int64_t case_ = 0, last_ = 0;  ///< cases begun and ended; position at the end of the last runtime
  bool hangs_ = false, said_ = false;
  std::string sentence_;
  // Of the thread alone:
  bool concluded_ = false;
  std::vector<schedule::RankState> states_;  ///< of all ranks; none before they are collected
  std::chrono::steady_clock::time_point asked_;
  std::deque<schedule::RankState> sent_;  ///< never freed: a message to a rank that is dead does not end
  std::jthread thread_;
};
}  // namespace minitaw::harness
