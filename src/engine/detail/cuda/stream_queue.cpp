#include "engine/detail/cuda/stream_queue.hpp"

#include <memory>

#include "base/error.hpp"
#include "engine/queue.hpp"

namespace minitaw::engine::cuda {

namespace {

std::unique_ptr<Streams>& instance() {
  static std::unique_ptr<Streams> made;
  return made;
}

}  // namespace

Streams::Streams() {
  int lowest = 0, highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  for (int lane = 0; lane < schedule::lanes; ++lane) {
    const bool compute = static_cast<schedule::Lane>(lane) == schedule::Lane::compute;
    check(cudaStreamCreateWithPriority(&streams_[lane], cudaStreamNonBlocking, compute ? lowest : highest),
          "cudaStreamCreateWithPriority");
    spaces_[lane].emplace(streams_[lane]);
  }
  // Kokkos clears locks of each space on the default stream, which these streams do not wait for.
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Streams::~Streams() {
  for (int lane = 0; lane < schedule::lanes; ++lane) {
    spaces_[lane].reset();  // before the stream that it wraps
    (void)cudaStreamDestroy(streams_[lane]);
  }
}

const Streams& streams() {
  if (!instance()) {
    instance() = std::make_unique<Streams>();
    Kokkos::push_finalize_hook([] { instance().reset(); });
  }
  return *instance();
}

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
