#pragma once

#include <cstddef>

namespace minitaw::kernels::detail::cuda {

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
