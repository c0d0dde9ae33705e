#include "kernels/detail/cuda/queue.hpp"

#include <map>
#include <memory>
#include <mutex>

#include "kernels/detail/cuda/check.hpp"

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
