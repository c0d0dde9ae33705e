#include "engine/watchdog.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "engine/queue.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

Watchdog::Watchdog(const schedule::Program& program, int rank, std::vector<const Lane*> lanes,
                   Progress& progress, std::chrono::duration<double> limit, WatchdogCalls calls)
    : program_(program), rank_(rank), lanes_(std::move(lanes)), progress_(progress), limit_(limit),
      calls_(std::move(calls)), thread_([this] { loop(); }) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::begin_step() {
  {
    const std::scoped_lock lock(mutex_);
    running_ = true;
  }
  changed_.notify_one();
}

void Watchdog::end_step() {
  {
    const std::scoped_lock lock(mutex_);
    running_ = false;
  }
  changed_.notify_one();
}

void Watchdog::loop() {
  use_device();
  std::unique_lock lock(mutex_);
  while (!ending_) {
    changed_.wait(lock, [&] { return running_ || ending_; });
    watch_step(lock);
  }
}

void Watchdog::watch_step(std::unique_lock<std::mutex>& lock) {
  const auto over = [&] { return !running_ || ending_; };
  // A tenth of the limit is fine enough, and leaves the lanes alone.
  const auto interval = std::min(limit_ / 10, std::chrono::duration<double>(0.5));
  auto moved = std::chrono::steady_clock::now();
  for (long before = moves(); !over();) {
    changed_.wait_for(lock, interval, over);
    if (over()) return;
    poll_once();
    const auto now = std::chrono::steady_clock::now();
    if (const long seen = moves(); seen != before) {
      before = seen;
      moved = now;
    } else if (now - moved >= limit_) {
      lock.unlock();
      stall();
      lock.lock();
      changed_.wait(lock, over);
    }
  }
}

/// The step fails before anything is cancelled: the first failure is the one that is told.
void Watchdog::stall() {
  const std::string why = reason();
  calls_.on_stall(report());
  progress_.fail(std::make_exception_ptr(Stalled(why)));
  calls_.cancel();
}

void Watchdog::poll_once() {
  try {
    calls_.poll();
  } catch (...) {
    progress_.fail(std::current_exception());
  }
}

long Watchdog::moves() const {
  long sum = 0;
  for (const Lane* lane : lanes_) sum += lane->moves();
  return sum;
}

std::string Watchdog::headline() const {
  return fmt::format("rank {}: no lane has moved for {:g} s", rank_, std::round(10 * limit_.count()) / 10);
}

std::string Watchdog::report() const {
  std::string text = headline();
  for (const Lane* lane : lanes_) text += "\n  " + describe(*lane);
  return text;
}

std::string Watchdog::reason() const {
  std::string text = headline();
  for (const Lane* lane : lanes_)
    if (const schedule::Action* action = lane->pending();
        action != nullptr && lane->started() && is_communication(action->kind))
      text += ", " + describe(*lane);
  return text;
}

std::string Watchdog::describe(const Lane& lane) const {
  const schedule::Action* action = lane.pending();
  if (action == nullptr) return fmt::format("{} done", schedule::name_of(lane.lane()));
  std::string text = fmt::format("{} {} tick {} {}", schedule::name_of(lane.lane()),
                                 lane.started() ? "in" : "before", action->tick, to_text(*action, program_));
  if (!lane.started())
    for (int l = 0; l < schedule::lanes; ++l)
      if (action->waits[l] > progress_.count(static_cast<schedule::Lane>(l)))
        text += fmt::format(", waits for {}:{}", schedule::name_of(static_cast<schedule::Lane>(l)),
                            action->waits[l]);
  return text;
}

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
