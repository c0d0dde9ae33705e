// SPDX-License-Identifier: BSD-3-Clause
#include "engine/executor.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <utility>
#include "base/error.hpp"

namespace minitaw::engine {
LaneExecutor::LaneExecutor(const schedule::RankProgram& program,
    schedule::Lane lane,
    LaneProgress& progress,
    const Queues& queues,
    Start start,
    int messages,
    comm::LowLatency* low_latency)
    : lane_(lane),
      progress_(progress),
      queues_(queues),
      start_(std::move(start)),
      messages_(messages),
      low_latency_(low_latency) {
  for (const int i : schedule::actions_of(program, lane)) {
    const schedule::Action& action = program.actions[i];
    actions_.push_back({i, &action, action.waits});
    actions_.back().waits[index_of(lane)] = 0;  // its own lane is in order
  }
}

void LaneExecutor::begin_step() {
  next_ = 0;
  opened_ = false;
  under_way_.clear();
  waited_.fill(0);
  queue().begin_step();
}

bool LaneExecutor::ready() const {
  return std::ranges::all_of(schedule::table_of<schedule::Lane>, [this](const auto& row) {
    return progress_.count(row.value) >= actions_[next_].waits[index_of(row.value)];
  });
}

void LaneExecutor::execute_next() {
  const int number = static_cast<int>(next_);
  const Entry& next = actions_[next_];
  queue().open(number);
  for (const auto& lane : schedule::table_of<schedule::Lane>)
    wait_for(lane.value, next.waits[index_of(lane.value)]);
  queue().run(number, [this, &next] {
    const comm::Transport::Started transfer = start_(*next.action);
    comm::finish({&transfer});  // the queue may not return before its work is over
  });
  progress_.submitted(lane_, static_cast<int>(++next_));
}

bool LaneExecutor::advance() {
  bool moved = false;
  for (const UnderWay& u : under_way_)
    moved = (!u.done() && u.transfer->advance()) || moved;
  while (finish_first())
    moved = true;
  while (start_next())
    moved = true;
  return moved;
}

bool LaneExecutor::finish_first() {
  if (under_way_.empty() || !under_way_.front().done())
    return false;
  const int number = under_way_.front().number;
  under_way_.pop_front();
  fenced().end(number);
  progress_.submitted(lane_, number + 1);
  return true;
}

bool LaneExecutor::start_next() {
  if (next_ == actions_.size() || !may_join())
    return false;
  const int number = static_cast<int>(next_);
  if (!std::exchange(opened_, true))
    queue().open(number);
  if (!waits_complete())
    return false;
  fenced().begin(number);
  under_way_.push_back({number, start_(*actions_[next_].action)});
  ++next_;
  opened_ = false;
  // What is over counts as finished after those before it.
  if (under_way_.size() == 1 && under_way_.front().transfer == nullptr)
    finish_first();
  return true;
}

bool LaneExecutor::may_join() const {
  return under_way_.empty() ||
         (std::ssize(under_way_) < messages_ &&
             std::ranges::all_of(under_way_, [&](const UnderWay& u) {
               return may_overlap(*actions_[u.number].action, *actions_[next_].action);
             }));
}

bool LaneExecutor::waits_complete() {
  const schedule::LaneCounts& waits = actions_[next_].waits;
  for (int l = 0; l < schedule::lanes; ++l) {
    if (waits[l] <= waited_[l])
      continue;
    if (!queues_[l]->is_complete(waits[l] - 1))
      return false;
    waited_[l] = waits[l];
  }
  return true;
}

void LaneExecutor::wait_for(schedule::Lane lane, int count) {
  std::int32_t& waited = waited_[index_of(lane)];
  if (count <= waited)
    return;
  const bool idle = low_latency_ != nullptr && progress_.count(lane) < count;
  if (idle)
    low_latency_->set(true);
  progress_.wait(lane, count);
  queue().after(*queues_[index_of(lane)], count - 1);
  if (idle)
    low_latency_->set(false);
  waited = count;
}

const schedule::Action* LaneExecutor::pending() const {
  const auto at = static_cast<std::size_t>(queue().completed());
  return at < actions_.size() ? actions_[at].action : nullptr;
}

bool LaneExecutor::is_moving() const {
  const schedule::Action* const action = pending();
  return action != nullptr && started() && is_communication(action->kind);
}

std::string LaneExecutor::describe(const schedule::Program& program, int replica) const {
  const schedule::Action* const action = pending();
  if (action == nullptr)
    return fmt::format("{} done", schedule::name_of(lane_));
  const bool begun = started();
  std::string text = fmt::format("{} {} tick {} {}",
      schedule::name_of(lane_),
      begun ? "in" : "before",
      action->tick,
      to_text(in_job(program, *action, replica), program));
  for (const auto& other : schedule::table_of<schedule::Lane>)
    if (const int wait = action->waits[index_of(other.value)];
        !begun && wait > progress_.count(other.value))
      text += fmt::format(", waits for {}:{}", other.name, wait);
  return text;
}

std::string LaneExecutor::unexplained(const schedule::Program& program, int replica) const {
  const schedule::Action* const action = pending();
  if (action == nullptr)
    return {};
  for (int l = 0; l < schedule::lanes; ++l)
    if (action->waits[l] > queues_[l]->completed())
      return {};
  if (is_moving())
    return {};
  return fmt::format("{} {}",
      started() ? "has not finished" : "does not begin",
      to_text(in_job(program, *action, replica), program));
}

void LaneExecutor::read(std::vector<Span>& spans) const {
  for (std::size_t i = 0; i < actions_.size(); ++i)
    spans[actions_[i].index] = queue().span(static_cast<int>(i));
}

Executor::Executor(const schedule::Program& program,
    int rank,
    const Start& start,
    comm::Transport& transport,
    const StepOptions& options)
    : whole_program_(program),
      rank_(rank),
      program_(program.ranks[program.rank_of(rank)]),
      transport_(transport),
      options_(options),
      queues_(make_queues(options.make_queues)),
      asynchronous_(
          std::ranges::all_of(queues_, [](const auto& queue) { return queue->asynchronous(); })),
      spans_(program_.actions.size()),
      lanes_(make_lanes(start)),
      communication_([this](const std::stop_token& end) { communicate(end); }),
      watchdog_([this](const std::string&) { stall(); }, [this] { return moves(); }) {}

Queues Executor::make_queues(const MakeQueues& make) {
  QueueOptions wanted;
  for (const schedule::Action& action : program_.actions)
    ++wanted.units[index_of(action.lane)];
  wanted.clock = &clock_;
  wanted.waiting = [this] { progress_.check(); };
  wanted.communication_on_stream = transport_.on_stream();
  return make(wanted);
}

std::vector<std::unique_ptr<LaneExecutor>> Executor::make_lanes(const Start& start) {
  std::vector<std::unique_ptr<LaneExecutor>> lanes;
  for (const auto& row : schedule::table_of<schedule::Lane>) {
    const schedule::Lane lane = row.value;
    const bool computes = lane == schedule::Lane::compute;
    auto made = std::make_unique<LaneExecutor>(program_,
        lane,
        progress_,
        queues_,
        start,
        transport_.messages_at_once(),
        computes ? &low_latency_ : nullptr);
    if (made->empty() && !computes)
      continue;
    if (!made->asynchronous() && !computes)
      driven_.push_back(made.get());
    lanes.push_back(std::move(made));
  }
  return lanes;
}

double Executor::step() {
  progress_.begin_step();
  clock_.begin_step();
  for (const auto& lane : lanes_)
    lane->begin_step();
  in_step_ = true;
  watchdog_.expect("a step", options_.stall_limit);
  try {
    if (asynchronous_)
      submit_in_order();
    else
      execute_on_threads();
    for (const auto& queue : queues_)
      queue->finish([this] { progress_.check(); });
  } catch (const Stopped&) {
    // another thread failed; its reason is thrown below
  } catch (...) {
    progress_.fail(std::current_exception());
  }
  wait_for_communication();  // only now: it may still be at work when this thread has failed
  watchdog_.pause();
  progress_.rethrow_if_failed();
  in_step_ = false;
  for (const auto& lane : lanes_)
    lane->read(spans_);
  double seconds = 0;
  for (const Span& span : spans_)
    seconds = std::max(seconds, span.end);
  return seconds;
}

void Executor::submit_in_order() {
  for (;;) {
    LaneExecutor* next = nullptr;
    bool done = true;
    for (const auto& lane : lanes_) {
      if (lane->done())
        continue;
      done = false;
      if (lane->ready() && (next == nullptr || lane->next_action() < next->next_action()))
        next = lane.get();
    }
    if (done)
      return;
    if (next == nullptr)
      throw LogicError("engine: every lane waits for another one");
    progress_.check();
    next->execute_next();
  }
}

void Executor::execute_on_threads() {
  low_latency_.set(false);
  ordered_.fetch_add(1);
  ordered_.notify_one();
  for (LaneExecutor& compute = *lanes_.front(); !compute.done(); low_latency_.wake())
    compute.execute_next();
  low_latency_.set(true);
  wait_for_communication();
}

void Executor::wait_for_communication() const {
  const int ordered = ordered_.load();
  for (int executed = executed_.load(); executed != ordered; executed = executed_.load())
    executed_.wait(executed);
}

void Executor::communicate(const std::stop_token& end) {
  const std::stop_callback wake(end, [this] {
    ordered_.store(-1);
    ordered_.notify_one();
  });
  use_device();
  // Nanoseconds. Linux lengthens sleeps by 50 microseconds, more than twice what the shortest waits
  // ask for.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  for (int executed = 0;; ++executed) {
    executed_.store(executed);
    executed_.notify_all();
    ordered_.wait(executed);
    if (ordered_.load() < 0)
      return;
    try {
      drive_lanes();
    } catch (const Stopped&) {
      // another lane failed first and has said why
    } catch (...) {
      progress_.fail(std::current_exception());
    }
  }
}

