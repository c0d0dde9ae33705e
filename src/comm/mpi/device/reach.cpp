#include "comm/mpi/device/reach.hpp"

#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <cstdlib>

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include "base/error.hpp"
#include "comm/mpi/check.hpp"

namespace minitaw::comm::mpi {
namespace {

constexpr const char* variable = "MINITAW_MPI_DIRECT";

#if defined(MINITAW_MPI_GPU_QUERY)
[[maybe_unused]] bool asked(int kind) {
  int supported = 0;
  return MPIX_GPU_query_support(kind, &supported) == MPI_SUCCESS && supported != 0;
}
#endif

}  // namespace

std::string_view name_of(Reach reach) { return reach == Reach::direct ? "direct" : "staged"; }

bool device_aware() {
#if defined(KOKKOS_ENABLE_CUDA) && defined(MINITAW_MPI_QUERY_CUDA)
  return MPIX_Query_cuda_support() == 1;
#elif defined(KOKKOS_ENABLE_CUDA) && defined(MINITAW_MPI_GPU_QUERY)
  return asked(MPIX_GPU_SUPPORT_CUDA);
#elif defined(KOKKOS_ENABLE_HIP) && defined(MINITAW_MPI_QUERY_ROCM)
  return MPIX_Query_rocm_support() == 1;
#elif defined(KOKKOS_ENABLE_HIP) && defined(MINITAW_MPI_GPU_QUERY)
  return asked(MPIX_GPU_SUPPORT_HIP);
#elif defined(KOKKOS_ENABLE_SYCL) && defined(MINITAW_MPI_GPU_QUERY)
  return asked(MPIX_GPU_SUPPORT_ZE);
#else
  return false;
#endif
}

Reach reach(const char* wish, bool aware) {
  if (wish == nullptr) return aware ? Reach::direct : Reach::staged;
  const std::string_view text(wish);
  if (text != "0" && text != "1")
    throw InputError(fmt::format("{} is \"{}\"; it may be 1 (MPI takes device pointers) or 0 (it does not)",
                                 variable, text));
  return text == "1" ? Reach::direct : Reach::staged;
}

Reach agreed_reach(MPI_Comm world) {
  // Least first: a rank that cannot say is refused on all, a staged one makes all staged.
  enum : int { refused, staged, direct };
  int mine = refused, least = refused;
  const char* const wish = std::getenv(variable);
  try {
    mine = reach(wish, device_aware()) == Reach::direct ? direct : staged;
  } catch (const InputError&) {
    // told below, by all ranks
  }
  check(MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, world), "agreeing on MINITAW_MPI_DIRECT");
  if (least == refused && mine != refused)
    throw InputError(fmt::format("{} is neither 0 nor 1 on some rank", variable));
  if (least == refused) (void)reach(wish, false);  // throws
  return least == direct ? Reach::direct : Reach::staged;
}

}  // namespace minitaw::comm::mpi
