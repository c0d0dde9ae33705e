// SPDX-License-Identifier: BSD-3-Clause

#include <dlfcn.h>
#include "base/error.hpp"
#include "base/vendor.hpp"
#include "kernels/detail/loops.hpp"
#ifdef MINITAW_VENDOR
#include "kernels/vendor/queue.hpp"
#endif

/// Only OpenBLAS can say its version.
extern "C" __attribute__((weak)) char* openblas_get_config();

namespace minitaw::kernels {
namespace {
/// A functor such as kernels are made of; what it finds of itself goes out by a member that no
/// layout moves.
struct Layout {
  int* good;
  Matrix<const float> matrix{
      reinterpret_cast<const float*>(good), 3, 5};  // its values are not read
  Vector<double> vector{reinterpret_cast<double*>(good), 7};
  int last = 11;

  KOKKOS_FUNCTION void operator()(int) const {
    const void* const place = good;
    *good = matrix.data() == place && matrix.extent(0) == 3 && matrix.extent(1) == 5 &&
            vector.data() == place && vector.extent(0) == 7 && last == 11;
  }
};

/// Version, and the file that the product comes from, which tells the vendor if the library does
/// not.
[[maybe_unused]] std::string blas_version() {
  const std::string version = openblas_get_config ? openblas_get_config() : "of unknown version";
  Dl_info info{};
  void* const product = dlsym(RTLD_DEFAULT, "sgemm_");
  if (product == nullptr || dladdr(product, &info) == 0 || info.dli_fname == nullptr)
    return version;
  const std::string path = info.dli_fname;
  return version + " (" + path.substr(path.rfind('/') + 1) + ")";
}
}  // namespace

void require_one_layout() {
  const Kokkos::View<int, MemorySpace> seen("minitaw::layout");
  Kokkos::parallel_for(
      "minitaw::layout", Kokkos::RangePolicy<ExecutionSpace>(0, 1), Layout{seen.data()});
  int good = 0;
  Kokkos::deep_copy(good, seen);
  if (!good)
    throw InputError(
        "kernels of this build find their arguments in other places than the host puts them, so "
        "that all results would be wrong: build Kokkos and miniTaw anew with "
        "-DMDSPAN_IMPL_USE_ATTRIBUTE_NO_UNIQUE_ADDRESS=1 in CMAKE_CXX_FLAGS (docs/gpu.md)");
}

/// Kokkos asks a device for memory at every launch of teams (4.6: even for none) until a team has
/// had slow scratch.
void prepare(const ExecutionSpace& exec) {
  auto policy = detail::RowPolicy(exec, 1, 1);
  policy.set_scratch_size(1, Kokkos::PerTeam(sizeof(double)));
  detail::reserve_scratch(policy);
#ifdef MINITAW_VENDOR
  (void)detail::vendor::queue_of(exec);
#endif
}

#ifdef MINITAW_VENDOR
void choose_by_time(const ExecutionSpace& exec, bool on) {
  detail::vendor::queue_of(exec).products.choose_by_time(on);
}

std::vector<std::string> choices(const ExecutionSpace& exec) {
  return detail::vendor::queue_of(exec).products.choices();
}

std::size_t library_bytes() {
  return detail::vendor::workspace_bytes();
}
#else
void choose_by_time(const ExecutionSpace& /*exec*/, bool /*on*/) {}

std::vector<std::string> choices(const ExecutionSpace& /*exec*/) {
  return {};
}

std::size_t library_bytes() {
  return 0;
}
#endif

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::vector<std::pair<std::string, std::string>> versions;
  if (on_host)
    versions.emplace_back("BLAS", blas_version());
#ifdef MINITAW_VENDOR
  versions.push_back(detail::vendor::products_version());
#endif
#ifdef MINITAW_HAVE_CUDNN
  versions.emplace_back("cudnn", detail::vendor::cudnn_version());
  versions.emplace_back("cudnn-frontend", detail::vendor::cudnn_frontend_version());
#endif
  return versions;
}
}  // namespace minitaw::kernels
