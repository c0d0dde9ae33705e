#include "memory.hpp"

#include <Kokkos_Core.hpp>

#include "kernels/kernels.hpp"

namespace minitaw::bench {
namespace {

using Host = Kokkos::View<std::byte*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
using ConstHost = Kokkos::View<const std::byte*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

}  // namespace

struct Memory::Held {
  using View = Kokkos::View<std::byte*, kernels::MemorySpace>;
  View view;
};

Memory::Memory(std::size_t bytes)
    : bytes_(bytes), held_(std::make_unique<Held>(Held{Held::View("minitaw::comm benchmark", bytes)})) {}

Memory::~Memory() = default;

std::byte* Memory::data() const { return held_->view.data(); }

void Memory::set(std::span<const std::byte> values) {
  Kokkos::deep_copy(held_->view, ConstHost(values.data(), values.size()));
}

void Memory::get(std::span<std::byte> values) const {
  Kokkos::deep_copy(Host(values.data(), values.size()), held_->view);
}

}  // namespace minitaw::bench
