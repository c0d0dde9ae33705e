#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/mpi/wait.hpp"
#include "comm/transport.hpp"
#include "engine/queue.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// Thrown out of a wait when another lane of the rank has failed.
struct Stopped : std::exception {};

/// How far each lane of a rank has come in the current step: actions handed to its queue. Lanes are in order,
/// so a count is all that a wait needs; where the queue is a thread, what was handed over is also complete.
/// Waiting sleeps in the kernel: on a crowded node it takes no time from the lane that computes.
class Progress {
public:
  void begin_step() {
    for (auto& lane : done_) lane.store(0, std::memory_order_relaxed);
  }

  /// `count` actions of the lane are submitted.
  void submitted(schedule::Lane lane, int count) {
    auto& done = done_[static_cast<std::size_t>(lane)];
    done.store(count);
    if (failed_.load()) done.store(stopped);  // fail() may have come between: its waiters must not miss it
    done.notify_all();
  }

  /// Returns once `count` actions of the lane are submitted; throws Stopped if a lane fails meanwhile.
  void wait(schedule::Lane lane, int count) const {
    const auto& done = done_[static_cast<std::size_t>(lane)];
    for (int seen = done.load(std::memory_order_acquire); seen < count;
         seen = done.load(std::memory_order_acquire))
      done.wait(seen, std::memory_order_acquire);
    check();
  }

  [[nodiscard]] int count(schedule::Lane lane) const {
    return done_[static_cast<std::size_t>(lane)].load(std::memory_order_acquire);
  }

  /// Wakes every waiter with Stopped; the first reason is kept.
  void fail(std::exception_ptr reason) {
    {
      const std::scoped_lock lock(mutex_);
      if (!reason_) reason_ = std::move(reason);
    }
    failed_.store(true);
    for (auto& lane : done_) {
      lane.store(stopped);
      lane.notify_all();
    }
  }

  /// Throws Stopped once a lane has failed.
  void check() const {
    if (failed_.load(std::memory_order_acquire)) throw Stopped();
  }

  void rethrow_if_failed() const {
    if (!failed_.load(std::memory_order_acquire)) return;
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
  void execute_next();

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
  Counts waited_{};                 ///< actions of each lane known to be over (execute_next(): awaited)
};

/// The thread that drives all communication lanes of a rank whose queues are not a device's, one step each
/// time it is told to. It sleeps in between. One thread for all lanes: their transfers are under way at the
/// same time, and one wait serves them all.
class CommunicationThread {
public:
  CommunicationThread(std::vector<Lane*> lanes, Progress& progress, const comm::mpi::WaitPolicy& policy);
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;
  ~CommunicationThread();

  void begin_step();
  /// Returns when all lanes have finished the step (or one has failed).
  void wait_until_idle() const;

  /// Whether the rank can do nothing but wait for what is moved, so that its cores are free for waits that
  /// answer at once. Called by the thread that computes.
  void low_latency(bool on) { low_latency_.set(on); }
  /// Something that a lane may wait for has happened.
  void wake() { low_latency_.wake(); }

private:
  void loop();
  void drive();

  std::vector<Lane*> lanes_;
  Progress& progress_;
  comm::mpi::WaitPolicy policy_;
  comm::mpi::LowLatency low_latency_;
  std::atomic<int> ordered_ = 0;  ///< steps ordered; -1 ends the thread
  std::atomic<int> executed_ = 0;
  std::thread thread_;
};

}  // namespace minitaw::engine
