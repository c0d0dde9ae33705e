#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>

#include "schedule/program.hpp"

namespace minitaw::engine {

/// Thrown out of a wait when another lane of the rank has failed.
struct Stopped : std::exception {};

/// How far each lane of a rank has come in the current step: actions handed to its queue. Lanes are in order,
/// so a count is all that a wait needs; where the queue is a thread, what was handed over is also complete.
/// Waiting sleeps in the kernel: on a crowded node it takes no time from the lane that computes.
class Progress {
public:
  void begin_step() {
    for (auto& lane : done_) lane.store(0, std::memory_order_relaxed);
  }

  /// `count` actions of the lane are submitted.
  void submitted(schedule::Lane lane, int count) {
    auto& done = done_[static_cast<std::size_t>(lane)];
    done.store(count);
    if (failed_.load()) done.store(stopped);  // fail() may have come between: its waiters must not miss it
    done.notify_all();
  }

  /// Returns once `count` actions of the lane are submitted; throws Stopped if a lane fails meanwhile.
  void wait(schedule::Lane lane, int count) const {
    const auto& done = done_[static_cast<std::size_t>(lane)];
    for (int seen = done.load(std::memory_order_acquire); seen < count;
         seen = done.load(std::memory_order_acquire))
      done.wait(seen, std::memory_order_acquire);
    check();
  }

  [[nodiscard]] int count(schedule::Lane lane) const {
    return done_[static_cast<std::size_t>(lane)].load(std::memory_order_acquire);
  }

  /// Wakes every waiter with Stopped; the first reason is kept.
  void fail(std::exception_ptr reason) {
    {
      const std::scoped_lock lock(mutex_);
      if (!reason_) reason_ = std::move(reason);
    }
    failed_.store(true);
    for (auto& lane : done_) {
      lane.store(stopped);
      lane.notify_all();
    }
  }

  /// Throws Stopped once a lane has failed.
  void check() const {
    if (failed_.load(std::memory_order_acquire)) throw Stopped();
  }

  void rethrow_if_failed() const {
    if (!failed_.load(std::memory_order_acquire)) return;
    const std::scoped_lock lock(mutex_);
    std::rethrow_exception(reason_);
  }

private:
  static constexpr int stopped = std::numeric_limits<int>::max();

  std::array<std::atomic<int>, schedule::lanes> done_{};
  std::atomic<bool> failed_ = false;
  mutable std::mutex mutex_;
  std::exception_ptr reason_;
};

}  // namespace minitaw::engine
