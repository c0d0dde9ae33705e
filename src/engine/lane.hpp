#pragma once

#include <array>
#include <deque>
#include <functional>
#include <vector>

#include "comm/transport.hpp"
#include "engine/clock.hpp"
#include "engine/fenced_queue.hpp"
#include "engine/lane_space.hpp"
#include "engine/progress.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// Executes one lane of a rank's program: action after action on the lane's queue, each after its waits.
class Lane {
public:
  /// Does the work of an action, enqueues it, or returns the transfer that is under way.
  using Start = std::function<comm::Transport::Started(const schedule::Action&)>;

  /// Told when the lane begins and ends to wait for another one.
  using Idle = std::function<void(bool idle)>;

  /// `queues` of all lanes outlive this.
  Lane(
      const schedule::RankProgram& program, schedule::Lane lane, Progress& progress, const Queues& queues,
      Start start, Idle idle = [](bool) {});

  /// advance() may have so many messages of one direction under way.
  void allow(int messages) { messages_ = static_cast<std::size_t>(messages); }

  /// Before the first action of a step, on every lane.
  void begin_step();

  /// For a thread that submits lanes, and may wait in each.
  [[nodiscard]] bool done() const { return next_ == actions_.size() && under_way_.empty(); }
  /// The next action, an index into RankProgram::actions.
  [[nodiscard]] int next_action() const { return actions_[next_].index; }
  /// Whether all that the next action waits for has been submitted.
  [[nodiscard]] bool ready() const;
  /// Waits for other lanes, then submits the next action; throws what `start` throws, or Stopped.
  void play_next();

  /// For one thread that drives several lanes whose queues are not asynchronous: does what can be done
  /// for what is under way, and starts the next action if it may start. Returns whether that was anything.
  bool advance();

  /// The oldest action that is not complete, for the watchdog; nullptr when there is none.
  [[nodiscard]] const schedule::Action* pending() const;
  /// Whether it has begun (else it waits for other lanes).
  [[nodiscard]] bool started() const { return queue().begun() > queue().completed(); }
  /// Grows whenever the lane gets on.
  [[nodiscard]] long moves() const { return static_cast<long>(queue().begun()) + queue().completed(); }

  [[nodiscard]] bool empty() const { return actions_.empty(); }
  [[nodiscard]] bool asynchronous() const { return queue().asynchronous(); }
  [[nodiscard]] schedule::Lane lane() const { return lane_; }

  /// Writes the times of the lane's actions, indexed as RankProgram::actions; after the queue has finished.
  void read(std::vector<Span>& spans) const;

private:
  using Counts = std::array<int, schedule::lanes>;
  struct Played {
    int index;
    const schedule::Action* action;
    Counts waits;  ///< actions of each other lane
  };
  struct UnderWay {
    int number;
    comm::Transport::Started transfer;
  };
  [[nodiscard]] Queue& queue() const { return *queues_[static_cast<std::size_t>(lane_)]; }
  /// Of a lane that advance() drives.
  [[nodiscard]] FencedQueue& fenced() const { return dynamic_cast<FencedQueue&>(queue()); }
  void wait_for(int lane, int count);
  /// Whether all that the next action waits for is complete.
  [[nodiscard]] bool waits_complete();
  [[nodiscard]] bool may_join() const;
  bool start_next();
  bool finish_first();

  schedule::Lane lane_;
  Progress& progress_;
  const Queues& queues_;
  Start start_;
  Idle idle_;
  std::vector<Played> actions_;
  std::size_t messages_ = 1;
  std::size_t next_ = 0;            ///< to be submitted or started
  std::deque<UnderWay> under_way_;  ///< of advance(), in order
  bool opened_ = false;             ///< advance() has come to the next action
  Counts waited_{};                 ///< actions of each lane known to be over (play_next(): awaited)
};

}  // namespace minitaw::engine
