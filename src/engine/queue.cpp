#include "engine/queue.hpp"

#include <vector>

#include "kernels/kernels.hpp"

#if defined(KOKKOS_ENABLE_CUDA)
#include "engine/detail/cuda/stream_queue.hpp"
#endif

namespace minitaw::engine {

FencedQueue::FencedQueue(model::ExecutionSpace exec, int units, const Clock& clock, Check waiting)
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

#if defined(KOKKOS_ENABLE_CUDA)

model::ExecutionSpace lane_space(schedule::Lane lane) { return cuda::streams().space(lane); }

void* lane_stream(schedule::Lane lane) { return cuda::streams().stream(lane); }

void use_device() { cuda::check(cudaSetDevice(Kokkos::device_id()), "cudaSetDevice"); }

#else

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
  return kernels::on_host ? model::ExecutionSpace() : instances()[static_cast<std::size_t>(lane)];
}

void* lane_stream(schedule::Lane) { return nullptr; }

void use_device() {}

#endif

Queues make_queues(const QueueOptions& options) {
  Queues queues;
#if defined(KOKKOS_ENABLE_CUDA)
  const auto start = std::make_shared<const cuda::Event>();
#endif
  for (int l = 0; l < schedule::lanes; ++l) {
    const auto lane = static_cast<schedule::Lane>(l);
#if defined(KOKKOS_ENABLE_CUDA)
    const bool compute = lane == schedule::Lane::compute;
    if (compute || options.communication_on_stream) {
      queues[l] =
          std::make_unique<cuda::StreamQueue>(cuda::streams().stream(lane), options.units[l], start, compute);
      continue;
    }
#endif
    queues[l] =
        std::make_unique<FencedQueue>(lane_space(lane), options.units[l], *options.clock, options.waiting);
  }
  return queues;
}

}  // namespace minitaw::engine
