#include "engine/lane.hpp"

#include <algorithm>

namespace minitaw::engine {
namespace {

/// Of each unit of a lane: how many of the lane's actions are over when it is.
std::vector<int> counts_after_units(const schedule::RankProgram& program, schedule::Lane lane) {
  std::vector<int> counts;
  for (const schedule::Unit& unit : schedule::units(program, lane))
    counts.push_back((counts.empty() ? 0 : counts.back()) + static_cast<int>(unit.actions.size()));
  return counts;
}

/// Who waits for what a batch receives need not wait for what it sends, if all that is received comes first:
/// others wait for a number of actions.
int leading_receives(const std::vector<const schedule::Action*>& unit) {
  const auto receives = [](const schedule::Action* action) { return action->kind == schedule::Kind::recv; };
  const auto rest = std::ranges::find_if_not(unit, receives);
  return std::any_of(rest, unit.end(), receives) ? 0 : static_cast<int>(rest - unit.begin());
}

}  // namespace

Lane::Lane(const schedule::RankProgram& program, schedule::Lane lane, Progress& progress,
           const Queues& queues, const Clock& clock, Run run, Idle idle)
    : lane_(lane), progress_(progress), queues_(queues), clock_(clock), run_(std::move(run)),
      idle_(std::move(idle)) {
  for (const schedule::Unit& unit : schedule::units(program, lane)) {
    PlayedUnit& played = units_.emplace_back();
    played.indices = unit.actions;
    for (const int i : unit.actions) {
      const schedule::Action& action = program.actions[i];
      played.actions.push_back(&action);
      for (int l = 0; l < schedule::lanes; ++l) played.waits[l] = std::max(played.waits[l], action.waits[l]);
    }
    played.receives = leading_receives(played.actions);
    played.waits[static_cast<std::size_t>(lane)] = 0;  // its own lane is in order
  }
  find_wait_units(program);
}

void Lane::find_wait_units(const schedule::RankProgram& program) {
  for (int l = 0; l < schedule::lanes; ++l) {
    const std::vector<int> counts = counts_after_units(program, static_cast<schedule::Lane>(l));
    for (PlayedUnit& unit : units_)
      if (unit.waits[l] > 0)
        unit.wait_units[l] =
            static_cast<int>(std::ranges::lower_bound(counts, unit.waits[l]) - counts.begin());
  }
}

void Lane::begin_step() {
  next_ = 0;
  submitted_ = 0;
  waited_.fill(0);
  for (PlayedUnit& unit : units_) unit.received = -1;
  queue().begin_step();
}

void Lane::play() {
  while (!done()) play_next();
}

bool Lane::ready() const {
  const PlayedUnit& unit = units_[next_];
  for (int l = 0; l < schedule::lanes; ++l)
    if (progress_.count(static_cast<schedule::Lane>(l)) < unit.waits[l]) return false;
  return true;
}

void Lane::play_next() {
  const int number = static_cast<int>(next_);
  PlayedUnit& unit = units_[next_];
  queue().open(number);
  for (int l = 0; l < schedule::lanes; ++l) {
    if (unit.waits[l] <= waited_[l]) continue;
    wait_for(l, unit);
  }
  queue().run(number, [&] { run_(unit.actions, [&] { note_received(unit); }); });
  ++next_;
  submitted_ += static_cast<int>(unit.indices.size());
  progress_.submitted(lane_, submitted_);
}

void Lane::note_received(PlayedUnit& unit) {
  if (unit.receives == 0 || queue().asynchronous()) return;
  unit.received = clock_.now();
  progress_.submitted(lane_, submitted_ + unit.receives);
}

void Lane::wait_for(int lane, const PlayedUnit& unit) {
  const auto other = static_cast<schedule::Lane>(lane);
  const bool idle = progress_.count(other) < unit.waits[lane];
  if (idle) idle_(true);
  progress_.wait(other, unit.waits[lane]);
  // of a thread's queue all that was counted is complete, though its unit may not be
  if (queues_[lane]->asynchronous()) queue().after(*queues_[lane], unit.wait_units[lane]);
  if (idle) idle_(false);
  waited_[lane] = unit.waits[lane];
}

const schedule::Action* Lane::pending() const {
  const auto at = static_cast<std::size_t>(queue().completed());
  return at < units_.size() ? units_[at].actions.front() : nullptr;
}

void Lane::read(std::vector<Span>& spans) const {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const PlayedUnit& unit = units_[u];
    const Span span = queue().span(static_cast<int>(u));
    for (const int i : unit.indices) spans[i] = span;
    for (int i = 0; unit.received >= 0 && i < unit.receives; ++i) spans[unit.indices[i]].end = unit.received;
  }
}

}  // namespace minitaw::engine
