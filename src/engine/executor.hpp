// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <deque>
#include <exception>
#include <limits>
#include "engine/watchdog.hpp"

namespace minitaw::engine {
/// Thrown out of a wait when another lane of the rank has failed.
struct Stopped : std::exception {};

struct Stalled : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Counts the actions of each lane that were handed to its queue in this step: a lane runs in
/// order, so that a wait needs only a count. Where the queue is a thread, these actions are
/// complete. Waits sleep in the kernel and take no time from compute.
class LaneProgress {
public:
  void begin_step() {
    for (auto& lane : done_)
      lane.store(0, std::memory_order_relaxed);
  }

  /// `count` actions of the lane are submitted.
  void submitted(schedule::Lane lane, int count) {
    auto& done = done_[index_of(lane)];
    done.store(count);
    if (failed_.load())
      done.store(stopped);  // fail() may have come between: its waiters must not miss it
    done.notify_all();
  }

  /// Returns once `count` actions of the lane are submitted; throws Stopped if a lane fails
  /// meanwhile.
  void wait(schedule::Lane lane, int count) const {
    const auto& done = done_[index_of(lane)];
    for (int seen = done.load(std::memory_order_acquire); seen < count;
        seen = done.load(std::memory_order_acquire))
      done.wait(seen, std::memory_order_acquire);
    check();
  }

  int count(schedule::Lane lane) const {
    return done_[index_of(lane)].load(std::memory_order_acquire);
  }

  /// Wakes every waiter with Stopped; the first reason is kept.
  void fail(std::exception_ptr reason) {
    {
      const std::scoped_lock lock(mutex_);
      if (!reason_)
        reason_ = std::move(reason);
    }
    failed_.store(true);
    for (auto& lane : done_) {
      lane.store(stopped);
      lane.notify_all();
    }
  }

  void check() const {
    if (failed_.load(std::memory_order_acquire))
      throw Stopped();
  }

  void rethrow_if_failed() const {
    if (!failed_.load(std::memory_order_acquire))
      return;
    const std::scoped_lock lock(mutex_);
    std::rethrow_exception(reason_);
  }

private:
  static constexpr int stopped = std::numeric_limits<int>::max();

  std::array<std::atomic<int>, schedule::lanes> done_{};
  std::atomic<bool> failed_ = false;
  mutable std::mutex mutex_;
  std::exception_ptr reason_;
};

/// Starts an action (Runtime::start()): computes or enqueues it and returns nullptr, or returns a
/// transfer that is under way.
using Start = std::function<comm::Transport::Started(const schedule::Action&)>;

/// Executes one lane of a rank's program: action after action on the lane's queue, each after its
/// waits.
class LaneExecutor {
public:
  /// `queues` outlive this. advance() may have `messages` of one direction under way. While
  /// execute_next() waits for other lanes, `low_latency` (nullptr: none) is on.
  LaneExecutor(const schedule::RankProgram& program,
      schedule::Lane lane,
      LaneProgress& progress,
      const Queues& queues,
      Start start,
      int messages,
      comm::LowLatency* low_latency);

  /// Prepares for the first action of a step; called on every lane.
  void begin_step();

  bool done() const { return next_ == actions_.size() && under_way_.empty(); }

  bool empty() const { return actions_.empty(); }

  bool asynchronous() const { return queue().asynchronous(); }

  // For a thread that submits lanes, and may wait in each.

  /// The next action, an index into RankProgram::actions.
  int next_action() const { return actions_[next_].index; }

  /// Returns whether all actions that the next one waits for have been submitted.
  bool ready() const;
  /// Waits for other lanes, then submits the next action; throws what `start` throws, or Stopped.
  void execute_next();
  /// For one thread that drives several lanes whose queues are not asynchronous. Advances what is
  /// under way and starts the next actions if they may start, without waiting. Returns whether
  /// anything moved.
  bool advance();

  // For the watchdog.

  /// Returns whether the oldest incomplete action has begun; if not, it waits for other lanes.
  bool started() const { return queue().begun() > queue().completed(); }

  /// Returns whether the oldest incomplete action is a transfer that has begun.
  bool is_moving() const;

  /// Grows whenever the lane gets on.
  long moves() const { return static_cast<long>(queue().begun()) + queue().completed(); }

  /// Returns the current action in words, with its peer and slots, and what it waits for.
  std::string describe(const schedule::Program& program, int replica) const;
  /// Returns what the lane does not get on with although it waits neither for another lane nor for
  /// a transfer that has begun: "has not finished BW s2 m1 h0 a2 x0 g0"; empty: nothing.
  std::string unexplained(const schedule::Program& program, int replica) const;
  /// Writes the times of the lane's actions, indexed as RankProgram::actions; after the queue has
  /// finished.
  void read(std::vector<Span>& spans) const;

private:
  struct Entry {
    int index;
    const schedule::Action* action;
    schedule::LaneCounts waits;  ///< actions of each other lane
  };

