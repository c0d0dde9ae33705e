#include "engine/watchdog.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "engine/executor.hpp"
#include "engine/queue.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

Watchdog::Watchdog(const schedule::Program& program, int rank, std::vector<const Lane*> lanes,
                   Progress& progress, Seconds limit, WatchdogCalls calls)
    : program_(program), rank_(rank), lanes_(std::move(lanes)), progress_(progress), limit_(limit),
      calls_(std::move(calls)), thread_([this](const std::stop_token& end) { watch(end); }) {}

void Watchdog::set_running(bool running) {
  {
    const std::scoped_lock lock(mutex_);
    running_ = running;
  }
  changed_.notify_one();
}

void Watchdog::watch(const std::stop_token& end) {
  use_device();
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, end, [&] { return running_; }) && !end.stop_requested()) watch_step(lock, end);
}

void Watchdog::watch_step(std::unique_lock<std::mutex>& lock, const std::stop_token& end) {
  const auto over = [&] { return !running_ || end.stop_requested(); };
  // A tenth of the limit is fine enough, and leaves the lanes alone.
  const auto interval = std::min(limit_ / 10, Seconds(0.5));
  auto moved = std::chrono::steady_clock::now();
  for (long before = moves(); !over();) {
    changed_.wait_for(lock, end, interval, over);
    if (over()) return;
    poll();
    const auto now = std::chrono::steady_clock::now();
    if (const long seen = moves(); seen != before) {
      before = seen;
      moved = now;
    } else if (now - moved >= limit_) {
      lock.unlock();
      stall();
      lock.lock();
      changed_.wait(lock, end, over);
    }
  }
}

/// The step fails before anything is cancelled: the first failure is the one that is told.
void Watchdog::stall() {
  std::string report = headline(), reason = report;  // for people, and in one sentence for the record
  for (const Lane* lane : lanes_) {
    report += "\n  " + describe(*lane);
    const schedule::Action* action = lane->pending();
    if (action != nullptr && lane->started() && is_communication(action->kind))
      reason += ", " + describe(*lane);
  }
  calls_.on_stall(report);
  progress_.fail(std::make_exception_ptr(Stalled(reason)));
  calls_.cancel();
}

void Watchdog::poll() {
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

Guard::Guard(OnExpiry on_expiry)
    : on_expiry_(std::move(on_expiry)), thread_([this](const std::stop_token& end) { watch(end); }) {}

void Guard::expect(std::string what, Seconds limit) {
  {
    const std::scoped_lock lock(mutex_);
    what_ = std::move(what);
    limit_ = std::min(limit, Seconds(longest));
    deadline_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<Time::duration>(limit_);
  }
  changed_.notify_one();
}

void Guard::pause() {
  const std::scoped_lock lock(mutex_);
  deadline_ = Time::max();
}

void Guard::watch(const std::stop_token& end) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, end, [&] { return deadline_ != Time::max(); })) {
    const Time deadline = deadline_;
    // It may be put off or taken back meanwhile.
    if (changed_.wait_until(lock, end, deadline, [&] { return deadline_ != deadline; })) continue;
    if (end.stop_requested()) return;
    const std::string report = fmt::format("{} has not ended for {:g} s", what_, limit_.count());
    deadline_ = Time::max();
    lock.unlock();
    on_expiry_(report);
    lock.lock();
  }
}

}  // namespace minitaw::engine
