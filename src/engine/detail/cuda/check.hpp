#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

namespace minitaw::engine::cuda {

/// Every return code of the CUDA runtime passes through here; a failure throws with the call and CUDA's
/// words.
inline void check(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();
  throw std::runtime_error(
      fmt::format("{}: {} ({})", call, cudaGetErrorString(code), cudaGetErrorName(code)));
}

}  // namespace minitaw::engine::cuda
