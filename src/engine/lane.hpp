#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "comm/transport.hpp"
#include "engine/clock.hpp"
#include "engine/lane_space.hpp"
#include "engine/progress.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// Executes one lane of a rank's program: unit after unit on the lane's queue, each after the waits of all
/// its actions.
class Lane {
public:
  /// Does the work of one unit (a batch of messages, or a single action), enqueues it, or returns the
  /// transfer that is under way.
  using Start = std::function<comm::Transport::Started(std::span<const schedule::Action* const> unit)>;

  /// Told when the lane begins and ends to wait for another one.
  using Idle = std::function<void(bool idle)>;

  /// `queues` of all lanes outlive this.
  Lane(
      const schedule::RankProgram& program, schedule::Lane lane, Progress& progress, const Queues& queues,
      Start start, Idle idle = [](bool) {});

  /// Before the first unit of a step, on every lane.
  void begin_step();

  /// For a thread that submits lanes, and may wait in each.
  [[nodiscard]] bool done() const { return next_ == units_.size(); }
  /// First action of the next unit, an index into RankProgram::actions.
  [[nodiscard]] int next_action() const { return units_[next_].indices.front(); }
  /// Whether all that the next unit waits for has been submitted.
  [[nodiscard]] bool ready() const;
  /// Waits for other lanes, then submits the next unit; throws what `start` throws, or Stopped.
  void play_next();

  /// For one thread that drives several lanes whose queues are not asynchronous: starts the next unit if it
  /// may start, or does what can be done for the one under way. Returns whether that was anything.
  bool advance();

  /// The oldest action that is not complete, for the watchdog; nullptr when there is none.
  [[nodiscard]] const schedule::Action* pending() const;
  /// Whether it has begun (else it waits for other lanes).
  [[nodiscard]] bool started() const { return queue().begun() > queue().completed(); }
  /// Grows whenever the lane gets on.
  [[nodiscard]] long moves() const { return static_cast<long>(queue().begun()) + queue().completed(); }

  [[nodiscard]] bool empty() const { return units_.empty(); }
  [[nodiscard]] bool asynchronous() const { return queue().asynchronous(); }
  [[nodiscard]] schedule::Lane lane() const { return lane_; }

  /// Writes the times of the lane's actions, indexed as RankProgram::actions; after the queue has finished.
  void read(std::vector<Span>& spans) const;

private:
  using Counts = std::array<int, schedule::lanes>;
  struct PlayedUnit {
    std::vector<int> indices;
    std::vector<const schedule::Action*> actions;
    Counts waits{};     ///< actions of each lane
    Counts wait_units;  ///< the unit that holds the last of them; -1: none
  };
  void wait_for(int lane, const PlayedUnit& unit);
  void submitted();
  [[nodiscard]] Queue& queue() const { return *queues_[static_cast<std::size_t>(lane_)]; }
  [[nodiscard]] bool waits_complete(const PlayedUnit& unit) const;
  void find_wait_units(const schedule::RankProgram& program);

  schedule::Lane lane_;
  Progress& progress_;
  const Queues& queues_;
  Start start_;
  Idle idle_;
  std::vector<PlayedUnit> units_;
  std::size_t next_ = 0;  ///< unit that is to be submitted next, or is under way
  comm::Transport::Started under_way_;
  bool opened_ = false;  ///< advance() has come to the next unit
  int submitted_ = 0;    ///< actions
  Counts waited_{};      ///< actions of each lane waited for
};

}  // namespace minitaw::engine
