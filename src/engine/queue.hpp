// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include <ranges>
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

/// Starts actions: a rank's runtime.
class Starter {
public:
  Starter& operator=(Starter&&) = delete;
  /// Computes or enqueues the action and returns nullptr, or returns a transfer that is under way.
  virtual comm::Transport::Started start(const schedule::Action& action) = 0;

protected:
  ~Starter() = default;
};

/// Where the units of a lane run, in order: on a device's stream, or on the thread that submits
/// them. Units are numbered from 0 within a step. One thread at a time submits; any may ask
/// begun(), is_complete() and completed().
class Queue {
public:
  Queue& operator=(Queue&&) = delete;
  virtual ~Queue() = default;

  /// Returns whether a unit may be submitted before it can run.
  virtual bool asynchronous() const = 0;

  /// Forgets the last step. Nothing of it may still be running.
  virtual void begin_step() { begun_.store(0, std::memory_order_release); }

  /// The lane has come to `unit`; from here on it waits for others.
  virtual void reach(int /*unit*/) {}

  /// Returns whether the next unit may be submitted, as far as `unit` of `other` matters. A stream
  /// then begins it after that unit.
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

  /// Handle of a unit's end, for which streams of the same device can wait; nullptr: they cannot.
  virtual void* event(int /*unit*/) const { return nullptr; }

  /// Returns when `unit` ran, seconds since the step began; valid once all units are complete.
  virtual Span span(int unit) const = 0;

protected:
  std::atomic<int> begun_ = 0;
};

/// The thread that submits does the work and waits for its kernels: right on every back end.
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
  bool communication_on_stream = false;  ///< the transport enqueues instead of completing
};

/// The queues of this build: streams on CUDA (of communication only if the transport does), else
/// threads.
Queues make_queues(const QueueOptions& options);
}  // namespace minitaw::engine
