// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <set>
#include "record/schema.hpp"

/// Judges a run, a case and a sweep (docs/run.md).
namespace minitaw::record {
/// A figure of merit needs at least this many timed steps: with fewer, the quartiles say nothing.
inline constexpr int least_samples = 3;
/// Quartiles of the samples further apart than this share of the median make a result noisy.
inline constexpr double widest_spread = 0.1;

/// How the reason of a run begins whose job ended without a word.
inline constexpr std::string_view job_died = "the job died while this case ran";

/// Returns "VALID", "VALID (doubts)" or "INVALID: reason". A valid run ended ok, with enough
/// samples and with the bytes that were planned.
std::string verdict_of(const MeasuredRun& run);
bool is_valid(const std::string& verdict);

/// The runs of a case that count: of each repetition the last one. Rows of one file.
struct CaseRuns {
  std::vector<const Row*> runs;

  const Row& last() const { return *runs.back(); }

  bool ended_ok() const { return last().text("status") == name_of(Status::ok); }

  /// Returns the repetition that comes next: the one that failed, or that after the last.
  int next() const { return static_cast<int>(runs.size()) - (ended_ok() ? 0 : 1); }

  /// Returns whether it has all repetitions, or a failure, after which none comes.
  bool has_ended() const;
  /// Like verdict_of(); INVALID also if repetitions are missing.
  std::string verdict() const;
  /// Median over repetitions.
  double tokens_per_s() const;
};

/// In the order of their numbers. They point into `rows`.
std::vector<CaseRuns> by_case(const std::vector<Row>& rows);

/// Identities of the cases that sessions were asked for.
using Asked = std::set<std::string>;

/// The verdict of a sweep: there is at least one case, all are valid, and those asked for have
/// ended. `stopped`: why the last session ended before.
std::string verdict(
    const std::vector<Row>& rows, const Asked& asked = {}, const std::string& stopped = "");
/// The fastest valid case of each model: "1234 tokens/s (tawpipe, 4 ranks in groups 2+2, 1024
/// tokens)", followed by its doubt and the fastest case without one if it has a doubt. "none" if no
/// case is valid.
std::vector<std::string> figures_of_merit(const std::vector<Row>& rows);

/// A sentence of an instrument on all rows, printed at the end and kept as an attribute of /runs.
struct Remark {
  std::string attribute;
  std::function<std::string(const std::vector<Row>& rows)> sentence;  ///< empty: nothing to say
};

using Remarks = std::vector<Remark>;
/// Remarks, what was judged, a line "figure of merit: ..." for each model, and "RESULT: VALID" or
/// "RESULT: INVALID: reason".
std::string closing_text(const std::vector<Row>& rows,
    const Remarks& remarks = {},
    const Asked& asked = {},
    const std::string& stopped = "");
/// Settings in which the rows differ, in the order of the columns, but not what follows from
/// another one.
std::vector<std::string> varying_settings(const std::vector<Row>& rows);
}  // namespace minitaw::record
