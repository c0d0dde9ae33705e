#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "record/table.hpp"

namespace minitaw::record {

/// One repetition of a case.
struct Run {
  std::size_t index = 0;  ///< of the case in the deck
  int repetition = 0;
  friend bool operator==(const Run&, const Run&) = default;
};

struct TodoOptions {
  bool retry = false;                         ///< run those again that ended wrong, oom, timeout or error
  std::optional<std::uint64_t> interleave{};  ///< seed of a random order over all repetitions of all cases
  std::string interrupted{};  ///< identity of the case that ran when the last job died; it comes last
};

/// What a sweep has still to do.
struct RemainingRuns {
  std::vector<Run> runs;           ///< in order
  std::vector<std::string> notes;  ///< what is not run again and why, one sentence each
};
/// `rows` is what the result file holds. Repetitions of a case that are missing are run; a case that failed
/// is left alone unless `retry`, one that was skipped for want of memory is tried again.
[[nodiscard]] RemainingRuns remaining_runs(const std::vector<deck::Case>& cases, const std::vector<Row>& rows,
                                           const TodoOptions& options);

/// Repetitions of its case that a row holds.
[[nodiscard]] int repetitions_of(const Row& row);
/// Whether a row needs no further run: ended ok, with all repetitions.
[[nodiscard]] bool is_finished(const Row& row);

/// How far a sweep is and how long it will still take. Runs are weighed by their model FLOPs per rank, so
/// that the long sequences at the end of a sweep do not come as a surprise.
class Progress {
public:
  /// The case of every run to come, in order. Until one has ended, `least_rate` is what a rank is trusted to
  /// do in a second, FLOP/s.
  Progress(const std::vector<deck::Case>& runs, double least_rate);

  /// After the next run has taken this long: "[3/12, 1:05 to go]".
  std::string after(double seconds);
  /// The next run is left out.
  void leave_out();

  /// Seconds that a repetition of the case may take, as far as is known.
  [[nodiscard]] double expected(const deck::Case& c) const;
  [[nodiscard]] std::size_t left() const { return work_.size() - done_; }
  /// Whether any run has ended yet.
  [[nodiscard]] bool measured() const { return work_done_ > 0; }

private:
  std::vector<double> work_;
  double least_rate_;
  std::size_t done_ = 0;
  double seconds_ = 0, work_done_ = 0, work_left_ = 0;
};

/// "1:05", "2:03:04"
[[nodiscard]] std::string clock_text(double seconds);

}  // namespace minitaw::record
