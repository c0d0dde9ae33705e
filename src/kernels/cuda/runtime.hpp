#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

/// The CUDA runtime. No Kokkos here: files without it use it, too.
namespace minitaw::kernels::detail::cuda {

/// Throws std::runtime_error "what: the library's own words" unless `code` is success.
inline void check(cudaError_t code, const std::string& what) {
  if (code != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(code));
}

}  // namespace minitaw::kernels::detail::cuda
