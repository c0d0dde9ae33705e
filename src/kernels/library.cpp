#include "kernels/kernels.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "base/error.hpp"
#include "kernels/detail/loops.hpp"

#ifdef MINITAW_CUDA_QUEUES
#include "kernels/cuda/queue.hpp"
#endif

/// Only OpenBLAS can say its version.
extern "C" __attribute__((weak)) char* openblas_get_config();

namespace minitaw::kernels {

namespace {

/// A functor such as kernels are made of; what it finds of itself goes out by a member that no layout moves.
struct Layout {
  static constexpr int findings = 9;
  std::int64_t* out;
  Matrix<const float> matrix;
  Vector<double> vector;
  int last;

  KOKKOS_FUNCTION void operator()(int) const { find(out); }
  KOKKOS_FUNCTION void find(std::int64_t* found) const {
    const auto* const begin = reinterpret_cast<const char*>(this);
    found[0] = reinterpret_cast<const char*>(&matrix) - begin;
    found[1] = reinterpret_cast<const char*>(&vector) - begin;
    found[2] = reinterpret_cast<const char*>(&last) - begin;
    found[3] = reinterpret_cast<std::intptr_t>(matrix.data());
    found[4] = static_cast<std::int64_t>(matrix.extent(0));
    found[5] = static_cast<std::int64_t>(matrix.extent(1));
    found[6] = reinterpret_cast<std::intptr_t>(vector.data());
    found[7] = static_cast<std::int64_t>(vector.extent(0));
    found[8] = last;
  }
};

}  // namespace

void require_one_layout() {
  const Kokkos::View<std::int64_t[Layout::findings], MemorySpace> seen("minitaw::layout");
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };  // never followed
  const Layout layout{seen.data(), Matrix<const float>(static_cast<const float*>(at(0x1000)), 3, 5),
                      Vector<double>(static_cast<double*>(at(0x2000)), 7), 11};
  Kokkos::parallel_for("minitaw::layout", Kokkos::RangePolicy<ExecutionSpace>(0, 1), layout);
  std::int64_t found[Layout::findings], expected[Layout::findings];
  Kokkos::deep_copy(
      Kokkos::View<std::int64_t[Layout::findings], Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(found), seen);
  layout.find(expected);
  if (!std::equal(found, found + Layout::findings, expected))
    throw InputError("kernels of this build find their arguments in other places than the host puts them, so "
                     "that all results would "
                     "be wrong: build Kokkos and miniTaw anew with "
                     "-DMDSPAN_IMPL_USE_ATTRIBUTE_NO_UNIQUE_ADDRESS=1 in CMAKE_CXX_FLAGS "
                     "(docs/gpu.md)");
}

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

void choose_by_time([[maybe_unused]] const ExecutionSpace& exec, [[maybe_unused]] bool on) {
#ifdef MINITAW_HAVE_CUBLASLT
  detail::cuda::queue_of(exec).products.choose_by_time(on);
#endif
}

std::vector<std::string> choices([[maybe_unused]] const ExecutionSpace& exec) {
#ifdef MINITAW_HAVE_CUBLASLT
  return detail::cuda::queue_of(exec).products.choices();
#else
  return {};
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
