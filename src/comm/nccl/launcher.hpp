#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <span>
#include <utility>

#include "comm/mpi/wait.hpp"
#include "comm/nccl/api.hpp"

namespace minitaw::comm::nccl {

/// Calls in a group of NCCL's; the group is ended even on the way out of an error.
class Group {
public:
  explicit Group(Api& api) : api_(api) { api_.group_start(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();
  void end();

private:
  Api& api_;
  bool ended_ = false;
};

/// The way of all threads to NCCL, which wants one call at a time: lanes take turns, and a lane keeps its
/// turn until NCCL has put its work on the device queue. The watchdog gets in between, while a lane looks
/// whether NCCL is ready.
class Launcher {
public:
  Launcher(Api& api, const mpi::WaitPolicy& policy) : api_(api), waiter_(policy, cancelled_) {}

  /// What `issue` calls on these communicators is one operation; returns when it is on its queue. Throws
  /// Cancelled once cancel() has been called.
  template <class Issue>
  void launch(std::span<Communicator* const> communicators, Issue&& issue) {
    const std::scoped_lock turn(turn_);
    use([&] {
      Group group(api_);
      std::forward<Issue>(issue)();
      group.end();
    });
    for (Communicator* const communicator : communicators)
      wait_ready(*communicator, std::chrono::steady_clock::time_point::max());
  }
  template <class Issue>
  void launch(Communicator& communicator, Issue&& issue) {
    Communicator* const one = &communicator;
    launch(std::span(&one, 1), std::forward<Issue>(issue));
  }

  /// A call that is no group; `use` is the only one to use NCCL meanwhile.
  template <class Use>
  void use(Use&& use) {
    const std::scoped_lock lock(calls_);
    check_cancelled();
    std::forward<Use>(use)();
  }

  /// Throws Error when the time has come.
  void wait_ready(Communicator& communicator, std::chrono::steady_clock::time_point limit);

  /// The same as use(), if nobody else is in NCCL and nothing is cancelled; else does nothing.
  template <class Use>
  void use_if_idle(Use&& use) {
    const std::unique_lock lock(calls_, std::try_to_lock);
    if (lock && !cancelled_) std::forward<Use>(use)();
  }

  /// Embeddings all waits and keeps everybody from NCCL, then calls `abort`; not if a thread is stuck in
  /// NCCL, which only blocking communicators (NCCL_COMM_BLOCKING=1) let happen: it must not be pulled away
  /// from under it.
  template <class Abort>
  void cancel(Abort&& abort) {
    if (cancelled_.exchange(true)) return;
    if (const auto lock = lock_in_time()) std::forward<Abort>(abort)();
  }
  [[nodiscard]] bool cancelled() const { return cancelled_; }

private:
  void check_cancelled() const {
    if (cancelled_) throw Cancelled();
  }
  [[nodiscard]] std::unique_lock<std::mutex> lock_in_time();

  Api& api_;
  std::atomic<bool> cancelled_{false};
  mpi::Waiter waiter_;
  std::mutex turn_;   ///< of a lane, for a whole operation
  std::mutex calls_;  ///< for a moment
};

}  // namespace minitaw::comm::nccl
