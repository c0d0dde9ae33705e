#include "engine/queue.hpp"

#include <vector>

#include "kernels/kernels.hpp"

namespace minitaw::engine {

FencedQueue::FencedQueue(model::ExecutionSpace exec, int units, const StepClock& clock, Check waiting)
    : exec_(std::move(exec)), clock_(clock), waiting_(std::move(waiting)), spans_(units) {}

void FencedQueue::begin_step() {
  begun_.store(0, std::memory_order_relaxed);
  completed_.store(0, std::memory_order_relaxed);
}

void FencedQueue::open(int unit) { spans_[unit].ready = clock_.now(); }

void FencedQueue::after(const Queue& other, int unit) {
  if (!other.asynchronous()) return;  // submitted is complete there
  wait_until([&] { return other.is_complete(unit); }, waiting_);
}

void FencedQueue::run(int unit, const Work& work) {
  begin(unit);
  work();
  end(unit);
}

void FencedQueue::begin(int unit) {
  begun_.store(unit + 1, std::memory_order_relaxed);
  spans_[unit].begin = clock_.now();
}

void FencedQueue::end(int unit) {
  exec_.fence("minitaw::engine::lane");
  spans_[unit].end = clock_.now();
  completed_.store(unit + 1, std::memory_order_release);
}

#if !defined(KOKKOS_ENABLE_CUDA)  // else detail/cuda/stream_queue.cpp

namespace {

/// A device that Kokkos alone knows: an instance of its space for each lane, since each has a thread of its
/// own.
const std::vector<model::ExecutionSpace>& instances() {
  static std::vector<model::ExecutionSpace> made;
  if (made.empty()) {
    made =
        Kokkos::Experimental::partition_space(model::ExecutionSpace(), std::vector<int>(schedule::lanes, 1));
    Kokkos::push_finalize_hook([] { made.clear(); });
  }
  return made;
}

}  // namespace

model::ExecutionSpace lane_space(schedule::Lane lane) {
  return kernels::on_host ? model::ExecutionSpace() : instances()[index_of(lane)];
}

void* lane_stream(schedule::Lane) { return nullptr; }

void use_device() {}

Queues make_queues(const QueueOptions& options) {
  Queues queues;
  for (int l = 0; l < schedule::lanes; ++l)
    queues[l] = std::make_unique<FencedQueue>(lane_space(static_cast<schedule::Lane>(l)), options.units[l],
                                              *options.clock, options.waiting);
  return queues;
}

#endif

}  // namespace minitaw::engine
