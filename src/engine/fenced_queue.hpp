#pragma once

#include <atomic>
#include <vector>

#include "engine/queue.hpp"
#include "model/model.hpp"

namespace minitaw::engine {

/// The thread that submits does the work and waits for its kernels: right on every back end, and all that a
/// host needs.
class FencedQueue final : public Queue {
public:
  /// `units`: most units of a step. `waiting` is asked while it waits for another queue.
  FencedQueue(model::ExecutionSpace exec, int units, const Clock& clock, Check waiting);

  [[nodiscard]] bool asynchronous() const override { return false; }
  void begin_step() override;
  void open(int unit) override;
  void after(const Queue& other, int unit) override;
  void run(int unit, const Work& work) override;
  /// run() in two halves, for work that goes on while the thread does something else; the next unit may begin
  /// in between. Units end in the order in which they began.
  void begin(int unit);
  void end(int unit);
  void finish(const Check&) override {}
  [[nodiscard]] int begun() const override { return begun_.load(std::memory_order_relaxed); }
  [[nodiscard]] int completed() const override { return completed_.load(std::memory_order_acquire); }
  [[nodiscard]] Span span(int unit) const override { return spans_[unit]; }

private:
  model::ExecutionSpace exec_;
  const Clock& clock_;
  Check waiting_;
  std::vector<Span> spans_;
  std::atomic<int> begun_ = 0;
  std::atomic<int> completed_ = 0;
};

}  // namespace minitaw::engine
