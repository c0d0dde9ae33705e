#pragma once

#include <utility>

#include "engine/detail/cuda/check.hpp"

namespace minitaw::engine::cuda {

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

}  // namespace minitaw::engine::cuda
