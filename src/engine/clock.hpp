#pragma once

#include <chrono>

#include "schedule/span.hpp"

namespace minitaw::engine {

using schedule::Span;

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
