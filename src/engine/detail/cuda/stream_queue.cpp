#include "engine/detail/cuda/stream_queue.hpp"

#include "base/error.hpp"
#include "engine/pause.hpp"

namespace minitaw::engine::cuda {

StreamQueue::StreamQueue(cudaStream_t stream, int units, std::shared_ptr<const Event> start,
                         bool records_start)
    : stream_(stream), start_(std::move(start)), records_start_(records_start), begins_(units), ends_(units) {
}

void StreamQueue::begin_step() {
  {
    // together: completed() in between would count the events of the last step
    const std::scoped_lock lock(mutex_);
    begun_.store(0, std::memory_order_release);
    completed_ = 0;
  }
  if (records_start_) start_->record(stream_);
}

void StreamQueue::after(const Queue& other, int unit) {
  void* const event = other.event(unit);
  if (event == nullptr) {
    if (!other.is_complete(unit)) throw LogicError("engine: a stream cannot wait for a lane of the host");
    return;
  }
  check(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(event), 0), "cudaStreamWaitEvent");
}

void StreamQueue::run(int unit, const Work& work) {
  begins_[unit].record(stream_);
  work();
  check(cudaPeekAtLastError(), "a kernel launch");
  ends_[unit].record(stream_);
  begun_.store(unit + 1, std::memory_order_release);
}

void StreamQueue::finish(const Check& throw_if_stopped) {
  const int units = begun();
  if (units > 0) wait_until([&] { return ends_[units - 1].is_complete(); }, throw_if_stopped);
}

int StreamQueue::completed() const {
  const std::scoped_lock lock(mutex_);
  for (const int units = begun(); completed_ < units && ends_[completed_].is_complete();) ++completed_;
  return completed_;
}

Span StreamQueue::span(int unit) const {
  const double ready = unit == 0 ? 0 : ends_[unit - 1].since(*start_);
  return {ready, begins_[unit].since(*start_), ends_[unit].since(*start_)};
}

}  // namespace minitaw::engine::cuda
