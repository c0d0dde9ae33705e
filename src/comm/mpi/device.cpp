// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/mpi/transport.hpp"
#include "kernels/kernels.hpp"
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace minitaw::comm::mpi {
namespace {
/// Returns whether this MPI reports that it takes pointers to this build's kind of device memory.
bool device_aware() {
#if defined(MINITAW_MPI_QUERY)
  return MINITAW_MPI_QUERY() == 1;
#elif defined(MINITAW_MPI_GPU_KIND)
  int supported = 0;
  return MPIX_GPU_query_support(MINITAW_MPI_GPU_KIND, &supported) == MPI_SUCCESS && supported != 0;
#else
  return false;
#endif
}

using kernels::on_host, kernels::PinnedSpace;
using Space = kernels::ExecutionSpace;

/// Copies between device and pinned memory, each queue an instance of the execution space. On a
/// host, complete at once.
class DeviceCopier final : public Copier {
public:
  DeviceCopier() {
    if constexpr (!on_host)
      spaces_ = Kokkos::Experimental::partition_space(Space(), std::vector<int>(2 * queues, 1));
  }

  ~DeviceCopier() override {
    // Copies of a transfer that was given up still use the pinned memory.
    for (const Space& space : spaces_)
      space.fence("minitaw::comm: last copies");
  }

  void copy(Way way, std::size_t queue, Bytes to, Bytes from) override {
    if constexpr (on_host)
      std::memcpy(to.data(), from.data(), to.size());
    else if (way == Way::load)
      Kokkos::deep_copy(space(way, queue), view<PinnedSpace>(to), view<kernels::MemorySpace>(from));
    else
      Kokkos::deep_copy(space(way, queue), view<kernels::MemorySpace>(to), view<PinnedSpace>(from));
  }

  void wait(Way way, std::size_t queue) override {
    if constexpr (!on_host)
      space(way, queue).fence("minitaw::comm: copy of a piece");
  }

private:
  template <class MemorySpace>
  static Kokkos::View<std::byte*, MemorySpace, Kokkos::MemoryUnmanaged> view(Bytes bytes) {
    return {bytes.data(), bytes.size()};
  }

  const Space& space(Way way, std::size_t queue) const {
    return spaces_[way == Way::load ? queue : queues + queue];
  }

  std::vector<Space> spaces_;  ///< of loads, then of stores, by queue
};

/// 16 slots of 1 MiB, on all lanes and ranks: both sides of a message cut alike, whatever their
/// lanes.
constexpr std::size_t pinned_piece = std::size_t{1} << 20, pinned_of_lane = 16 * pinned_piece;

struct Pinned {
  Kokkos::View<unsigned char*, PinnedSpace> bytes{
      Kokkos::view_alloc(Kokkos::WithoutInitializing, std::string(pinned_label)), pinned_of_lane};
  DeviceCopier copier;  // fences before the memory goes
};

bool communicates(const schedule::RankProgram& rank, std::size_t lane) {
  return std::ranges::any_of(rank.actions, [&](const schedule::Action& a) {
    return index_of(a.lane) == lane && is_communication(a.kind);
  });
}
}  // namespace

std::uint64_t pinned_bytes(const schedule::RankProgram& rank) {
  std::uint64_t bytes = 0;
  for (std::size_t lane = 0; lane < schedule::lanes; ++lane)
    bytes += communicates(rank, lane) ? pinned_of_lane : 0;
  return bytes;
}

bool agree_on_direct(MPI_Comm world) {
  const char* const wish = std::getenv("MINITAW_MPI_DIRECT");
  const std::string mine = wish != nullptr ? wish : device_aware() ? "1" : "0";
  const bool is_staged = mine == "0", is_known = is_staged || mine == "1";
  const auto [rank, wrong] = first_text(is_known ? "" : fmt::format("\"{}\"", mine), world);
  if (!wrong.empty())
    throw InputError("MINITAW_MPI_DIRECT is {}; it may be 1 (MPI takes device "
                     "pointers) or 0 (it does not)",
        wrong);
  return largest(is_staged ? 1 : 0, world) == 0;
}

std::unique_ptr<Transport> device_transport(
    MPI_Comm world, const schedule::Program& program, bool direct) {
  const schedule::RankProgram& own = program.ranks.at(program.rank_of(rank_in(world)));
  LaneMemories lanes;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (!communicates(own, lane))
      continue;
    const auto pinned = std::make_shared<Pinned>();
    lanes[lane] = {.piece_bytes = pinned_piece,
        .slots = {reinterpret_cast<std::byte*>(pinned->bytes.data()), pinned_of_lane},
        .copier = &pinned->copier,
        .direct = direct,
        .owner = pinned};
  }
  return make_transport(world, program, lanes, direct ? "mpi direct" : "mpi staged");
}
}  // namespace minitaw::comm::mpi
