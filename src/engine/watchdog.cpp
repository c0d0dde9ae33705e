#include "engine/watchdog.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "engine/queue.hpp"

namespace minitaw::engine {

Watchdog::Watchdog(OnExpiry on_expiry, std::function<long()> moves)
    : on_expiry_(std::move(on_expiry)), moves_(std::move(moves)),
      thread_([this](const std::stop_token& end) { watch(end); }) {}

void Watchdog::expect(std::string what, Seconds limit) {
  {
    const std::scoped_lock lock(mutex_);
    expects_ = true;
    what_ = std::move(what);
    limit_ = limit;
    began_ = Clock::now();
  }
  changed_.notify_one();
}

void Watchdog::pause() {
  const std::scoped_lock lock(mutex_);
  expects_ = false;
}

void Watchdog::watch(const std::stop_token& end) {
  use_device();
  std::unique_lock lock(mutex_);
  for (long seen = 0; changed_.wait(lock, end, [&] { return expects_; });) {
    // A tenth of the limit is fine enough, and leaves the lanes alone.
    changed_.wait_for(lock, end, std::min(limit_ / 10, Seconds(0.5)), [&] { return !expects_; });
    if (end.stop_requested()) return;
    if (!expects_) continue;
    if (const long moves = moves_(); moves != std::exchange(seen, moves)) began_ = Clock::now();
    if (Clock::now() - began_ < limit_) continue;
    expects_ = false;
    const std::string report = fmt::format("{} has not ended for {:g} s", what_, limit_.count());
    lock.unlock();
    on_expiry_(report);
    lock.lock();
  }
}

}  // namespace minitaw::engine
