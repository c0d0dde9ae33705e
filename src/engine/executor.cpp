// SPDX-License-Identifier: BSD-3-Clause
#include "engine/executor.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <utility>

namespace minitaw::engine {
namespace {
using schedule::Lane;

/// Waits for a device. Polls `done()` for 100 microseconds, as long as short kernels take, then
/// sleeps up to 50 microseconds between polls.
template <class Done>
void wait_until(const Done& done) {
  using namespace std::chrono_literals;
  comm::Backoff pause(
      {.spins = 0, .yields = 0, .eager = 100us, .shortest_sleep = 5us, .longest_sleep = 50us});
  while (!done())
    pause.once();
}
}  // namespace

Sequence::Sequence(const schedule::RankProgram& program,
    const std::vector<int>& actions,
    const Queues& queues,
    Starter& starter,
    int messages,
    Hooks hooks)
    : starter_(&starter),
      messages_(messages),
      hooks_(std::move(hooks)) {
  std::array<int, schedule::lanes> units{};
  std::array<schedule::LaneCounts, schedule::lanes> waited{};
  for (const int i : actions) {
    const schedule::Action& action = program.actions[i];
    const std::size_t own = index_of(action.lane);
    Unit& unit = units_.emplace_back(&action, queues[own].get(), units[own]++);
    for (std::size_t l = 0; l < queues.size(); ++l) {
      if (l == own || action.waits[l] <= waited[own][l])
        continue;
      waited[own][l] = action.waits[l];
      unit.waits.push_back({queues[l].get(), action.waits[l] - 1});
    }
  }
}

void Sequence::begin_step() {
  next_ = 0;
  reached_ = false;
  under_way_.clear();
}

bool Sequence::advance() {
  bool moved = false;
  for (const UnderWay& u : under_way_)
    moved = (!u.done() && u.transfer->advance()) || moved;
  while (end_first() || start_next())
    moved = true;
  return moved;
}

bool Sequence::end_first() {
  if (under_way_.empty() || !under_way_.front().done())
    return false;
  const Unit& unit = *under_way_.front().unit;
  under_way_.erase(under_way_.begin());
  unit.queue->end(unit.number);
  hooks_.on_end();
  return true;
}

bool Sequence::start_next() {
  if (next_ == units_.size() || !may_join())
    return false;
  const Unit& unit = units_[next_];
  if (!std::exchange(reached_, true))
    unit.queue->reach(unit.number);
  const auto is_over = [&](Wait wait) { return unit.queue->may_follow(*wait.queue, wait.unit); };
  if (!std::ranges::all_of(unit.waits, is_over))
    return false;
  hooks_.before_start();
  under_way_.push_back({&unit, unit.queue->begin(unit.number, *unit.action, *starter_)});
  ++next_;
  reached_ = false;
  return true;
}

bool Sequence::may_join() const {
  return under_way_.empty() || (std::ssize(under_way_) < messages_ &&
                                   std::ranges::all_of(under_way_, [this](const UnderWay& u) {
                                     return may_overlap(*u.unit->action, *units_[next_].action);
                                   }));
}

Executor::Executor(const schedule::Program& program,
    int rank,
    Starter& starter,
    comm::Transport& transport,
    const StepOptions& options)
    : whole_program_(program),
      rank_(rank),
      program_(program.ranks[program.rank_of(rank)]),
      transport_(transport),
      options_(options),
      queues_(make_queues(options.make_queues)),
      spans_(program_.actions.size()),
      own_(own_lanes(starter)),
      others_(other_lanes(starter)),
      communication_([this] { communicate(); }) {}

Executor::~Executor() {
  order(Turn::end);
}

Queues Executor::make_queues(const MakeQueues& make) {
  QueueOptions wanted;
  for (int l = 0; l < schedule::lanes; ++l) {
    actions_[l] = actions_of(program_, static_cast<Lane>(l));
    wanted.units[l] = static_cast<int>(actions_[l].size());
  }
  wanted.clock = &clock_;
  wanted.communication_on_stream = transport_.on_stream();
  return make(wanted);
}

Sequence Executor::own_lanes(Starter& starter) {
  std::vector<int> actions;
  for (int i = 0; i < std::ssize(program_.actions); ++i)
    if (const Lane lane = program_.actions[i].lane;
        lane == Lane::compute || queues_[index_of(lane)]->asynchronous())
      actions.push_back(i);
  return {program_,
      actions,
      queues_,
      starter,
      1,
      {.before_start = [this] { low_latency_.set(false); },
          .on_end = [this] { low_latency_.wake(); }}};
}

std::vector<Sequence> Executor::other_lanes(Starter& starter) {
  std::vector<Sequence> lanes;
  for (int l = 0; l < schedule::lanes; ++l)
    if (static_cast<Lane>(l) != Lane::compute && !queues_[l]->asynchronous() &&
        !actions_[l].empty())
      lanes.emplace_back(program_,
          actions_[l],
          queues_,
          starter,
          transport_.messages_at_once(),
          Sequence::Hooks{.on_end = [this] { tell_calling_thread(); }});
  return lanes;
}

double Executor::step() {
  begin_step();
  order(Turn::communication);
  drive({&own_, 1}, [this](bool moved, int told) {
    if (moved)
      return;
    low_latency_.set(true);
    told_.wait(told);
  });
  low_latency_.set(true);
  wait_for_communication();  // even if this thread has failed
  wait_for_streams();
  return end_step();
}

void Executor::wait_for_streams() {
  try {
    for (const auto& queue : queues_)
      wait_until([&] { return failed_ || queue->completed() == queue->begun(); });
  } catch (...) {
    fail(std::current_exception());
  }
}

void Executor::begin_step() {
  clock_.begin_step();
  for (const auto& queue : queues_)
    queue->begin_step();
  own_.begin_step();
  std::ranges::for_each(others_, &Sequence::begin_step);
  in_step_ = true;
  if (options_.watchdog != nullptr)
    options_.watchdog->phase({.complaint = "no lane has moved",
        .limit = options_.watchdog->limit(),
        .moves = [this] { return moves(); },
        .details = [this] { return standing().lanes; }});
}

double Executor::end_step() {
  if (options_.watchdog != nullptr)
    options_.watchdog->pause();
  if (failure_)
    std::rethrow_exception(failure_);
  in_step_ = false;
  for (int l = 0; l < schedule::lanes; ++l)
    for (int unit = 0; unit < std::ssize(actions_[l]); ++unit)
      spans_[actions_[l][unit]] = queues_[l]->span(unit);
  double seconds = 0;
  for (const Span& span : spans_)
    seconds = std::max(seconds, span.end);
  return seconds;
}

void Executor::communicate() {
  use_device();
  // Nanoseconds. Linux may lengthen sleeps by 50 microseconds, twice as long as the shortest ones.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  for (;;) {
    turn_.wait(Turn::calling);
    if (turn_ == Turn::end)
      return;
    comm::Backoff backoff(options_.waiting, &low_latency_);
    drive(others_, [&](bool moved, int) {
      if (moved)
        backoff = comm::Backoff(options_.waiting, &low_latency_);
      else
        backoff.once();
    });
    order(Turn::calling);
  }
}

