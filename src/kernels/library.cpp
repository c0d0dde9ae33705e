#include "kernels/library.hpp"

#include <dlfcn.h>

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

namespace {

/// With the file that the product comes from: the vendor, where the library itself does not say.
[[maybe_unused]] std::string blas_version() {
  const std::string version = openblas_get_config ? openblas_get_config() : "of unknown version";
  Dl_info info{};
  void* const product = dlsym(RTLD_DEFAULT, "sgemm_");
  if (product == nullptr || dladdr(product, &info) == 0 || info.dli_fname == nullptr) return version;
  const std::string path = info.dli_fname;
  return version + " (" + path.substr(path.rfind('/') + 1) + ")";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::vector<std::pair<std::string, std::string>> versions;
  if (on_host) versions.emplace_back("BLAS", blas_version());
#ifdef MINITAW_HAVE_CUBLASLT
  versions.emplace_back("cublasLt", detail::cuda::cublaslt_version());
#endif
#ifdef MINITAW_HAVE_CUDNN
  versions.emplace_back("cudnn", detail::cuda::cudnn_version());
  versions.emplace_back("cudnn-frontend", detail::cuda::cudnn_frontend_version());
#endif
  return versions;
}

}  // namespace minitaw::kernels
