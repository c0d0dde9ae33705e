#include "comm/mpi/device/transport.hpp"

#include <Kokkos_Core.hpp>

#include "comm/mpi/check.hpp"
#include "comm/mpi/device/copier.hpp"
#include "comm/mpi/pinned.hpp"

namespace minitaw::comm::mpi {
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
                                            const Patience& patience) {
  int rank = 0;
  check(MPI_Comm_rank(world, &rank), "MPI_Comm_rank");
  LaneMemories memories;
  for (int l = 0; l < schedule::lanes; ++l)
    if (const auto lane = static_cast<schedule::Lane>(l);
        communicates(program.ranks.at(static_cast<std::size_t>(rank)), lane))
      memories[static_cast<std::size_t>(l)] = lane_memory(pinned_shape(program, lane), reach);
  return std::make_unique<Transport>(world, program, memories, patience);
}

}  // namespace minitaw::comm::mpi
