#include "engine/detail/cuda/streams.hpp"

#include <memory>

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

}  // namespace minitaw::engine::cuda
