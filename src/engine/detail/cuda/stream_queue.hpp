#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/detail/cuda/event.hpp"
#include "engine/queue.hpp"

namespace minitaw::engine::cuda {

/// A lane as a CUDA stream: run() enqueues, waits are events, and nothing blocks the host before finish().
class StreamQueue final : public Queue {
public:
  /// `start` marks the beginning of a step; the queue with `records_start` records it, on its own stream.
  StreamQueue(cudaStream_t stream, int units, std::shared_ptr<const Event> start, bool records_start);

  [[nodiscard]] bool asynchronous() const override { return true; }
  void begin_step() override;
  void open(int) override {}
  void after(const Queue& other, int unit) override;
  void run(int unit, const Work& work) override;
  void finish(const Check& check) override;
  [[nodiscard]] int begun() const override { return begun_.load(std::memory_order_acquire); }
  [[nodiscard]] int completed() const override;
  [[nodiscard]] void* event(int unit) const override { return ends_[unit].handle(); }
  [[nodiscard]] Span span(int unit) const override;

private:
  cudaStream_t stream_;
  std::shared_ptr<const Event> start_;
  bool records_start_;
  std::vector<Event> begins_, ends_;
  std::atomic<int> begun_ = 0;
  mutable std::mutex mutex_;  ///< of completed_
  mutable int completed_ = 0;
};

}  // namespace minitaw::engine::cuda
