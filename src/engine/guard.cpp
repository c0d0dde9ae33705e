#include "engine/guard.hpp"

#include <fmt/format.h>

namespace minitaw::engine {

namespace {

/// Far enough to be never, near enough not to overflow the clock.
constexpr std::chrono::hours longest{24 * 365};

}  // namespace

Guard::Guard(OnExpiry on_expiry) : on_expiry_(std::move(on_expiry)), thread_([this] { loop(); }) {}

Guard::~Guard() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Guard::expect(std::string what, Seconds limit) {
  {
    const std::scoped_lock lock(mutex_);
    what_ = std::move(what);
    limit_ = std::min(limit, Seconds(longest));
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit_);
  }
  changed_.notify_one();
}

void Guard::pause() {
  const std::scoped_lock lock(mutex_);
  deadline_ = Clock::time_point::max();
}

void Guard::loop() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (deadline_ == Clock::time_point::max()) {
      changed_.wait(lock);
    } else if (changed_.wait_until(lock, deadline_) == std::cv_status::timeout && Clock::now() >= deadline_) {
      const std::string report = fmt::format("{} has not ended for {:g} s", what_, limit_.count());
      deadline_ = Clock::time_point::max();
      lock.unlock();
      on_expiry_(report);
      lock.lock();
    }
  }
}

}  // namespace minitaw::engine
