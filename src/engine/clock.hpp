#pragma once

#include <chrono>
#include <vector>

namespace minitaw::engine {

/// When an action of the current step was ready to run, began and ended, in seconds since the step began.
/// Between `ready` (its lane got to it) and `begin` it waited for other lanes.
struct Span {
  double ready = 0;
  double begin = 0;
  double end = 0;
};

/// Clock of every action of a rank; allocated once, each entry written by the lane that plays the action.
class Clock {
public:
  explicit Clock(std::size_t actions) : spans_(actions) {}

  void begin_step() { start_ = std::chrono::steady_clock::now(); }
  [[nodiscard]] double now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  [[nodiscard]] Span& operator[](int action) { return spans_[action]; }
  [[nodiscard]] const Span& operator[](int action) const { return spans_[action]; }

private:
  std::chrono::steady_clock::time_point start_;
  std::vector<Span> spans_;
};

}  // namespace minitaw::engine
