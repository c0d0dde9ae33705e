#include "kernels/detail/cuda/workspace.hpp"

namespace minitaw::kernels::detail::cuda {

Workspace::~Workspace() {
  if (data_) Kokkos::kokkos_free<MemorySpace>(data_);
}

void Workspace::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return;
  if (data_) Kokkos::kokkos_free<MemorySpace>(data_);
  data_ = nullptr;
  bytes_ = 0;
  data_ = Kokkos::kokkos_malloc<MemorySpace>("minitaw::workspace", bytes);
  bytes_ = bytes;
}

}  // namespace minitaw::kernels::detail::cuda
