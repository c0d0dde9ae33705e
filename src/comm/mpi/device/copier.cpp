#include "comm/mpi/device/copier.hpp"

#include <cstring>

namespace minitaw::comm::mpi {
namespace {

using ExecutionSpace = DeviceCopier::ExecutionSpace;

constexpr bool on_host =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, ExecutionSpace::memory_space>::accessible;

template <class Space>
using Bytes = Kokkos::View<unsigned char*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

template <class Space>
Bytes<Space> bytes(Piece piece) {
  return {reinterpret_cast<unsigned char*>(piece.data()), piece.size()};
}

std::vector<ExecutionSpace> queues_of_its_own() {
  if constexpr (on_host) return {};
  else return Kokkos::Experimental::partition_space(ExecutionSpace(), std::vector<int>(Copier::queues, 1));
}

template <class To, class From>
void start([[maybe_unused]] const std::vector<ExecutionSpace>& spaces, [[maybe_unused]] std::size_t queue,
           Piece to, Piece from) {
  if constexpr (on_host) std::memcpy(to.data(), from.data(), to.size());
  else Kokkos::deep_copy(spaces[queue], bytes<To>(to), bytes<From>(from));
}

void wait([[maybe_unused]] const std::vector<ExecutionSpace>& spaces, [[maybe_unused]] std::size_t queue) {
  if constexpr (!on_host) spaces[queue].fence("minitaw::comm: copy of a piece");
}

}  // namespace

DeviceCopier::DeviceCopier() : loads_(queues_of_its_own()), stores_(queues_of_its_own()) {}

DeviceCopier::~DeviceCopier() {
  // Copies of a transfer that was given up still use the pinned memory.
  for (const auto* spaces : {&loads_, &stores_})
    for (const ExecutionSpace& space : *spaces) space.fence("minitaw::comm: last copies");
}

void DeviceCopier::load(std::size_t queue, Piece pinned, Piece buffer) {
  start<PinnedSpace, ExecutionSpace::memory_space>(loads_, queue, pinned, buffer);
}

void DeviceCopier::store(std::size_t queue, Piece buffer, Piece pinned) {
  start<ExecutionSpace::memory_space, PinnedSpace>(stores_, queue, buffer, pinned);
}

void DeviceCopier::wait_loaded(std::size_t queue) { wait(loads_, queue); }

void DeviceCopier::wait_stored(std::size_t queue) { wait(stores_, queue); }

}  // namespace minitaw::comm::mpi
