#include "engine/lane.hpp"

#include <algorithm>
#include <thread>

namespace minitaw::engine {
namespace {

/// Of each unit of a lane: how many of the lane's actions are over when it is.
std::vector<int> counts_after_units(const schedule::RankProgram& program, schedule::Lane lane) {
  std::vector<int> counts;
  for (const schedule::Unit& unit : schedule::units(program, lane))
    counts.push_back((counts.empty() ? 0 : counts.back()) + static_cast<int>(unit.actions.size()));
  return counts;
}

/// On a queue that may not return before its work is over.
void complete(const comm::Transport::Started& transfer) {
  while (transfer != nullptr && !transfer->done())
    if (!transfer->advance()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace

Lane::Lane(const schedule::RankProgram& program, schedule::Lane lane, Progress& progress,
           const Queues& queues, Start start, Idle idle)
    : lane_(lane), progress_(progress), queues_(queues), start_(std::move(start)), idle_(std::move(idle)) {
  for (const schedule::Unit& unit : schedule::units(program, lane)) {
    PlayedUnit& played = units_.emplace_back();
    played.indices = unit.actions;
    played.wait_units.fill(-1);
    for (const int i : unit.actions) {
      const schedule::Action& action = program.actions[i];
      played.actions.push_back(&action);
      for (int l = 0; l < schedule::lanes; ++l) played.waits[l] = std::max(played.waits[l], action.waits[l]);
    }
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
  opened_ = false;
  under_way_.reset();
  submitted_ = 0;
  waited_.fill(0);
  queue().begin_step();
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
  queue().run(number, [&] { complete(start_(unit.actions)); });
  submitted();
}

bool Lane::advance() {
  if (done()) return false;
  const int number = static_cast<int>(next_);
  const PlayedUnit& unit = units_[next_];
  bool moved = false;
  if (under_way_ != nullptr) {
    moved = under_way_->advance();
  } else {
    if (!std::exchange(opened_, true)) queue().open(number);
    if (!ready() || !waits_complete(unit)) return false;
    queue().begin(number);
    under_way_ = start_(unit.actions);
    moved = true;
  }
  if (under_way_ != nullptr && !under_way_->done()) return moved;
  under_way_.reset();
  queue().end(number);
  submitted();
  return true;
}

void Lane::submitted() {
  submitted_ += static_cast<int>(units_[next_].indices.size());
  ++next_;
  opened_ = false;
  progress_.submitted(lane_, submitted_);
}

bool Lane::waits_complete(const PlayedUnit& unit) const {
  for (int l = 0; l < schedule::lanes; ++l)
    if (unit.wait_units[l] >= 0 && !queues_[l]->is_complete(unit.wait_units[l])) return false;
  return true;
}

void Lane::wait_for(int lane, const PlayedUnit& unit) {
  const auto other = static_cast<schedule::Lane>(lane);
  const bool idle = progress_.count(other) < unit.waits[lane];
  if (idle) idle_(true);
  progress_.wait(other, unit.waits[lane]);
  queue().after(*queues_[lane], unit.wait_units[lane]);
  if (idle) idle_(false);
  waited_[lane] = unit.waits[lane];
}

const schedule::Action* Lane::pending() const {
  const auto at = static_cast<std::size_t>(queue().completed());
  return at < units_.size() ? units_[at].actions.front() : nullptr;
}

void Lane::read(std::vector<Span>& spans) const {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Span span = queue().span(static_cast<int>(u));
    for (const int i : units_[u].indices) spans[i] = span;
  }
}

}  // namespace minitaw::engine
