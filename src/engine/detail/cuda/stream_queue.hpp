#pragma once

#include <Kokkos_Core.hpp>
#include <array>
#include <atomic>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/queue.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine::cuda {

/// Every return code of the CUDA runtime passes through here; a failure throws with the call and CUDA's
/// words.
inline void check(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();
  throw std::runtime_error(
      fmt::format("{}: {} ({})", call, cudaGetErrorString(code), cudaGetErrorName(code)));
}

/// A timed event; owns the handle.
class Event {
public:
  Event() { check(cudaEventCreate(&handle_), "cudaEventCreate"); }
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event() {
    if (handle_ != nullptr) (void)cudaEventDestroy(handle_);
  }

  void record(cudaStream_t stream) const { check(cudaEventRecord(handle_, stream), "cudaEventRecord"); }
  [[nodiscard]] bool is_complete() const {
    const cudaError_t code = cudaEventQuery(handle_);
    if (code == cudaErrorNotReady) return false;
    check(code, "a kernel or copy of this step");
    return true;
  }
  /// Seconds from `start` to this event; both complete. Resolution about half a microsecond.
  [[nodiscard]] double since(const Event& start) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start.handle_, handle_), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }
  [[nodiscard]] cudaEvent_t handle() const { return handle_; }

private:
  cudaEvent_t handle_ = nullptr;
};

/// One stream per lane. Communication goes first where both have work, because its kernels are short and
/// others wait for them.
class Streams {
public:
  Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams();

  [[nodiscard]] cudaStream_t stream(schedule::Lane lane) const {
    return streams_[static_cast<std::size_t>(lane)];
  }
  [[nodiscard]] Kokkos::Cuda space(schedule::Lane lane) const {
    return *spaces_[static_cast<std::size_t>(lane)];
  }

private:
  std::array<cudaStream_t, schedule::lanes> streams_{};
  std::array<std::optional<Kokkos::Cuda>, schedule::lanes> spaces_;
};

/// Those of this process; made by the first call, gone when Kokkos is finalized.
[[nodiscard]] const Streams& streams();

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
