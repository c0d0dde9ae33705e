// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <map>
#include <set>

#include "kernels/kernels.hpp"
#include "plan.hpp"

namespace minitaw::bench {
/// Times calls of an asynchronous kernel; on devices ten between two waits, so that launching is
/// hidden where it can be.
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
    for (int i = 0; i < calls_at_a_time; ++i)
      run_();
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

/// A rate that this machine reaches, and how it was taken.
struct Limit {
  double rate = 0;  ///< B/s or FLOP/s, of the fastest call
  double seconds = 0;
  std::string how;
  double mean = 0;  ///< over all calls, whatever else used the machine meanwhile
};

/// What other rates are shares of.
struct Limits {
  Limit triad;
  std::map<model::Dtype, Limit> product;
  std::map<double, double> small_triads{};  ///< rates of triads that move fewer bytes, by bytes

  /// No kernel of this cost can be faster, unless its data are in a cache.
  [[nodiscard]] double least_seconds(model::Dtype dtype, const Cost& cost) const;
  /// The same if caches help it as they help a triad that moves as many bytes.
  [[nodiscard]] double least_seconds_cached(model::Dtype dtype, const Cost& cost) const;
  /// Largest relative change of a rate from this measurement to the other.
  [[nodiscard]] double drift(const Limits& after) const;
  /// Takes the larger rate of each: what the machine can do does not depend on when others use it.
  void improve(const Limits& other);
};

/// Takes both on the idle machine: the triad a = b + s c of STREAM (McCalpin 1995; three arrays,
/// written lines are not counted as read) on arrays of `triad_mib` each, and a square product in
/// each type by the matmul that the kernels use. The fastest of at least ten calls and half a
/// second. Small triads are not taken with them.
[[nodiscard]] Limits measure_limits(const std::set<model::Dtype>& types, std::int64_t triad_mib);

/// Rates of triads from 256 KiB on, each twice the one before, for Limits::small_triads.
[[nodiscard]] std::map<double, double> measure_small_triads(std::int64_t triad_mib);

/// Size of an array that no cache holds a useful part of: four times the last cache of the host
/// (all of them, if there are several), an eighth of the free memory at most; on a device 1 GiB.
[[nodiscard]] std::int64_t default_triad_mib();
}  // namespace minitaw::bench
