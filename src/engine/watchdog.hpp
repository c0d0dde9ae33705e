#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace minitaw::engine {

/// Watches what a rank does, from a thread of its own: a wait for a rank that has died or stopped would last
/// for ever.
class Watchdog {
public:
  using Seconds = std::chrono::duration<double>;
  using OnExpiry = std::function<void(const std::string& report)>;

  /// Calls `on_expiry` once when something takes longer than it may. Asks `moves` at least twice a second:
  /// whenever the answer is another one, time begins anew.
  explicit Watchdog(OnExpiry on_expiry, std::function<long()> moves = [] { return 0L; });

  /// From now on the rank is at `what` ("gathering results"), which ends, moves or becomes something else
  /// within `limit`.
  void expect(std::string what, Seconds limit);
  /// Nothing is expected.
  void pause();

private:
  using Clock = std::chrono::steady_clock;
  void watch(const std::stop_token& end);

  OnExpiry on_expiry_;
  std::function<long()> moves_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool expects_ = false;
  std::string what_;
  Seconds limit_{0};
  Clock::time_point began_;
  std::jthread thread_;
};

}  // namespace minitaw::engine
