#pragma once

#include <cuda_runtime_api.h>

#include <string>

/// Return codes of the CUDA runtime become exceptions. No Kokkos here: files without it use it, too.
namespace minitaw::kernels::detail::cuda {

/// Throws std::runtime_error "what: the library's own words" unless `code` is success.
void check(cudaError_t code, const std::string& what);

}  // namespace minitaw::kernels::detail::cuda
