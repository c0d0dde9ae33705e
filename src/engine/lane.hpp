#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "engine/clock.hpp"
#include "engine/lane_space.hpp"
#include "engine/progress.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// Plays one lane of a rank's program: unit after unit on the lane's queue, each after the waits of all its
/// actions.
class Lane {
public:
  using Received = std::function<void()>;
  /// Does the work of one unit (a batch of messages, or a single action), or enqueues it. Of a batch it may
  /// call `received` as soon as all that it receives is there.
  using Run = std::function<void(std::span<const schedule::Action* const> unit, const Received& received)>;

  /// Told when the lane begins and ends to wait for another one.
  using Idle = std::function<void(bool idle)>;

  /// `queues` of all lanes and their clock outlive this.
  Lane(
      const schedule::RankProgram& program, schedule::Lane lane, Progress& progress, const Queues& queues,
      const Clock& clock, Run run, Idle idle = [](bool) {});

  /// Before the first unit of a step, on every lane.
  void begin_step();

  /// Submits the whole lane; throws what `run` throws, or Stopped.
  void play();

  /// For one thread that plays all lanes.
  [[nodiscard]] bool done() const { return next_ == units_.size(); }
  /// First action of the next unit, an index into RankProgram::actions.
  [[nodiscard]] int next_action() const { return units_[next_].indices.front(); }
  /// Whether all that the next unit waits for has been submitted.
  [[nodiscard]] bool ready() const;
  void play_next();

  /// The oldest action that is not complete, for the watchdog; nullptr when there is none.
  [[nodiscard]] const schedule::Action* pending() const;
  /// Whether it has begun (else it waits for other lanes).
  [[nodiscard]] bool started() const { return queue().begun() > queue().completed(); }
  /// Grows whenever the lane gets on.
  [[nodiscard]] long moves() const { return static_cast<long>(queue().begun()) + queue().completed(); }

  [[nodiscard]] bool empty() const { return units_.empty(); }
  [[nodiscard]] schedule::Lane lane() const { return lane_; }

  /// Writes the times of the lane's actions, indexed as RankProgram::actions; after the queue has finished.
  void read(std::vector<Span>& spans) const;

private:
  struct PlayedUnit {
    std::vector<int> indices;
    std::vector<const schedule::Action*> actions;
    int receives = 0;      ///< of a batch whose first actions are all that it receives: how many; else 0
    double received = -1;  ///< when they were there in this step; -1: with the rest
    std::array<int, schedule::lanes> waits{};                    ///< actions of each lane
    std::array<int, schedule::lanes> wait_units = {-1, -1, -1};  ///< the unit that holds the last of them
  };
  void wait_for(int lane, const PlayedUnit& unit);
  void note_received(PlayedUnit& unit);
  [[nodiscard]] Queue& queue() const { return *queues_[static_cast<std::size_t>(lane_)]; }
  void find_wait_units(const schedule::RankProgram& program);

  schedule::Lane lane_;
  Progress& progress_;
  const Queues& queues_;
  const Clock& clock_;
  Run run_;
  Idle idle_;
  std::vector<PlayedUnit> units_;
  std::size_t next_ = 0;
  int submitted_ = 0;                          ///< actions
  std::array<int, schedule::lanes> waited_{};  ///< actions of each lane waited for
};

}  // namespace minitaw::engine
