#include "kernels/cuda/queue.hpp"

#include <map>
#include <memory>
#include <mutex>

namespace minitaw::kernels::detail::cuda {

namespace {

struct Queues {
  std::mutex mutex;
  std::map<cudaStream_t, std::unique_ptr<Queue>> of;
};

/// Emptied before Kokkos and the device end; destructors of static objects would come too late.
Queues& queues() {
  static Queues all;
  static const bool registered = [] {
    Kokkos::push_finalize_hook([] { all.of.clear(); });
    return true;
  }();
  (void)registered;
  return all;
}

}  // namespace

Workspace::~Workspace() {
  if (memory_) Kokkos::kokkos_free<MemorySpace>(memory_);
}

/// Kokkos keeps 128 bytes of its own before what it hands out.
void Workspace::reserve(std::size_t bytes) {
  constexpr std::size_t alignment = 256;
  if (bytes <= bytes_) return;
  if (memory_) Kokkos::kokkos_free<MemorySpace>(memory_);
  memory_ = data_ = nullptr;
  bytes_ = 0;
  std::size_t space = bytes + alignment;
  memory_ = data_ = Kokkos::kokkos_malloc<MemorySpace>("minitaw::workspace", space);
  (void)std::align(alignment, bytes, data_, space);
  bytes_ = bytes;
}

Queue::Queue(cudaStream_t queue_stream)
    : stream(queue_stream)
#ifdef MINITAW_HAVE_CUDNN
      ,
      attention(queue_stream)
#endif
{
#ifdef MINITAW_HAVE_CUBLASLT
  workspace.reserve(cublas_workspace_bytes);
#endif
}

Queue& queue_of(const ExecutionSpace& exec) {
  // a thread of ours may never have said which device it works on
  check(cudaSetDevice(exec.cuda_device()), "choosing the device");
  Queues& all = queues();
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<Queue>& queue = all.of[exec.cuda_stream()];
  if (!queue) queue = std::make_unique<Queue>(exec.cuda_stream());
  return *queue;
}

std::size_t workspace_bytes() {
  Queues& all = queues();
  const std::lock_guard lock(all.mutex);
  std::size_t bytes = 0;
  for (const auto& [stream, queue] : all.of)
    if (queue) bytes += queue->workspace.bytes();
  return bytes;
}

}  // namespace minitaw::kernels::detail::cuda
