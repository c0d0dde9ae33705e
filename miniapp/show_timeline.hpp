#pragma once

#include <string>

namespace minitaw::app {

/// What `minitaw show --timeline` was asked for.
struct ShowTimeline {
  std::string output;    ///< OUT.svg or OUT.json
  int number = -1;       ///< of the case; -1: the only one that has a timeline
  bool planned = false;  ///< with the plan of the case above it
};

/// Draws the timeline of a case of the result file. Returns the exit code.
[[nodiscard]] int show_timeline(const std::string& file, const ShowTimeline& options);

}  // namespace minitaw::app
