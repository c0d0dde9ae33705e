#include "kernels/library.hpp"

#include "kernels/detail/reserve.hpp"
#include "kernels/detail/rows.hpp"

#ifdef MINITAW_CUDA_QUEUES
#include "kernels/detail/cuda/queue.hpp"
#endif

/// Only OpenBLAS can say its version.
extern "C" __attribute__((weak)) char* openblas_get_config();

namespace minitaw::kernels {

/// Besides what the libraries need: Kokkos asks a device for memory at every launch of teams (4.6: even for
/// none) until a team has had scratch outside of its fast memory.
void prepare(const ExecutionSpace& exec) {
  auto policy = detail::RowPolicy(exec, 1, 1);
  policy.set_scratch_size(1, Kokkos::PerTeam(sizeof(double)));
  detail::reserve_scratch(policy);
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
