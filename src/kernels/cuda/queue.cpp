// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/queue.hpp"
#include <map>
#include <memory>
#include <mutex>

namespace minitaw::kernels::detail::cuda {
namespace {
/// Emptied before Kokkos and the device end; destructors of static objects would come too late.
struct Queues {
  Queues() {
    Kokkos::push_finalize_hook([this] { of.clear(); });
  }

  std::mutex mutex;
  std::map<cudaStream_t, std::unique_ptr<Queue>> of;
};

Queues& queues() {
  static Queues all;
  return all;
}
}  // namespace

/// Kokkos keeps 128 bytes of its own before what it hands out.
void Workspace::reserve(std::size_t size) {
  constexpr std::size_t alignment = 256;
  if (size <= bytes_)
    return;
  std::size_t space = size + alignment;
  memory_ = {};  // before the next one
  memory_ = decltype(memory_)(
      Kokkos::view_alloc(std::string(library_label), Kokkos::WithoutInitializing), space);
  data_ = memory_.data();
  (void)std::align(alignment, size, data_, space);
  bytes_ = size;
}

Queue::Queue(cudaStream_t queue_stream)
    : stream(queue_stream)
#ifdef MINITAW_HAVE_CUDNN
      ,
      attention(queue_stream)
#endif
{
  workspace.reserve(cublas_workspace_bytes);
}

Queue& queue_of(const ExecutionSpace& exec) {
  // a thread of ours may never have said which device it works on
  check(cudaSetDevice(exec.cuda_device()), "choosing the device");
  Queues& all = queues();
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<Queue>& queue = all.of[exec.cuda_stream()];
  if (!queue)
    queue = std::make_unique<Queue>(exec.cuda_stream());
  return *queue;
}

std::size_t workspace_bytes() {
  Queues& all = queues();
  const std::lock_guard lock(all.mutex);
  std::size_t bytes = 0;
  for (const auto& [stream, queue] : all.of)
    if (queue)
      bytes += queue->workspace.bytes();
  return bytes;
}
}  // namespace minitaw::kernels::detail::cuda
