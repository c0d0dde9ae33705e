#include "kernels/library.hpp"

#ifdef MINITAW_CUDA_QUEUES
#include "kernels/detail/cuda/queue.hpp"
#endif

/// Only OpenBLAS can say its version.
extern "C" __attribute__((weak)) char* openblas_get_config();

namespace minitaw::kernels {

void prepare([[maybe_unused]] const ExecutionSpace& exec) {
#ifdef MINITAW_CUDA_QUEUES
  (void)detail::cuda::queue_of(exec);
#endif
}

std::size_t library_bytes() {
#ifdef MINITAW_CUDA_QUEUES
  return detail::cuda::workspace_bytes();
#else
  return 0;
#endif
}

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::vector<std::pair<std::string, std::string>> versions;
  if (on_host) versions.emplace_back("BLAS", openblas_get_config ? openblas_get_config() : "unknown");
#ifdef MINITAW_HAVE_CUBLASLT
  versions.emplace_back("cublasLt", detail::cuda::cublaslt_version());
#endif
#ifdef MINITAW_HAVE_CUDNN
  versions.emplace_back("cudnn", detail::cuda::cudnn_version());
#endif
  return versions;
}

}  // namespace minitaw::kernels
