#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "comm/transport.hpp"

namespace minitaw::comm::mpi {

/// How a communication thread waits: it tests `spins` times at full speed, gives way to other threads
/// `yields` times and for `eager`, then sleeps between tests, each time a sixteenth of what it has waited: so
/// a long message is seen at most 6 % late, and costs few wake-ups, which are dear on virtual machines.
struct Patience {
  int spins = 0;
  int yields = 0;
  /// Where a device computes, the cores have little else to do, and its transfers are short.
  std::chrono::microseconds eager{0};
  std::chrono::microseconds shortest_sleep{20};
  std::chrono::microseconds longest_sleep{500};
  /// Every compute thread of the node has a core, which nobody needs while it waits for communication: then
  /// waits give way for a millisecond before they sleep.
  bool hurries = false;
};

/// MPI's own blocking calls spin for ever, which is right only where every thread has a core. `threads`
/// counts the compute and communication threads of all ranks of this node, `cores` what they may run on
/// together. With a core for each, spinning costs nobody anything and answers at once, so it lasts about as
/// long as a layer. Otherwise the core belongs to compute: a few tests catch what is already there, then the
/// thread sleeps, and a message waits at most half a millisecond for it. It does not give way first: who does
/// is out for a whole slice of the scheduler, milliseconds, where who wakes from a sleep comes next.
[[nodiscard]] Patience patience(int cores, int threads);

/// Tells the waits of a rank when all of it waits for them: they need not spare its cores then.
class Hurry {
public:
  /// Called by the thread that computes. In a rank of which nobody ever says that it computes, it does not.
  void set(bool on);
  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }
  /// Ends the sleep of the waiting thread, or the next one if it is awake.
  void wake();
  /// Shorter if wake() is called meanwhile, or was since the last sleep.
  void sleep(std::chrono::microseconds time);

private:
  std::atomic<bool> on_ = true;
  bool woken_ = false;
  std::mutex mutex_;
  std::condition_variable woken_up_;
};

/// The pauses of one wait.
class Pause {
public:
  explicit Pause(const Patience& patience, Hurry* hurry = nullptr) : left_(patience), hurry_(hurry) {}
  void once();

private:
  /// Since this was first asked.
  [[nodiscard]] std::chrono::microseconds waited();

  std::chrono::steady_clock::time_point began_{};
  Patience left_;
  Hurry* hurry_;
};

/// Waits that another thread can end.
class Waiter {
public:
  Waiter(const Patience& patience, const std::atomic<bool>& cancelled, Hurry* hurry = nullptr)
      : patience_(patience), cancelled_(cancelled), hurry_(hurry) {}

  /// Returns when `done()` is true. Throws Cancelled soon after the flag is raised.
  template <class Done>
  void until(Done&& done) const {
    for (Pause pause(patience_, hurry_); !done(); pause.once())
      if (cancelled_.load(std::memory_order_relaxed)) throw Cancelled();
  }

private:
  Patience patience_;
  const std::atomic<bool>& cancelled_;
  Hurry* hurry_;
};

}  // namespace minitaw::comm::mpi
