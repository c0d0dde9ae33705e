#pragma once

#include <string>
#include <vector>

#include "deck/settings.hpp"

namespace minitaw::record {

/// How far a sweep is and how long it will still take. Cases are weighed by their model FLOPs per rank, so
/// that the long sequences at the end of a sweep do not come as a surprise.
class Progress {
public:
  /// The cases that will run, finished ones not among them.
  explicit Progress(const std::vector<deck::Case>& cases);

  /// After the next case has taken this long: "[3/12, 1:05 to go]".
  std::string after(double seconds);

private:
  std::vector<double> work_;
  std::size_t done_ = 0;
  double seconds_ = 0, work_done_ = 0, work_total_ = 0;
};

/// "1:05", "2:03:04"
[[nodiscard]] std::string clock_text(double seconds);

}  // namespace minitaw::record
