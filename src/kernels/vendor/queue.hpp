// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "kernels/kernels.hpp"
#include "kernels/vendor/libraries.hpp"

namespace minitaw::kernels::detail::vendor {
/// Scratch in device memory that the libraries of one queue use in turn.
class Workspace {
public:
  /// At least `size`; the old contents are lost. It may wait for the device: never in a step.
  void reserve(std::size_t size);

  /// Aligned to 256 bytes, as the libraries ask.
  void* data() const { return data_; }

  std::size_t bytes() const { return bytes_; }

private:
  Kokkos::View<std::byte*, MemorySpace> memory_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Handles and workspaces of the vendor's libraries for one queue, which one thread uses at a time.
struct Queue {
  explicit Queue(Stream stream);

  Workspace workspace;
  Products products;
#ifdef MINITAW_HAVE_CUDNN
  CudnnAttention attention;
#endif
};

/// Returns the object of `exec`, made by the first call, alive until Kokkos ends; makes its device
/// the thread's.
Queue& queue_of(const ExecutionSpace& exec);
std::size_t workspace_bytes();
}  // namespace minitaw::kernels::detail::vendor
