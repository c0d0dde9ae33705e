// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fmt/format.h>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace minitaw::engine {
/// Time without progress after which a job is given up, unless the user says otherwise.
inline constexpr std::chrono::duration<double> default_stall_limit{300};

/// Ends a rank that makes no progress, from a thread of its own: a wait for a rank that has died
/// must end. One object for the whole job, made before MPI starts.
class Watchdog {
public:
  using Seconds = std::chrono::duration<double>;
  using OnExpiry = std::function<void(const std::string& report)>;

  /// Work that must progress.
  struct Phase {
    std::string complaint;  ///< "reading a file has not ended"
    Seconds limit{0};
    /// Counts progress: a new value restarts the time.
    std::function<long()> moves = [] { return 0L; };
    /// Text that follows the complaint in the report.
    std::function<std::string()> details = [] { return std::string(); };
  };

  /// Calls `on_expiry` once for a phase that exceeds its limit. All other calls wait meanwhile.
  Watchdog(Seconds limit, OnExpiry on_expiry)
      : limit_(limit),
        on_expiry_(std::move(on_expiry)),
        thread_([this](const std::stop_token& end) { watch(end); }) {}

  /// The limit of phases that have none of their own.
  Seconds limit() const { return limit_; }

  /// Begins a phase ("reading a file"), which must end in time.
  void phase(const std::string& name) { phase(name, limit_); }

  void phase(const std::string& name, Seconds limit) { phase({name + " has not ended", limit}); }

  void phase(Phase phase) {
    const std::scoped_lock lock(mutex_);
    phase_ = std::move(phase);
    began_ = Clock::now();
    watches_ = true;
  }

  /// Stops watching until the next phase.
  void pause() {
    const std::scoped_lock lock(mutex_);
    watches_ = false;
  }

  void on_expiry(OnExpiry act) {
    const std::scoped_lock lock(mutex_);
    on_expiry_ = std::move(act);
  }

private:
  using Clock = std::chrono::steady_clock;

  void watch(const std::stop_token& end) {
    // A tenth of the limit is fine enough, and leaves the lanes alone.
    const Seconds pause = std::min(limit_ / 10, Seconds(0.5));
    std::unique_lock lock(mutex_);
    for (long seen = 0;
        !sleeps_.wait_for(lock, end, pause, [&] { return end.stop_requested(); });) {
      if (!watches_)
        continue;
      if (const long moves = phase_.moves(); moves != std::exchange(seen, moves))
        began_ = Clock::now();
      if (Clock::now() - began_ < phase_.limit)
        continue;
      watches_ = false;
      on_expiry_(
          fmt::format("{} for {:g} s{}", phase_.complaint, phase_.limit.count(), phase_.details()));
    }
  }

  const Seconds limit_;
  std::mutex mutex_;
  std::condition_variable_any sleeps_;
  bool watches_ = false;
  Phase phase_;
  Clock::time_point began_;
  OnExpiry on_expiry_;
  std::jthread thread_;
};
}  // namespace minitaw::engine
