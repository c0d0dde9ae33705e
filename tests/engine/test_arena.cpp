#include "engine/arena.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"

namespace minitaw::engine {
namespace {

using schedule::Memory;
using schedule::SlotClass;

schedule::Footprint footprint() {
  schedule::Footprint f;
  f.slots = {{{SlotClass::owned, 0}, 512},        {{SlotClass::weights, 0}, 768},
             {{SlotClass::weights, 1}, 256},      {{SlotClass::saved, 0}, 1024},
             {{SlotClass::accumulator, 0}, 2048}, {{SlotClass::ends, 0}, 256}};
  f.optimiser = {1536, 512};
  f.workspace = 4096;
  f.staging = 256;
  f.by_kind = {512 + 768 + 256 + 256, 2048, 2048, 1024, 256 + 4096 + 256};
  return f;
}

TEST(Arena, HandsOutWhatWasPlannedAndCountsItByKind) {
  const Arena arena(footprint());
  EXPECT_EQ(arena.measured(),
            (std::array<std::uint64_t, schedule::memory_kinds>{1792, 2048, 2048, 1024, 4608}));
  EXPECT_EQ(arena.slot({SlotClass::weights, 1}).bytes, 256U);
  EXPECT_EQ(arena.optimiser(1).bytes, 512U);
  EXPECT_EQ(arena.workspace().bytes, 4096U);
}

auto bytes_of(const model::Buffer& buffer) {
  return Kokkos::View<std::byte*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>(buffer.data,
                                                                                                buffer.bytes);
}

TEST(Arena, BuffersAreAlignedAndDoNotOverlap) {
  const schedule::Footprint plan = footprint();
  const Arena arena(plan);
  std::vector<model::Buffer> buffers = {arena.optimiser(0), arena.optimiser(1), arena.workspace(),
                                        arena.staging()};
  for (const schedule::SlotSize& size : plan.slots) buffers.push_back(arena.slot(size.slot));
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers[i].data) % 256, 0U);
    Kokkos::deep_copy(bytes_of(buffers[i]), std::byte{static_cast<unsigned char>(i)});
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto held = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), bytes_of(buffers[i]));
    for (std::size_t b = 0; b < held.size(); ++b)
      ASSERT_EQ(std::to_integer<std::size_t>(held(b)), i) << "byte " << b;
  }
}

TEST(Arena, APlanThatAddsUpToLessIsADefect) {
  schedule::Footprint plan = footprint();
  plan.by_kind[static_cast<std::size_t>(Memory::buffers)] -= 256;
  EXPECT_THROW((void)Arena(plan), LogicError);
}

}  // namespace
}  // namespace minitaw::engine
