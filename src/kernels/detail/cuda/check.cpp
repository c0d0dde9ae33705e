#include "kernels/detail/cuda/check.hpp"

#include <stdexcept>

namespace minitaw::kernels::detail::cuda {

void check(cudaError_t code, const std::string& what) {
  if (code != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(code));
}

}  // namespace minitaw::kernels::detail::cuda
