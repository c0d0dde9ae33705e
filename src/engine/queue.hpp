// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include <ranges>
#include "comm/wait.hpp"
#include "model/model.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::engine {
using schedule::Span;

/// Time of the host's clock in seconds, the same for all processes of the node.
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

/// Starts actions: a rank's runtime.
class Starter {
public:
  Starter& operator=(Starter&&) = delete;
  /// Computes or enqueues the action and returns nullptr, or returns a transfer that is under way.
  virtual comm::Transport::Started start(const schedule::Action& action) = 0;

protected:
  ~Starter() = default;
};

/// Runs the units of a lane in order, on a device's stream or on the thread that submits them.
/// Units are numbered from 0 within a step. One thread at a time submits; any may ask begun(),
/// is_complete() and completed().
class Queue {
public:
  Queue& operator=(Queue&&) = delete;
  virtual ~Queue() = default;

  /// Returns whether a unit may be submitted before it can run.
  virtual bool asynchronous() const = 0;

  /// Forgets the last step. Nothing of it may still be running.
  virtual void begin_step() { begun_.store(0, std::memory_order_release); }

  /// Notes that nothing but waits for others keeps `unit` from its begin.
  virtual void reach(int /*unit*/) {}

  /// Returns whether its wait for `unit` of `other` lets the next unit be submitted. A stream then
  /// begins it after that unit.
  virtual bool may_follow(const Queue& other, int unit) = 0;
  /// Submits a unit, which starts `action`. The caller advances the transfer (nullptr: there is
  /// none) and then calls end().
  virtual comm::Transport::Started begin(
      int unit, const schedule::Action& action, Starter& starter) = 0;

  /// Units may overlap; they end in the order of their begin.
  virtual void end(int /*unit*/) {}

  /// Units submitted so far in this step.
  int begun() const { return begun_.load(std::memory_order_acquire); }

  virtual bool is_complete(int unit) const = 0;

  /// Units of this step that are complete.
  int completed() const {
    const auto units = std::views::iota(0, begun());
    return *std::ranges::partition_point(units, [this](int unit) { return is_complete(unit); });
  }

  /// Event of a unit's end, for other streams of the device; nullptr: there is none.
  virtual void* event(int /*unit*/) const { return nullptr; }

  /// Returns when `unit` ran, seconds since the step began; valid once all units are complete.
  virtual Span span(int unit) const = 0;

protected:
  std::atomic<int> begun_ = 0;
};

/// Runs units on the submitting thread and waits for their kernels. Works on every back end.
class FencedQueue : public Queue {
public:
  /// `units`: most units of a step.
  FencedQueue(model::ExecutionSpace exec, int units, const StepClock& clock)
      : exec_(std::move(exec)),
        clock_(clock),
        spans_(units) {}

  bool asynchronous() const override { return false; }

  void begin_step() override {
    Queue::begin_step();
    ended_.store(0, std::memory_order_relaxed);
  }

  void reach(int unit) override { spans_[unit].ready = clock_.now(); }

  bool may_follow(const Queue& other, int unit) override { return other.is_complete(unit); }

  comm::Transport::Started begin(
      int unit, const schedule::Action& action, Starter& starter) override {
    begun_.store(unit + 1, std::memory_order_release);
    spans_[unit].begin = clock_.now();
    return starter.start(action);
  }

  void end(int unit) override {
    exec_.fence("minitaw::engine::lane");
    spans_[unit].end = clock_.now();
    ended_.store(unit + 1, std::memory_order_release);
  }

  bool is_complete(int unit) const override {
    return unit < ended_.load(std::memory_order_acquire);
  }

  Span span(int unit) const override { return spans_[unit]; }

private:
  model::ExecutionSpace exec_;
  const StepClock& clock_;
  std::vector<Span> spans_;
  std::atomic<int> ended_ = 0;
};

/// Returns the execution space of a lane's kernels and copies. It is made once per process and kept
/// until Kokkos ends, because libraries keep handles and workspaces by space. CUDA and HIP: a
/// stream for each lane, of high priority for communication. Other devices: an instance. Host: one
/// for all.
model::ExecutionSpace lane_space(schedule::Lane lane);
/// Binds the calling thread, which Kokkos has not made, to this rank's device.
void use_device();
/// The queues of a rank's lanes, by schedule::Lane.
using Queues = std::array<std::unique_ptr<Queue>, schedule::lanes>;

struct QueueOptions {
  std::array<int, schedule::lanes> units{};  ///< of each lane
  const StepClock* clock = nullptr;
  bool communication_on_stream = false;  ///< the transport enqueues instead of completing
};

/// Makes the queues of this build: streams on CUDA and HIP, those of communication only if the
/// transport is on streams; else threads.
Queues make_queues(const QueueOptions& options);
}  // namespace minitaw::engine