void Executor::order(Turn turn) {
  turn_ = turn;
  turn_.notify_one();
}

void Executor::wait_for_communication() const {
  turn_.wait(Turn::communication);
}

/// Advances lanes until all are done, or a thread has failed. Between rounds, calls
/// `wait(moved, told)`; told_ was `told` before the round.
template <class Wait>
void Executor::drive(std::span<Sequence> lanes, const Wait& wait) {
  try {
    for (;;) {
      const int told = told_;
      bool moved = false;
      for (Sequence& lane : lanes)
        moved = lane.advance() || moved;
      if (failed_ || std::ranges::all_of(lanes, &Sequence::done))
        return;
      wait(moved, told);
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

void Executor::fail(std::exception_ptr reason) {
  {
    const std::scoped_lock lock(mutex_);
    if (!failure_)
      failure_ = std::move(reason);
  }
  failed_ = true;
  tell_calling_thread();
}

void Executor::tell_calling_thread() {
  told_.fetch_add(1);
  told_.notify_one();
}

Standing Executor::standing() const {
  if (!in_step_)
    return {};
  use_device();  // the watchdog's thread was made before the device was chosen
  Standing found;
  for (const auto& row : schedule::table_of<Lane>) {
    const std::vector<int>& actions = actions_[index_of(row.value)];
    const Queue& queue = *queues_[index_of(row.value)];
    if (actions.empty() && row.value != Lane::compute)
      continue;
    const int completed = queue.completed();
    if (completed == std::ssize(actions)) {
      found.lanes += fmt::format("\n  {} done", row.name);
      continue;
    }
    const schedule::Action& action = program_.actions[actions[completed]];
    const std::string words =
        to_text(in_job(whole_program_, action, whole_program_.replica_of(rank_)), whole_program_);
    const bool begun = queue.begun() > completed;
    std::string waits;
    for (const auto& other : schedule::table_of<Lane>)
      if (const int wait = action.waits[index_of(other.value)];
          wait > queues_[index_of(other.value)]->completed())
        waits += fmt::format(", waits for {}:{}", other.name, wait);
    found.lanes += fmt::format("\n  {} {} tick {} {}{}",
        row.name,
        begun ? "in" : "before",
        action.tick,
        words,
        begun ? "" : waits);
    const bool is_moving = begun && is_communication(action.kind);
    if (!is_moving && waits.empty() && found.unexplained.empty())
      found.unexplained =
          fmt::format("{} {}", begun ? "has not finished" : "does not begin", words);
  }
  return found;
}

/// Counts progress for the watchdog. Asks the transport for failures that no call has returned.
long Executor::moves() {
  long sum = 0;
  try {
    use_device();
    transport_.poll();
    for (const auto& queue : queues_)
      sum += queue->begun() + queue->completed();
  } catch (...) {
    fail(std::current_exception());
  }
  return sum;
}

}  // namespace minitaw::engine
