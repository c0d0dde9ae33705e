#pragma once

#include <atomic>
#include <functional>
#include <span>

#include "engine/clock.hpp"
#include "engine/progress.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// Plays one lane of a rank's program: unit after unit, each once the waits of all its actions are met.
class Lane {
public:
  /// Does the work of one unit (a batch of messages, or a single action) and returns when it is complete.
  using Run = std::function<void(std::span<const schedule::Action* const> unit)>;

  Lane(const schedule::RankProgram& program, schedule::Lane lane, Progress& progress, Clock& clock, Run run);

  /// One step; throws what `run` throws, or Stopped.
  void play();

  [[nodiscard]] bool empty() const { return units_.empty(); }
  [[nodiscard]] schedule::Lane lane() const { return lane_; }

  /// The action at the head of the lane, for the watchdog; nullptr when the step is over.
  [[nodiscard]] const schedule::Action* pending() const { return pending_.load(std::memory_order_relaxed); }
  /// Whether the head has started (else it waits for other lanes).
  [[nodiscard]] bool started() const { return started_.load(std::memory_order_relaxed); }

private:
  struct PlayedUnit {
    std::vector<int> indices;
    std::vector<const schedule::Action*> actions;
    std::array<int, schedule::lanes> waits{};
  };
  void play(const PlayedUnit& unit);

  schedule::Lane lane_;
  Progress& progress_;
  Clock& clock_;
  Run run_;
  std::vector<PlayedUnit> units_;
  int finished_ = 0;
  std::atomic<const schedule::Action*> pending_ = nullptr;
  std::atomic<bool> started_ = false;
};

}  // namespace minitaw::engine
