#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "comm/transport.hpp"

namespace minitaw::comm {

/// Waiting of a communication thread for messages. The thread tests `spins` times at full speed, then yields
/// between tests (`yields` times, for as long as `eager`, and for a millisecond while compute waits for it),
/// then sleeps between tests. Each sleep lasts a sixteenth of the time waited so far: the end of a long
/// message is seen at most 6 % late, with few wake-ups, which are expensive on virtual machines. The default
/// is for few cores.
struct WaitPolicy {
  int spins = 2;
  int yields = 4;
  /// For devices: their transfers are short, and the cores have little else to do.
  std::chrono::microseconds eager{0};
  std::chrono::microseconds shortest_sleep{20};
  std::chrono::microseconds longest_sleep{500};
  /// While the rank computes, every sleep is the longest: what a test takes is taken from compute.
  bool spare_compute = false;
};

/// The policy for a node on which `threads` compute and communication threads share `cores`. With a core for
/// each thread, waits spin for about as long as a layer computes: that costs nothing and answers at once, as
/// MPI's blocking calls do. With fewer cores, a few tests catch what has already arrived, then the thread
/// sleeps, so that compute keeps its core; a message waits at most half a millisecond. The thread does not
/// yield beside compute: it would lose a time slice of the scheduler, several milliseconds, but a thread that
/// wakes from a sleep runs next.
[[nodiscard]] WaitPolicy wait_policy(int cores, int threads);

/// Says whether compute waits for communication. If so, waits may use the cores of the rank.
class LowLatency {
public:
  /// Called by the compute thread: off while it computes. On until the first call.
  void set(bool on);
  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }
  /// Ends the sleep of the waiting thread, or the next one if it is awake.
  void wake();
  /// Ends early if wake() is called now or was called since the last sleep.
  void sleep(std::chrono::microseconds time);

private:
  std::atomic<bool> on_ = true;
  bool woken_ = false;
  std::mutex mutex_;
  std::condition_variable woken_up_;
};

/// The pauses of one wait.
class Backoff {
public:
  explicit Backoff(const WaitPolicy& policy, LowLatency* low_latency = nullptr)
      : left_(policy), low_latency_(low_latency) {}
  void once();

private:
  std::chrono::steady_clock::time_point began_{};  ///< when it first had nothing better to do than wait
  WaitPolicy left_;
  LowLatency* low_latency_;
};

/// Advances transfers until all are done. Throws what they throw.
void finish(std::initializer_list<const Transport::Started*> transfers, const WaitPolicy& policy = {});

}  // namespace minitaw::comm
