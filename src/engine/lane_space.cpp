#include "engine/lane_space.hpp"

#include <vector>

#include "engine/fenced_queue.hpp"
#include "kernels/kernels.hpp"

#if defined(KOKKOS_ENABLE_CUDA)
#include "engine/detail/cuda/stream_queue.hpp"
#include "engine/detail/cuda/streams.hpp"
#endif

namespace minitaw::engine {

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
