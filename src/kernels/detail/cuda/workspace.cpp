#include "kernels/detail/cuda/workspace.hpp"

#include <memory>

#include "kernels/types.hpp"

namespace minitaw::kernels::detail::cuda {

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

}  // namespace minitaw::kernels::detail::cuda
