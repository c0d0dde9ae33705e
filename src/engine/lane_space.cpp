#include "engine/lane_space.hpp"

#include "engine/fenced_queue.hpp"

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

model::ExecutionSpace lane_space(schedule::Lane) { return {}; }

void* lane_stream(schedule::Lane) { return nullptr; }

void use_device() {}

#endif

Queues make_queues(const QueueOptions& options) {
  Queues queues;
  const auto fenced = [&](schedule::Lane lane) {
    return std::make_unique<FencedQueue>(lane_space(lane), options.units[static_cast<std::size_t>(lane)],
                                         *options.clock, options.waiting);
  };
  for (int l = 0; l < schedule::lanes; ++l) queues[l] = fenced(static_cast<schedule::Lane>(l));
#if defined(KOKKOS_ENABLE_CUDA)
  const auto start = std::make_shared<const cuda::Event>();
  for (int l = 0; l < schedule::lanes; ++l) {
    const auto lane = static_cast<schedule::Lane>(l);
    const bool compute = lane == schedule::Lane::compute;
    if (compute || options.communication_on_stream)
      queues[l] =
          std::make_unique<cuda::StreamQueue>(cuda::streams().stream(lane), options.units[l], start, compute);
  }
#endif
  return queues;
}

}  // namespace minitaw::engine
