#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "schedule/program.hpp"

namespace minitaw::engine {

class Lane;
class Progress;

/// A step in which nothing moved.
struct Stalled : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a watchdog calls, from its own thread.
struct WatchdogCalls {
  /// Nothing has moved. One line per lane: what it is at, with whom, in which slot, and what it waits for.
  std::function<void(const std::string& report)> on_stall = [](const std::string&) {};
  /// After that, when the step has failed: ends what communication waits for.
  std::function<void()> cancel = [] {};
  /// Twice a second; its exception fails the step. Throws when communication has failed and no call said so.
  std::function<void()> poll = [] {};
};

/// Watches the lanes of a rank while a step runs. When none of them gets on for `limit`, the step fails with
/// Stalled, which names the transfers under way.
class Watchdog {
public:
  using Seconds = std::chrono::duration<double>;

  Watchdog(const schedule::Program& program, int rank, std::vector<const Lane*> lanes, Progress& progress,
           Seconds limit, WatchdogCalls calls);

  void begin_step() { set_running(true); }
  void end_step() { set_running(false); }

private:
  void set_running(bool running);
  void watch(const std::stop_token& end);
  void watch_step(std::unique_lock<std::mutex>& lock, const std::stop_token& end);
  [[nodiscard]] long moves() const;
  void poll();
  void stall();
  [[nodiscard]] std::string headline() const;
  [[nodiscard]] std::string describe(const Lane& lane) const;

  const schedule::Program& program_;
  int rank_;
  std::vector<const Lane*> lanes_;
  Progress& progress_;
  Seconds limit_;
  WatchdogCalls calls_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool running_ = false;
  std::jthread thread_;
};

/// Watches what a rank does outside of steps, where a wait for a rank that has died or stopped would last for
/// ever (inside, the step's watchdog knows more). Calls `on_expiry` once, from its own thread, when something
/// takes longer than it may.
class Guard {
public:
  using Seconds = Watchdog::Seconds;
  using OnExpiry = std::function<void(const std::string& report)>;

  explicit Guard(OnExpiry on_expiry);

  /// From now on the rank is at `what` ("gathering results"), which ends or becomes something else within
  /// `limit`.
  void expect(std::string what, Seconds limit);
  /// Nothing is expected.
  void pause();

private:
  using Time = std::chrono::steady_clock::time_point;
  void watch(const std::stop_token& end);

  OnExpiry on_expiry_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string what_;
  Seconds limit_{0};
  Time deadline_ = Time::max();  ///< max: paused
  std::jthread thread_;
};

}  // namespace minitaw::engine
