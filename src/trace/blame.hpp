// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "model/layout.hpp"
#include "trace/account.hpp"

namespace minitaw::trace {
/// Place of a rank of the job.
struct Site {
  int node = 0;
  int device = -1;  ///< of its node; -1: the host computes
};

/// Subjects that should be alike, ranks or links, and what they took for their work in some steps.
struct Observed {
  std::vector<std::vector<double>> work{};                  ///< [subject][class]: amount in a step; 0: none
  std::vector<std::vector<std::vector<double>>> seconds{};  ///< [step][subject][class]
};

/// Classes of equal work of ranks: compute actions of one kind with the same FLOPs (of visits: for a block)
/// and bytes of memory. `own`: B of each rank, if they differ.
struct Works {
  Works(const schedule::Program& program, model::Layout layout, const std::vector<std::int64_t>& own = {});
  /// Seconds that a rank has computed in a step, by class.
  [[nodiscard]] std::vector<double> seconds(int rank, const std::vector<schedule::Span>& spans) const;

  std::vector<std::vector<double>> amounts;  ///< in a step, [rank][class]
  std::vector<std::vector<int>> class_of;    ///< [rank][action]; -1: none
};

/// What spoils a step, in words and numbers (docs/results.md).
struct Blame {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  std::string text{};            ///< a sentence; empty: nobody looked
  std::string culprit{};         ///< "rank 17 (node 4, device 1)"; empty: none
  double slower = unknown;       ///< it takes so much longer than the median of its peers: 0.08
  double share = unknown;        ///< of the step that it costs; NaN: the step cannot be executed again
  std::vector<double> ratios{};  ///< of each rank: seconds of its computing to the median of the others
};

/// Looks for a rank, node, adapter or link that stands out from its peers. `computing`: of Works. `steps`: of
/// a program that validate() accepts; the first one is executed again without the culprit. `sites`: of the
/// ranks; empty: all on one node.
[[nodiscard]] Blame find_blame(const schedule::Program& program, const model::Layout& layout,
    const std::vector<Site>& sites, const Observed& computing, std::span<const StepSpans> steps);

/// Length of a measured step that takes place again in the order and with the waits of the program: every
/// action begins as long after its causes, and is under way as long, divided by `speedup(rank, action)`.
using Speedup = std::function<double(int rank, int action)>;
[[nodiscard]] double replay(const schedule::Program& program, const StepSpans& spans, const Speedup& speedup);
}  // namespace minitaw::trace
