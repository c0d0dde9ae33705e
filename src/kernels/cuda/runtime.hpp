#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>

/// The CUDA runtime. No Kokkos here: files without it use it, too.
namespace minitaw::kernels::detail::cuda {

/// Throws std::runtime_error "what: the library's own words" unless `code` is success.
inline void check(cudaError_t code, const std::string& what) {
  if (code != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(code));
}

/// Scratch in device memory that the libraries of one queue use in turn.
class Workspace {
public:
  Workspace() = default;
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// At least `bytes`, whose old contents are lost. It waits for the device if it must grow, so: never in a
  /// step.
  void reserve(std::size_t bytes);
  /// Aligned to 256 bytes, as cuBLASLt asks.
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
  void* memory_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace minitaw::kernels::detail::cuda
