#pragma once

#include <string>
#include <vector>

#include "deck/settings.hpp"

namespace minitaw::record {

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
