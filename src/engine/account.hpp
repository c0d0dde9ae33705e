#pragma once

#include <vector>

#include "schedule/simulate.hpp"
#include "trace/timeline.hpp"

namespace minitaw::engine {

/// When the actions of a step ran, [rank][action], in seconds on one clock for all ranks.
using StepSpans = std::vector<std::vector<schedule::Span>>;

struct StepAccount {
  double length = 0;  ///< from 0 to the last end of any rank
  std::vector<trace::RankTime> ranks;
};

/// The account of one step, measured or planned, of a program that validate() accepts.
///
/// A transfer is under way from the moment the last of its sides has begun until it ends; sides that begin
/// after it has ended at this rank held up nobody here. Before that a lane waits for the other side, and the
/// account follows it there, to what that side did at the time: computing (then this rank is idle), another
/// transfer under way (then this rank's wait is exposed communication of its kind), or a wait of its own,
/// which is followed on. docs/results.md has the formulas.
[[nodiscard]] StepAccount account(const schedule::Program& program, const StepSpans& spans);

}  // namespace minitaw::engine
