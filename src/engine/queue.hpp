// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include "comm/wait.hpp"
#include "model/model.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::engine {
using schedule::Span;

/// The host's clock, in seconds since some moment that all processes of the node share.
inline double host_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The host's clock, from the beginning of a step; shared by the lanes of a rank.
class StepClock {
public:
  void begin_step() { start_ = host_seconds(); }

  double now() const { return host_seconds() - start_; }

  double started() const { return start_; }

private:
  double start_ = 0;
};

/// Waits for a device: returns when `done()` is true. It asks all the time for 100 microseconds, as
/// long as short kernels take, then sleeps between, at most 50 microseconds. `check` may throw to
/// end the wait.
template <class Done, class Check>
void wait_until(const Done& done, const Check& check) {
  using namespace std::chrono_literals;
  comm::Backoff pause(
      {.spins = 0, .yields = 0, .eager = 100us, .shortest_sleep = 5us, .longest_sleep = 50us});
  for (; !done(); pause.once())
    check();
}

/// Executes the units of a lane in order: on a device's stream, or on the thread that submits them.
/// Units are numbered from 0 within a step. One thread at a time submits; any may ask begun() and
/// completed().
class Queue {
public:
  using Work = std::function<void()>;
  /// Asked during long waits; throws to end them.
  using Check = std::function<void()>;

  Queue& operator=(Queue&&) = delete;
  virtual ~Queue() = default;

  /// Returns whether run() returns before the work is complete.
  virtual bool asynchronous() const = 0;
  /// Forgets the last step. Nothing of it may still be running.
  virtual void begin_step() = 0;
  /// The lane has come to `unit`; from here on it waits for others.
  virtual void open(int unit) = 0;
  /// Makes the units submitted from now on start after `unit` of `other`, which has been submitted.
  virtual void after(const Queue& other, int unit) = 0;
  virtual void run(int unit, const Work& work) = 0;
  /// Returns when everything submitted is complete.
  virtual void finish(const Check& check) = 0;
  /// Units submitted so far in this step (asynchronous) or begun.
  virtual int begun() const = 0;
  /// Units of this step that are complete.
  virtual int completed() const = 0;

  bool is_complete(int unit) const { return completed() > unit; }

  /// Handle that a queue of the same device can wait for; nullptr if run() returned with a complete
  /// unit.
  virtual void* event(int) const { return nullptr; }

  /// Returns when `unit` ran, seconds since the step began; valid after finish().
  virtual Span span(int unit) const = 0;
};

/// The thread that submits does the work and waits for its kernels: right on every back end.
class FencedQueue : public Queue {
public:
  /// `units`: most units of a step. `waiting` is asked while it waits for another queue.
  FencedQueue(model::ExecutionSpace exec, int units, const StepClock& clock, Check waiting)
      : exec_(std::move(exec)),
        clock_(clock),
        waiting_(std::move(waiting)),
        spans_(units) {}

  bool asynchronous() const override { return false; }

  void begin_step() override {
    begun_.store(0, std::memory_order_relaxed);
    completed_.store(0, std::memory_order_relaxed);
  }

  void open(int unit) override { spans_[unit].ready = clock_.now(); }

  void after(const Queue& other, int unit) override {
    if (!other.asynchronous())
      return;  // submitted is complete there
    wait_until([&] { return other.is_complete(unit); }, waiting_);
  }

  void run(int unit, const Work& work) override {
    begin(unit);
    work();
    end(unit);
  }

  /// run() in two halves, for work beside the thread; units may overlap, and end in the order of
  /// their begin.
  void begin(int unit) {
    begun_.store(unit + 1, std::memory_order_relaxed);
    spans_[unit].begin = clock_.now();
  }

  void end(int unit) {
    exec_.fence("minitaw::engine::lane");
    spans_[unit].end = clock_.now();
    completed_.store(unit + 1, std::memory_order_release);
  }

  void finish(const Check&) override {}

  int begun() const override { return begun_.load(std::memory_order_relaxed); }

  int completed() const override { return completed_.load(std::memory_order_acquire); }

  Span span(int unit) const override { return spans_[unit]; }

private:
  model::ExecutionSpace exec_;
  const StepClock& clock_;
  Check waiting_;
  std::vector<Span> spans_;
  std::atomic<int> begun_ = 0, completed_ = 0;
};

/// Returns the execution space of a lane's kernels and copies. Made once per process and kept until
/// Kokkos ends, since libraries keep handles and workspaces by space. On CUDA each lane has a
/// stream, with high priority for communication; on other devices an instance of the space; on a
/// host all lanes share one.
model::ExecutionSpace lane_space(schedule::Lane lane);
/// Prepares a thread that Kokkos has not made for work on this rank's device.
void use_device();
/// The queues of a rank's lanes, by schedule::Lane.
using Queues = std::array<std::unique_ptr<Queue>, schedule::lanes>;

struct QueueOptions {
  std::array<int, schedule::lanes> units{};  ///< of each lane
  const StepClock* clock = nullptr;
  Queue::Check waiting;                  ///< ends a wait of one lane for another
  bool communication_on_stream = false;  ///< the transport enqueues instead of completing
};

/// The queues of this build: streams on CUDA (of communication only if the transport does), else
/// threads.
Queues make_queues(const QueueOptions& options);
}  // namespace minitaw::engine
