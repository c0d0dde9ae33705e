// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include "comm/transport.hpp"

namespace minitaw::comm {
/// Waiting of a communication thread for messages: tests at full speed (`spins`), then with yields
/// in between (`yields` times, for as long as `eager`, and for a millisecond while compute waits),
/// then sleeps of a sixteenth of the time waited so far: the end of a long message is seen at most
/// 6 % late, with few wake-ups.
struct WaitPolicy {
  int spins = 2, yields = 4;
  /// Time of yielding for devices: their transfers are short, and the cores have little else to do.
  std::chrono::microseconds eager{0}, shortest_sleep{20}, longest_sleep{500};
  /// While the rank computes, every sleep has the longest time, because tests take time from
  /// computing.
  bool spare_compute = false;
};

/// Returns the policy for a node on which `threads` compute and communication threads share
/// `cores`. With a core for each, waits spin for about as long as a layer computes, which costs
/// nothing and answers at once. With fewer, a few tests find messages that have arrived, then the
/// thread sleeps, at most half a millisecond, so that compute keeps its core. Beside compute it
/// does not yield, which may cost it several milliseconds: one that wakes runs next.
[[nodiscard]] WaitPolicy wait_policy(int cores, int threads);

/// Flag: compute waits for communication, so waits may use the cores of the rank.
class LowLatency {
public:
  /// Switches the flag; the compute thread switches it off while it computes. On at first.
  void set(bool on);

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Ends the sleep of the waiting thread, or the next one if it is awake.
  void wake();
  /// Sleeps for `time`; ends early if wake() is called now or was called since the last sleep.
  void sleep(std::chrono::microseconds time);

private:
  std::atomic<bool> on_ = true;
  bool woken_ = false;
  std::mutex mutex_;
  std::condition_variable woken_up_;
};

class Backoff {
public:
  explicit Backoff(const WaitPolicy& policy, LowLatency* low_latency = nullptr)
      : left_(policy),
        low_latency_(low_latency) {}

  void once();

private:
  std::chrono::steady_clock::time_point
      began_{};  ///< when it first had nothing better to do than wait
  WaitPolicy left_;
  LowLatency* low_latency_;
};

void finish(
    std::initializer_list<const Transport::Started*> transfers, const WaitPolicy& policy = {});
}  // namespace minitaw::comm
