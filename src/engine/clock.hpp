#pragma once

#include <chrono>

namespace minitaw::engine {

/// When an action of the current step was ready to run, began and ended, in seconds since the step began.
/// Between `ready` (its lane got to it) and `begin` it waited for other lanes.
struct Span {
  double ready = 0;
  double begin = 0;
  double end = 0;
};

/// The host's clock, from the beginning of a step; shared by the lanes of a rank.
class Clock {
public:
  void begin_step() { start_ = std::chrono::steady_clock::now(); }
  [[nodiscard]] double now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

private:
  std::chrono::steady_clock::time_point start_;
};

}  // namespace minitaw::engine
