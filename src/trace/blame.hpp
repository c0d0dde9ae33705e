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

/// Seconds that subjects which should be alike, ranks or links, take for their work in some steps.
struct Observed {
  std::vector<std::vector<double>> work;                  ///< [subject][class]: amount in a step; 0: none
  std::vector<std::vector<std::vector<double>>> seconds;  ///< [step][subject][class]
};

/// Classes of equal work: compute actions of one kind with the same FLOPs (of a visit: for each block) and
/// bytes of memory. `micro_batch_per_rank`: B of each rank, in place of the layout's.
class Works {
public:
  Works(const schedule::Program& program, const model::Layout& layout,
      const std::vector<std::int64_t>& micro_batch_per_rank = {});
  /// Amounts in a step, [rank][class].
  [[nodiscard]] const std::vector<std::vector<double>>& amounts() const { return amounts_; }
  /// Seconds that a rank has computed in a step, by class.
  [[nodiscard]] std::vector<double> seconds(int rank, const std::vector<schedule::Span>& spans) const;

private:
  std::vector<std::vector<int>> class_of_;  ///< [rank][action]; -1: none
  std::vector<std::vector<double>> amounts_;
};

/// What spoils a step, in words and numbers (docs/results.md).
struct Blame {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  std::string text;            ///< a sentence; empty: nobody looked
  std::string culprit;         ///< "rank 17 (node 4, device 1)"; empty: none
  double slower = unknown;     ///< it takes so much longer than the median of its peers: 0.08
  double share = unknown;      ///< of the step that it costs; NaN: the step cannot be executed again
  std::vector<double> ratios;  ///< of each rank: seconds of its computing to the median of the others
};

/// Looks for a rank, node, adapter or link that stands out from its peers. `computing`: of Works. `steps`: of
/// a program that validate() accepts; the first one is executed again without the culprit. `sites`: of the
/// ranks; empty: all on one node.
[[nodiscard]] Blame find_blame(const schedule::Program& program, const model::Layout& layout,
    const std::vector<Site>& sites, const Observed& computing, std::span<const StepSpans> steps);

/// The ends of a step that takes place again with the order and waits of the program, every action as long
/// after its causes and under way as long as in `spans`, divided by `speedup(rank, action)`: its length, s.
/// Exactly the measured one if that is 1 for all.
using Speedup = std::function<double(int rank, int action)>;
[[nodiscard]] double replay(const schedule::Program& program, const StepSpans& spans, const Speedup& speedup);
}  // namespace minitaw::trace
