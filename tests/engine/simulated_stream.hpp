// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <deque>
#include <exception>
#include <set>
#include <thread>
#include "engine/queue.hpp"

namespace minitaw::engine::tests {
/// Starts actions by a function.
struct FunctionStarter final : Starter {
  using Function = std::function<comm::Transport::Started(const schedule::Action&)>;

  explicit FunctionStarter(Function called) : function(std::move(called)) {}

  comm::Transport::Started start(const schedule::Action& action) override {
    return function(action);
  }

  Function function;
};

/// What the streams of a rank share: an error on one of them ends all.
struct SimulatedDevice {
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  std::exception_ptr failure;
};

/// A device's stream as a thread: work happens later and in order. A wait that the engine forgets
/// shows as a race.
class SimulatedStream final : public Queue {
public:
  SimulatedStream(int units, const StepClock& clock, std::shared_ptr<SimulatedDevice> device)
      : clock_(clock),
        device_(std::move(device)),
        spans_(units),
        thread_([this] { loop(); }) {}

  ~SimulatedStream() override {
    change([this] { device_->stopped = true; });
  }

  [[nodiscard]] bool asynchronous() const override { return true; }

  void begin_step() override {
    Queue::begin_step();
    change([this] { completed_ = 0; });
  }

  bool may_follow(const Queue& other, int unit) override {
    const auto* stream = dynamic_cast<const SimulatedStream*>(&other);
    if (stream == nullptr)
      return other.is_complete(unit);
    if (other.begun() <= unit)
      return false;
    push([=, this] {
      std::unique_lock lock(device_->mutex);
      device_->changed.wait(lock, [&] { return device_->stopped || stream->completed_ > unit; });
    });
    return true;
  }

  comm::Transport::Started begin(
      int unit, const schedule::Action& action, Starter& starter) override {
    begun_ = unit + 1;
    push([this, unit, &action, &starter] {
      spans_[unit] = {unit == 0 ? 0 : spans_[unit - 1].end, clock_.now(), 0};
      const comm::Transport::Started transfer = starter.start(action);
      comm::finish({&transfer});
      if (!kernels::on_host)
        Kokkos::fence("minitaw::engine::tests::SimulatedStream");  // launched is not complete
      spans_[unit].end = clock_.now();
      change([&] { completed_ = unit + 1; });
    });
    return nullptr;
  }

  /// Throws what work has thrown.
  [[nodiscard]] bool is_complete(int unit) const override {
    const std::scoped_lock lock(device_->mutex);
    if (device_->failure)
      std::rethrow_exception(device_->failure);
    return completed_ > unit;
  }

  [[nodiscard]] Span span(int unit) const override { return spans_[unit]; }

private:
  using Task = std::function<void()>;

  void change(const Task& what) {
    {
      const std::scoped_lock lock(device_->mutex);
      what();
    }
    device_->changed.notify_all();
  }

  void push(Task task) {
    change([&] { tasks_.push_back(std::move(task)); });
  }

  void loop() {
    std::unique_lock lock(device_->mutex);
    for (;;) {
      device_->changed.wait(lock, [this] { return device_->stopped || !tasks_.empty(); });
      if (device_->stopped)
        return;
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      try {
        task();
      } catch (...) {
        change([this] {
          device_->failure = std::current_exception();
          device_->stopped = true;
        });
      }
      lock.lock();
    }
  }

  const StepClock& clock_;
  std::shared_ptr<SimulatedDevice> device_;
  std::vector<Span> spans_;
  std::deque<Task> tasks_;
  int completed_ = 0;
  std::jthread thread_;
};

/// What is wrong with the lanes of a rank.
struct Faults {
  std::chrono::milliseconds late{
      0};                    ///< between the beginning of a step and that of its first actions
  std::set<int> left_out{};  ///< units of the compute lane that do nothing
};

class FaultyQueue final : public FencedQueue {
public:
  FaultyQueue(Faults faults, schedule::Lane lane, const QueueOptions& options)
      : FencedQueue(lane_space(lane), options.units[index_of(lane)], *options.clock),
        faults_(std::move(faults)) {}

  void reach(int unit) override {
    FencedQueue::reach(unit);
    if (unit == 0)
      std::this_thread::sleep_for(faults_.late);
  }

  comm::Transport::Started begin(
      int unit, const schedule::Action& action, Starter& starter) override {
    FunctionStarter nothing([](const schedule::Action&) { return nullptr; });
    const bool left_out = faults_.left_out.contains(unit);
    return FencedQueue::begin(unit, action, left_out ? nothing : starter);
  }

private:
  Faults faults_;
};

/// Every lane is a thread, on every back end.
inline auto faulty_queues(const Faults& faults) {
  return [faults](const QueueOptions& options) {
    Queues queues;
    for (int l = 0; l < schedule::lanes; ++l)
      queues[l] = std::make_unique<FaultyQueue>(faults, static_cast<schedule::Lane>(l), options);
    return queues;
  };
}

/// Every lane is a simulated stream.
inline Queues simulated_streams(const QueueOptions& options) {
  const auto device = std::make_shared<SimulatedDevice>();
  Queues queues;
  for (int l = 0; l < schedule::lanes; ++l)
    queues[l] = std::make_unique<SimulatedStream>(options.units[l], *options.clock, device);
  return queues;
}
}  // namespace minitaw::engine::tests
