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

/// A device's stream as a thread: work happens later and in order. A wait that the engine forgets
/// shows as a race.
class SimulatedStream final : public Queue {
public:
  /// `stop`, shared by the streams of a rank, ends their waits for each other.
  SimulatedStream(int units, const StepClock& clock, std::shared_ptr<std::atomic<bool>> stop)
      : clock_(clock),
        stop_(std::move(stop)),
        spans_(units),
        events_(units) {
    for (int u = 0; u < units; ++u)
      events_[u] = {this, u};
    thread_ = std::thread([this] { loop(); });
  }

  ~SimulatedStream() override {
    stop_->store(true);
    thread_.join();
  }

  [[nodiscard]] bool asynchronous() const override { return true; }

  void begin_step() override {
    Queue::begin_step();
    locked([this] { completed_ = 0; });
  }

  bool may_follow(const Queue& other, int unit) override {
    const auto* event = static_cast<const Event*>(other.event(unit));
    if (event == nullptr)
      return other.is_complete(unit);
    if (other.begun() <= unit)
      return false;
    push([event] { event->stream->wait_for(event->unit); });
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
      const std::scoped_lock lock(mutex_);
      completed_ = unit + 1;
      changed_.notify_all();
    });
    return nullptr;
  }

  /// Throws what the work of a unit has thrown.
  [[nodiscard]] bool is_complete(int unit) const override {
    return locked([=, this] {
      if (failure_)
        std::rethrow_exception(failure_);
      return completed_ > unit;
    });
  }

  [[nodiscard]] void* event(int unit) const override { return const_cast<Event*>(&events_[unit]); }

  [[nodiscard]] Span span(int unit) const override { return spans_[unit]; }

private:
  struct Event {
    SimulatedStream* stream = nullptr;
    int unit = 0;
  };

  auto locked(const auto& work) const -> decltype(work()) {
    const std::scoped_lock lock(mutex_);
    return work();
  }

  void wait_for(int unit) {
    std::unique_lock lock(mutex_);
    while (completed_ <= unit && !stop_->load())
      changed_.wait_for(lock, std::chrono::milliseconds(5));
  }

  void push(std::function<void()> task) {
    locked([&] { tasks_.push_back(std::move(task)); });
    changed_.notify_all();
  }

  void loop() {
    for (;;) {
      std::unique_lock lock(mutex_);
      while (tasks_.empty() && !stop_->load())
        changed_.wait_for(lock, std::chrono::milliseconds(5));
      if (tasks_.empty() || stop_->load())
        return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      try {
        task();
      } catch (...) {
        const std::scoped_lock again(mutex_);
        failure_ = std::current_exception();
        stop_->store(true);
      }
    }
  }

  const StepClock& clock_;
  std::shared_ptr<std::atomic<bool>> stop_;
  std::vector<Span> spans_;
  std::vector<Event> events_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  int completed_ = 0;
  std::exception_ptr failure_;
  std::thread thread_;
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
  const auto stop = std::make_shared<std::atomic<bool>>(false);
  Queues queues;
  for (int l = 0; l < schedule::lanes; ++l)
    queues[l] = std::make_unique<SimulatedStream>(options.units[l], *options.clock, stop);
  return queues;
}
}  // namespace minitaw::engine::tests