  struct UnderWay {
    int number;
    comm::Transport::Started transfer;  ///< nullptr: it was over when it started

    bool done() const { return transfer == nullptr || transfer->done(); }
  };

  Queue& queue() const { return *queues_[index_of(lane_)]; }

  /// The oldest action that is not complete; nullptr when there is none.
  const schedule::Action* pending() const;

  /// The queue, on a lane that advance() drives.
  FencedQueue& fenced() const { return dynamic_cast<FencedQueue&>(queue()); }

  /// Waits for the first `count` actions of another lane, unless it is known that they are over.
  void wait_for(schedule::Lane lane, int count);
  /// Returns whether all actions that the next one waits for are complete.
  bool waits_complete();
  /// Returns whether the next action may begin while earlier ones of the lane are under way.
  bool may_join() const;
  bool start_next();
  bool finish_first();

  schedule::Lane lane_;
  LaneProgress& progress_;
  const Queues& queues_;
  Start start_;
  int messages_;
  comm::LowLatency* low_latency_;
  std::vector<Entry> actions_;
  std::size_t next_ = 0;            ///< to be submitted or started
  std::deque<UnderWay> under_way_;  ///< of advance(), in order
  bool opened_ = false;             ///< advance() has come to the next action
  schedule::LaneCounts
      waited_{};  ///< actions of each lane known to be over (execute_next(): awaited)
};

using MakeQueues = std::function<Queues(const QueueOptions&)>;

struct StepOptions {
  /// A step in which no lane moves for this long is reported and given up.
  Watchdog::Seconds stall_limit = default_stall_limit;
  /// Told from another thread: a line per lane, what it is at and waits for. Returns a better
  /// reason for Stalled.
  std::function<std::string(const std::string& report)> on_stall = [](const std::string&) {
    return "";
  };
  comm::WaitPolicy waiting{};  ///< of the communication thread
  MakeQueues make_queues = engine::make_queues;
  /// No algorithm is chosen by its time: with `fill`, two runs have the same bits.
  bool repeatable = false;
  /// Value of every byte of the arena at first; else memory is as it was found.
  std::optional<std::byte> fill{};
};

/// Executes a rank's program step after step. Where all queues are asynchronous, the calling thread
/// submits every lane in the order of the program, so that all ranks launch alike. Else the calling
/// thread has the compute lane, and a communication thread drives all others: their transfers are
/// under way together, and one wait serves them all. That thread sleeps between steps.
class Executor {
public:
  /// Program and transport outlive this; `rank` of the job.
  Executor(const schedule::Program& program,
      int rank,
      const Start& start,
      comm::Transport& transport,
      const StepOptions& options);

  /// One step: its seconds on this rank. Throws what a lane throws, or Stalled with the transfers
  /// under way.
  double step();

  /// Times of every action of the last step, indexed as RankProgram::actions.
  const std::vector<Span>& spans() const { return spans_; }

  /// Time when the last step began, by host_seconds().
  double started() const { return clock_.started(); }

  /// What a rank is at in a step; empty between steps.
  struct Standing {
    std::string lanes;        ///< a line for each: what it is at and waits for
    std::string unexplained;  ///< what the rank does not get on with, as LaneExecutor says it
  };

  /// Any thread may ask.
  Standing standing() const;

private:
  Queues make_queues(const MakeQueues& make);
  std::vector<std::unique_ptr<LaneExecutor>> make_lanes(const Start& start);
  void submit_in_order();
  void execute_on_threads();
  void communicate(const std::stop_token& end);
  void drive_lanes();
  void wait_for_communication() const;
  long moves();
  std::string describe(const LaneExecutor& lane) const;
  std::string lanes_text() const;
  void stall();

  const schedule::Program& whole_program_;
  int rank_;
  const schedule::RankProgram& program_;
  comm::Transport& transport_;
  StepOptions options_;
  LaneProgress progress_;
  StepClock clock_;
  Queues queues_;
  bool asynchronous_;  ///< all of them
  std::vector<Span> spans_;
  std::vector<LaneExecutor*>
      driven_;  ///< by the communication thread: none where a device has them all
  std::vector<std::unique_ptr<LaneExecutor>>
      lanes_;  ///< those with actions, and that of compute, the first one
  /// On while the rank can only wait for transfers: its cores are then free for waits with low
  /// latency.
  comm::LowLatency low_latency_;
  std::atomic<int> ordered_ = 0;  ///< steps that the communication thread shall execute; -1 ends it
  std::atomic<int> executed_ = 0;
  std::atomic<bool> in_step_ = false;
  std::jthread communication_;
  Watchdog watchdog_;
};
}  // namespace minitaw::engine
