#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace minitaw::engine {

/// Watches what a rank does outside of steps, where a wait for a rank that has died or stopped would last for
/// ever (inside, the step's watchdog knows more). Calls `on_expiry` once, from its own thread, when something
/// takes longer than it may.
class Guard {
public:
  using Seconds = std::chrono::duration<double>;
  using OnExpiry = std::function<void(const std::string& report)>;

  explicit Guard(OnExpiry on_expiry);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

  /// From now on the rank is at `what` ("gathering results"), which ends or becomes something else within
  /// `limit`.
  void expect(std::string what, Seconds limit);
  /// Nothing is expected.
  void pause();

private:
  using Clock = std::chrono::steady_clock;
  void loop();

  OnExpiry on_expiry_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  Seconds limit_{0};
  Clock::time_point deadline_ = Clock::time_point::max();  ///< max: paused
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace minitaw::engine
