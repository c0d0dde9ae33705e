// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <vector>

namespace minitaw::topology {
/// The threads that compute in one process.
struct Team {
  int threads = 1;
  bool was_dynamic = false;       ///< OpenMP was free to take other numbers of threads each time
  std::vector<int> processors{};  ///< on which some of them may run, ascending; empty: not known
};

/// Starts the team with which Kokkos computes afterwards: of this many threads, or as many as the
/// OpenMP runtime grants. It has the same number every time. Called by the thread that computes.
Team start_team(int threads);
}  // namespace minitaw::topology
