#pragma once

#include <array>
#include <vector>

#include "trace/timeline.hpp"

namespace minitaw::trace {

/// Where an event stands beside others of its lane that run at the same time: the messages of a batch
/// overlap.
struct Place {
  int row = 0;   ///< of `rows`
  int rows = 1;  ///< side by side at that time
};

/// How the events of a timeline share the rows of ranks and lanes.
struct Rows {
  std::vector<Place> places;  ///< by event
  /// [rank][lane]: most events side by side; 0: the lane is empty
  std::vector<std::array<int, schedule::lanes>> depth;
};
[[nodiscard]] Rows arrange(const Timeline& timeline);

}  // namespace minitaw::trace
