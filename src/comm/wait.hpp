// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include "comm/transport.hpp"

namespace minitaw::comm {
/// How a communication thread waits for messages. It tests `spins` times at full speed, then with a
/// yield between tests: `yields` times, then for as long as `eager`, and for a millisecond where
/// compute waits for it. Then it sleeps between tests, each time for a sixteenth of the time waited
/// so far: it sees the end of a long message at most 6 % late, and wakes up seldom.
struct WaitPolicy {
  int spins = 2, yields = 4;
  /// `eager` is for devices: their transfers are short, and the cores have little else to do.
  std::chrono::microseconds eager{0}, shortest_sleep{20}, longest_sleep{500};
  /// Every sleep is the longest one while the rank computes: a test takes time from computing.
  bool spare_compute = false;
};

/// Returns the policy for a node on which `threads` compute and communication threads share
/// `cores`. With a core for each thread, a wait spins for about as long as a layer computes: that
/// costs nothing and answers at once. With fewer, a few tests find messages that have arrived, then
/// the thread sleeps, at most half a millisecond, so that compute keeps its core. It does not yield
/// beside compute: the thread that gets the core may keep it for several milliseconds.
WaitPolicy wait_policy(int cores, int threads);

/// Flag: compute waits for communication, so waits may use the cores of the rank.
class LowLatency {
public:
  /// Switches the flag; the compute thread switches it off while it computes. On at first.
  void set(bool on);

  bool on() const { return on_.load(std::memory_order_relaxed); }

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
