#include "kernels/library.hpp"

/// Only OpenBLAS can say its version.
extern "C" __attribute__((weak)) char* openblas_get_config();

namespace minitaw::kernels {

void prepare(const ExecutionSpace&) {}

std::size_t library_bytes() { return 0; }

std::vector<std::pair<std::string, std::string>> library_versions() {
  if (openblas_get_config == nullptr) return {{"BLAS", "unknown"}};
  return {{"BLAS", openblas_get_config()}};
}

}  // namespace minitaw::kernels
