#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "kernels/kernels.hpp"

namespace minitaw::bench {

/// Times calls of an asynchronous kernel; on devices ten between two waits, so that launching is hidden where
/// it can be.
class Stopwatch {
public:
  static constexpr int calls_at_a_time = kernels::on_host ? 1 : 10;

  /// One call goes before: memory is touched, libraries are loaded.
  explicit Stopwatch(std::function<void()> run) : run_(std::move(run)) {
    run_();
    Kokkos::fence();
  }

  /// Seconds of a call, over calls_at_a_time.
  double measure() {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    for (int i = 0; i < calls_at_a_time; ++i) run_();
    kernels::ExecutionSpace().fence();
    const double taken = std::chrono::duration<double>(Clock::now() - begin).count();
    fastest_ = std::min(fastest_, taken / calls_at_a_time);
    total_ += taken;
    calls_ += calls_at_a_time;
    return taken / calls_at_a_time;
  }

  [[nodiscard]] double fastest() const { return fastest_; }
  [[nodiscard]] double total() const { return total_; }
  [[nodiscard]] long calls() const { return calls_; }

private:
  std::function<void()> run_;
  double fastest_ = std::numeric_limits<double>::infinity(), total_ = 0;
  long calls_ = 0;
};

}  // namespace minitaw::bench
