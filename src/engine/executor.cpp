#include "engine/executor.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace minitaw::engine {

namespace {

std::vector<const Lane*> all_of(const std::vector<std::unique_ptr<Lane>>& lanes) {
  std::vector<const Lane*> result;
  for (const auto& lane : lanes) result.push_back(lane.get());
  return result;
}

}  // namespace

Executor::Executor(const schedule::Program& program, int rank, Compute& compute, Transfers& transfers,
                   const ExecutorOptions& options)
    : program_(program.ranks[rank]), queues_(queues(options)),
      asynchronous_(std::ranges::all_of(queues_, [](const auto& queue) { return queue->asynchronous(); })),
      spans_(program_.actions.size()), lanes_(make_lanes(compute, transfers)),
      communication_(driven(), progress_, options.waiting),
      watchdog_(program, rank, all_of(lanes_), progress_, options.stall_limit, options.watchdog) {}

std::vector<std::unique_ptr<Lane>> Executor::make_lanes(Compute& compute, Transfers& transfers) {
  std::vector<std::unique_ptr<Lane>> lanes;
  const Lane::Start run = [&compute](const schedule::Action& action) {
    compute.run(action);
    return nullptr;
  };
  lanes.push_back(std::make_unique<Lane>(program_, schedule::Lane::compute, progress_, queues_, run,
                                         [this](bool idle) { communication_.low_latency(idle); }));
  for (int l = 1; l < schedule::lanes; ++l) {
    const auto lane = static_cast<schedule::Lane>(l);
    const Lane::Start start = [&transfers](const schedule::Action& action) {
      return transfers.start(action);
    };
    lanes.push_back(std::make_unique<Lane>(program_, lane, progress_, queues_, start));
    lanes.back()->allow(transfers.messages_at_once());
    if (lanes.back()->empty()) lanes.pop_back();
  }
  return lanes;
}

/// The lanes of the communication thread: none where a device has them all.
std::vector<Lane*> Executor::driven() {
  std::vector<Lane*> result;
  for (std::size_t l = 1; l < lanes_.size(); ++l)
    if (!lanes_[l]->asynchronous()) result.push_back(lanes_[l].get());
  return result;
}

Queues Executor::queues(const ExecutorOptions& options) {
  QueueOptions wanted;
  for (int l = 0; l < schedule::lanes; ++l)
    wanted.units[l] = static_cast<int>(schedule::actions_of(program_, static_cast<schedule::Lane>(l)).size());
  wanted.clock = &clock_;
  wanted.waiting = [this] { progress_.check(); };
  wanted.communication_on_stream = options.communication_on_stream;
  return options.make_queues(wanted);
}

StepTime Executor::execute() {
  begin_step();
  try {
    if (asynchronous_) submit_in_order();
    else execute_on_threads();
    finish();
  } catch (const Stopped&) {
    // another thread failed; its reason is thrown below
  } catch (...) {
    progress_.fail(std::current_exception());
  }
  // Only now: it may still be at work when this thread has failed.
  communication_.wait_until_idle();
  watchdog_.end_step();
  progress_.rethrow_if_failed();
  for (const auto& lane : lanes_) lane->read(spans_);
  StepTime time;
  for (const Span& span : spans_) time.total = std::max(time.total, span.end);
  return time;
}

void Executor::begin_step() {
  progress_.begin_step();
  clock_.begin_step();
  for (const auto& lane : lanes_) lane->begin_step();
  watchdog_.begin_step();
}

void Executor::submit_in_order() {
  for (;;) {
    Lane* next = nullptr;
    bool done = true;
    for (const auto& lane : lanes_) {
      if (lane->done()) continue;
      done = false;
      if (lane->ready() && (next == nullptr || lane->next_action() < next->next_action())) next = lane.get();
    }
    if (done) return;
    if (next == nullptr) throw LogicError("engine: every lane waits for another one");
    progress_.check();
    next->execute_next();
  }
}

void Executor::execute_on_threads() {
  communication_.low_latency(false);
  communication_.begin_step();
  for (Lane& compute = *lanes_.front(); !compute.done(); communication_.wake()) compute.execute_next();
  communication_.low_latency(true);
  communication_.wait_until_idle();
}

void Executor::finish() {
  for (const auto& queue : queues_) queue->finish([this] { progress_.check(); });
}

}  // namespace minitaw::engine
