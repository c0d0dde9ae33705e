#pragma once

#include <chrono>

#include "schedule/simulate.hpp"

namespace minitaw::engine {

using schedule::Span;

/// The host's clock, in seconds since some moment that all processes of the node share.
inline double host_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The host's clock, from the beginning of a step; shared by the lanes of a rank.
class Clock {
public:
  void begin_step() { start_ = host_seconds(); }
  [[nodiscard]] double now() const { return host_seconds() - start_; }
  /// When the step began, by host_seconds().
  [[nodiscard]] double started() const { return start_; }

private:
  double start_ = 0;
};

}  // namespace minitaw::engine
