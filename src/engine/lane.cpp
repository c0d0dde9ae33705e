#include "engine/lane.hpp"

#include <algorithm>
#include <utility>

namespace minitaw::engine {

Lane::Lane(const schedule::RankProgram& program, schedule::Lane lane, Progress& progress, Clock& clock,
           Run run)
    : lane_(lane), progress_(progress), clock_(clock), run_(std::move(run)) {
  for (const schedule::Unit& unit : schedule::units(program, lane)) {
    PlayedUnit& played = units_.emplace_back();
    played.indices = unit.actions;
    for (const int i : unit.actions) {
      const schedule::Action& action = program.actions[i];
      played.actions.push_back(&action);
      for (int l = 0; l < schedule::lanes; ++l) played.waits[l] = std::max(played.waits[l], action.waits[l]);
    }
  }
}

void Lane::play() {
  finished_ = 0;
  for (const PlayedUnit& unit : units_) play(unit);
  pending_.store(nullptr, std::memory_order_relaxed);
}

void Lane::play(const PlayedUnit& unit) {
  started_.store(false, std::memory_order_relaxed);
  pending_.store(unit.actions.front(), std::memory_order_relaxed);
  const double ready = clock_.now();
  for (int l = 0; l < schedule::lanes; ++l)
    if (l != static_cast<int>(lane_) && unit.waits[l] > 0)
      progress_.wait(static_cast<schedule::Lane>(l), unit.waits[l]);
  started_.store(true, std::memory_order_relaxed);
  const double begin = clock_.now();
  run_(unit.actions);
  const double end = clock_.now();
  for (const int i : unit.indices) clock_[i] = {ready, begin, end};
  finished_ += static_cast<int>(unit.indices.size());
  progress_.finished(lane_, finished_);
}

}  // namespace minitaw::engine
