// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <limits>
#include <span>
#include <string>
#include <vector>
#include "model/layout.hpp"
#include "record/extension.hpp"
#include "topology/groups.hpp"
#include "trace/account.hpp"

namespace minitaw::blame {
/// What spoils a step, in words and numbers (docs/results.md).
struct Finding {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  std::string text{};       ///< a sentence; empty: no step was examined
  std::string culprit{};    ///< "rank 17 (node 4)"; empty: none
  double slower = unknown;  ///< it takes so much longer than the median of its peers: 0.08
  double share = unknown;   ///< of the step that it costs; NaN: the step cannot be executed again
  std::vector<double> ratios{};  ///< of each rank: seconds of its computing to the median of all
};

/// The sentence of a step in which nobody is a culprit, and no link could be judged, or some.
constexpr const char *no_rank = "no rank stands out",
                     *no_rank_or_link = "no rank or link stands out";

/// The job around a case.
struct Surroundings {
  topology::Groups nodes;  ///< of the job, which may have more ranks than the case
  /// Why times say nothing of a rank or link, so that none is named: "4 threads of ranks 0-3 share
  /// 2 cores"; empty: they do.
  std::string crowd{};
};

/// Looks for a rank, node, adapter or link that stands out from its peers. `own`: B of each rank,
/// if they differ. `steps`: of a valid program; the first runs again without the culprit.
[[nodiscard]] Finding find_culprit(const schedule::Program& program,
    const model::Layout& layout,
    const std::vector<std::int64_t>& own,
    const Surroundings& around,
    std::span<const trace::StepSpans> steps);

/// How many times as fast each action would be, [rank][action].
using Speedups = std::vector<std::vector<double>>;
/// Returns the length, s, of a measured step that takes place again in the order and with the waits
/// of the program: every action begins as long after its causes, and is under way as long, divided
/// by its speedup.
[[nodiscard]] double replay(
    const schedule::Program& program, const trace::StepSpans& spans, const Speedups& speedups);

/// Adds the datasets "blame/..." (docs/results.md) to a result.
void add(const Finding& finding, CaseResult& result);
/// Columns of what stands out, and the closing lines of a sweep.
[[nodiscard]] record::Extension extension();
/// "rank 3 (node 1) computes ... (case 2); it stands out in 5 of 7 cases" of each culprit that does
/// so in half of the cases or more, and in two of several; if there is none, why. Empty if no case
/// was examined.
[[nodiscard]] std::vector<std::string> standing_out(const std::vector<record::Row>& rows);
}  // namespace minitaw::blame
