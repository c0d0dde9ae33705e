// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <chrono>
#include <optional>
#include "case/case.hpp"
#include "record/verdict.hpp"

/// The runs and the time that a sweep has left.
namespace minitaw::app {
struct Run {
  std::size_t index = 0;  ///< of the case in the deck
  int repetition = 0;
  friend bool operator==(const Run&, const Run&) = default;
};

struct RunOrder {
  bool retry = false;       ///< run those again that ended wrong, oom, timeout or error
  bool interleave = false;  ///< in random order over all repetitions of all cases
};

struct RemainingRuns {
  std::vector<Run> runs;           ///< in order
  std::vector<std::string> notes;  ///< what is not run again and why, one sentence each
  std::vector<std::string> last;   ///< what comes last and why
};

/// `rows`: of the result file. A failed case is left alone unless `retry`, which runs the
/// repetition that failed and those that lack; one that was skipped is tried again, and once more
/// one in which the job died. Cases in which a job has died come last.
RemainingRuns remaining_runs(
    const std::vector<Case>& cases, const std::vector<record::Row>& rows, const RunOrder& order);

class TimeLimit {
public:
  /// Without `seconds`, the limit is the end of the Slurm job (SLURM_JOB_END_TIME), if it is known.
  explicit TimeLimit(std::optional<double> seconds);
  /// Seconds that are left for work: up to the limit less what ending takes, a tenth of it, at most
  /// 30 s.
  double left() const;

  /// Returns whether the limit has its full length; false if most of a Slurm job had passed at the
  /// start.
  bool is_whole() const { return whole_; }

  /// "the time limit of 5400 s"
  const std::string& name() const { return name_; }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
  double length_ = 0;  ///< seconds from the start; 0: no limit
  bool whole_ = true;
  std::string name_;
};
}  // namespace minitaw::app
