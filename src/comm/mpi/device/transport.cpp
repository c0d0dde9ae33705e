#include "comm/mpi/device/transport.hpp"

#include <Kokkos_Core.hpp>
#include <cstdlib>
#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/mpi/device/copier.hpp"
#include "comm/mpi/memory.hpp"
#include "comm/mpi/mpi.hpp"

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

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

namespace {

/// What a lane's slots live in.
struct Pinned {
  Kokkos::View<unsigned char*, PinnedSpace> bytes;
  DeviceCopier copier;  // fences before the memory goes

  explicit Pinned(std::size_t size)
      : bytes(Kokkos::view_alloc(Kokkos::WithoutInitializing, "minitaw::comm: pinned slots"), size) {}
};

LaneMemory lane_memory(const PinnedShape& shape, Reach reach) {
  const auto pinned = std::make_shared<Pinned>(shape.bytes());
  const Piece all(reinterpret_cast<std::byte*>(pinned->bytes.data()), shape.bytes());
  LaneMemory memory = reach == Reach::direct ? direct_memory(all, shape.piece_bytes, pinned->copier)
                                             : staged_memory(all, shape.piece_bytes, pinned->copier);
  memory.owner = pinned;
  return memory;
}

}  // namespace

std::unique_ptr<Transport> device_transport(MPI_Comm world, const schedule::Program& program, Reach reach,
                                            const WaitPolicy& policy) {
  int rank = 0;
  check(MPI_Comm_rank(world, &rank), "MPI_Comm_rank");
  LaneMemories memories;
  for (int l = 0; l < schedule::lanes; ++l)
    if (const auto lane = static_cast<schedule::Lane>(l);
        communicates(program.ranks.at(static_cast<std::size_t>(rank)), lane))
      memories[static_cast<std::size_t>(l)] = lane_memory(pinned_shape(program, lane), reach);
  return std::make_unique<Transport>(world, program, memories, policy);
}

}  // namespace minitaw::comm::mpi
