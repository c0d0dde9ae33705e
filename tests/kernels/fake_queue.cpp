// SPDX-License-Identifier: BSD-3-Clause
// The queue of a device for the stand-in of cuDNN: a workspace in host memory.
#include "kernels/vendor/queue.hpp"

namespace minitaw::kernels::detail::vendor {
struct Products::Library {};

Products::Products(Stream /*stream*/) {}

Products::~Products() = default;

void Workspace::reserve(std::size_t size) {
  if (size <= bytes_)
    return;
  memory_ = decltype(memory_)("workspace", size);
  data_ = memory_.data();
  bytes_ = size;
}

Queue::Queue(Stream stream) : products(stream), attention(stream) {}

Queue& queue_of(const ExecutionSpace&) {
  static std::unique_ptr<Queue> only;
  if (!only) {
    only = std::make_unique<Queue>(nullptr);
    Kokkos::push_finalize_hook([] { only.reset(); });
  }
  return *only;
}
}  // namespace minitaw::kernels::detail::vendor
