// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "harness/case_runner.hpp"

namespace minitaw::replay {
/// A step is the same to the bit wherever it runs, as sums have a fixed order: else data are
/// corrupted silently.
struct Report {
  /// Where each chain of wrong values begins, in the order of the data flow; rank 0 has them: "run
  /// 1, step 2, rank 3 (node 1), in the place of rank 0: 'BW s1 m2 w0 a1 x0 g0' has a wrong g0 from
  /// right inputs".
  std::vector<std::string> findings{};
  int runs = 0;  ///< more than two: they differ
  // What was summed, all runs and ranks together:
  std::int64_t actions = 0, tensors = 0, bytes = 0;
};

/// Asked before and after each action, before its sums are taken: tests change buffers here.
using Disturb = std::function<void(
    int run, int step, const engine::Runtime& runtime, const schedule::Action& action, bool after)>;

/// Executes the steps of a case twice, with the ranks of the program on other ranks of the job the
/// second time, and compares a check sum of all that every action reads and writes. If they differ,
/// further runs on yet other ranks decide by majority: in a job of two ranks, a fault that both
/// placements of a rank show names no rank. Sums have a fixed order; throws InputError for a case
/// without. `places`: of each rank of the job: "node 1, device 0". Collective over the job.
[[nodiscard]] Report compare_runs(harness::CaseRunner& runner,
    Case c,
    const std::vector<std::string>& places,
    const Disturb& disturb = {});
}  // namespace minitaw::replay