void Executor::drive_lanes() {
  comm::Backoff backoff(options_.waiting, &low_latency_);
  while (!std::ranges::all_of(driven_, &LaneExecutor::done)) {
    bool moved = false;
    for (LaneExecutor* lane : driven_)
      moved = lane->advance() || moved;
    progress_.check();
    if (moved)
      backoff = comm::Backoff(options_.waiting, &low_latency_);
    else
      backoff.once();
  }
}

Executor::Standing Executor::standing() const {
  if (!in_step_)
    return {};
  Standing found{.lanes = lanes_text(), .unexplained = {}};
  for (const auto& lane : lanes_)
    if (found.unexplained.empty())
      found.unexplained = lane->unexplained(whole_program_, whole_program_.replica_of(rank_));
  return found;
}

std::string Executor::describe(const LaneExecutor& lane) const {
  return lane.describe(whole_program_, whole_program_.replica_of(rank_));
}

std::string Executor::lanes_text() const {
  std::string text;
  for (const auto& lane : lanes_)
    text += "\n  " + describe(*lane);
  return text;
}

/// For the watchdog, which this lets see a transfer that has failed and no call said so.
long Executor::moves() {
  try {
    transport_.poll();
  } catch (...) {
    progress_.fail(std::current_exception());
  }
  long sum = 0;
  for (const auto& lane : lanes_)
    sum += lane->moves();
  return sum;
}

/// Fails the step before it cancels transfers, because the first failure is the one that is
/// reported.
void Executor::stall() {
  std::string report = fmt::format("rank {}: no lane has moved for {:g} s",
                  rank_,
                  std::round(10 * options_.stall_limit.count()) / 10),
              reason = report;  // for people, and in one sentence for the record
  report += lanes_text();
  for (const auto& lane : lanes_)
    if (lane->is_moving())
      reason += ", " + describe(*lane);
  if (std::string cause = options_.on_stall(report); !cause.empty())
    reason = std::move(cause);
  progress_.fail(std::make_exception_ptr(Stalled(reason)));
  transport_.cancel();
}
}  // namespace minitaw::engine
