// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <condition_variable>
#include <fmt/format.h>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include "engine/queue.hpp"

namespace minitaw::engine {
/// Time without progress after which a step is given up, unless the user says otherwise.
inline constexpr std::chrono::duration<double> default_stall_limit{300};

/// Watches the progress of a rank from a thread of its own: a wait for a rank that has died must
/// end.
class Watchdog {
public:
  using Seconds = std::chrono::duration<double>;
  using OnExpiry = std::function<void(const std::string& report)>;

  /// Calls `on_expiry` once if something exceeds its limit. A new value of `moves` restarts the
  /// time.
  explicit Watchdog(
      OnExpiry on_expiry, std::function<long()> moves = [] { return 0L; })
      : on_expiry_(std::move(on_expiry)),
        moves_(std::move(moves)),
        thread_([this](const std::stop_token& end) { watch(end); }) {}

  /// Starts the time for `what` ("gathering results"), which must end, move or be replaced within
  /// `limit`.
  void expect(std::string what, Seconds limit) {
    {
      const std::scoped_lock lock(mutex_);
      expects_ = true;
      what_ = std::move(what);
      limit_ = limit;
      began_ = Clock::now();
    }
    changed_.notify_one();
  }

  /// Stops watching until expect().
  void pause() {
    const std::scoped_lock lock(mutex_);
    expects_ = false;
  }

private:
  using Clock = std::chrono::steady_clock;

  void watch(const std::stop_token& end) {
    use_device();
    std::unique_lock lock(mutex_);
    for (long seen = 0; changed_.wait(lock, end, [&] { return expects_; });) {
      // A tenth of the limit is fine enough, and leaves the lanes alone.
      changed_.wait_for(lock, end, std::min(limit_ / 10, Seconds(0.5)), [&] { return !expects_; });
      if (end.stop_requested())
        return;
      if (!expects_)
        continue;
      if (const long moves = moves_(); moves != std::exchange(seen, moves))
        began_ = Clock::now();
      if (Clock::now() - began_ < limit_)
        continue;
      expects_ = false;
      const std::string report = fmt::format("{} has not ended for {:g} s", what_, limit_.count());
      lock.unlock();
      on_expiry_(report);
      lock.lock();
    }
  }

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
