// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cmath>
#include <numeric>
#include "schedule/account.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::trace {
/// Times of the actions of a step, [rank][action], in seconds on one clock for all ranks: those of
/// a program, or of several of its replicas.
using StepSpans = std::vector<std::vector<schedule::Span>>;

/// One rank's time in a step, s, as docs/results.md divides it: compute + exposed + idle is its
/// length.
struct RankTime {
  double compute = 0;  ///< the compute lane ran an action
  /// Time in which it waited for a transfer of this kind that was under way.
  std::array<double, schedule::traffic_kinds> exposed{};
  double idle = 0;           ///< the rest: nothing to do, or waiting for another rank to compute
  double communication = 0;  ///< at least one transfer of the rank was under way
  double hidden = 0;         ///< of that, while the rank computed

  double exposed_total() const { return std::accumulate(exposed.begin(), exposed.end(), 0.0); }

  /// hidden / communication; NaN without communication.
  double overlap() const { return communication > 0 ? hidden / communication : std::nan(""); }
};

RankTime total_of(const std::vector<RankTime>& ranks);

struct StepAccount {
  double length = 0;  ///< from 0 to the last end of any rank
  std::vector<RankTime> ranks;
};

/// Divides the time of every rank in one step, measured or predicted, of a program that validate()
/// accepts.
///
/// A transfer is under way from the moment the last of its sides has begun until it ends; a side
/// that begins later delayed no other. Before, the account looks at what the other side did: if it
/// computed, this rank is idle; if another transfer was under way, this rank's wait is exposed
/// communication of its kind; if it waited, the account follows.
StepAccount account(const schedule::Program& program, const StepSpans& spans);
}  // namespace minitaw::trace
