// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include "base/error.hpp"
#include "engine/arena.hpp"

namespace minitaw::engine {
namespace {
using schedule::Memory, schedule::SlotClass;

schedule::Footprint footprint() {
  schedule::Footprint f;
  f.slots = {{{SlotClass::owned, 0}, 512},
      {{SlotClass::weights, 0}, 768},
      {{SlotClass::weights, 1}, 256},
      {{SlotClass::saved, 0}, 1024},
      {{SlotClass::accumulator, 0}, 2048},
      {{SlotClass::embeddings, 0}, 256}};
  f.optimiser = {1536, 512};
  f.workspace = 4096;
  f.staging = 256;
  f.by_kind = {512 + 768 + 256 + 256, 2048, 2048, 1024, 256 + 4096 + 256};
  return f;
}

auto bytes_of(const model::Buffer& buffer) {
  return Kokkos::View<std::byte*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>(
      buffer.data, buffer.bytes);
}

TEST(Arena, BuffersAreThosePlannedAlignedAndApart) {
  const schedule::Footprint plan = footprint();
  const Arena arena(plan);
  EXPECT_EQ(arena.slot({SlotClass::weights, 2}).bytes, 0U) << "there is none";
  std::vector<std::pair<model::Buffer, std::size_t>> buffers = {{arena.optimiser(0), 1536},
      {arena.optimiser(1), 512},
      {arena.workspace(), 4096},
      {arena.staging(), 256}};
  for (const schedule::SlotSize& size : plan.slots)
    buffers.emplace_back(arena.slot(size.slot), size.bytes);
  for (const int i : indices(buffers)) {
    const auto& [buffer, bytes] = buffers[i];
    EXPECT_EQ(buffer.bytes, bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data) % 256, 0U);
    Kokkos::deep_copy(bytes_of(buffer), static_cast<std::byte>(i));
  }
  for (const int i : indices(buffers)) {
    const auto held =
        Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), bytes_of(buffers[i].first));
    EXPECT_EQ(std::count(held.data(), held.data() + held.size(), static_cast<std::byte>(i)),
        std::ssize(held));
  }
}

TEST(Arena, APlanThatAddsUpToLessIsADefect) {
  schedule::Footprint plan = footprint();
  plan.by_kind[index_of(Memory::buffers)] -= 512;
  EXPECT_THROW((void)Arena(plan), LogicError);
}

/// Everything is written but 300 bytes of the workspace, or one slot, or 255 bytes.
TEST(Arena, FindsWhatWasNeverWritten) {
  constexpr std::byte fill{0xff}, other{0};
  const schedule::Footprint plan = footprint();
  const Arena arena(plan, fill);
  const auto write = [&](const model::Buffer& buffer, std::size_t begin, std::size_t bytes) {
    Kokkos::deep_copy(bytes_of({buffer.data + begin, bytes}), other);
  };
  const auto write_all = [&](const model::Buffer& buffer) { write(buffer, 0, buffer.bytes); };
  for (const schedule::SlotSize& size : plan.slots)
    if (size.slot.cls != SlotClass::saved)
      write_all(arena.slot(size.slot));
  for (const int i : {0, 1})
    write_all(arena.optimiser(i));
  write_all({reinterpret_cast<std::byte*>(arena.loss()), plan.scalars});
  write(arena.workspace(), 0, 700);
  write(arena.workspace(), 1000, 3096 - 255);
  EXPECT_EQ(arena.untouched(fill), "1024 of 1024 bytes of a0, from byte 0 on, were never written");
  write_all(arena.slot({SlotClass::saved, 0}));
  EXPECT_EQ(arena.untouched(fill),
      "300 of 4096 bytes of workspace, from byte 700 on, were never written");
  EXPECT_NE(arena.untouched(fill, 44), "");
  EXPECT_EQ(arena.untouched(fill, 45), "");
  write(arena.workspace(), 700, 300);
  EXPECT_EQ(arena.untouched(fill), "") << "sizes are rounded, and staging is not filled";
}
}  // namespace
}  // namespace minitaw::engine
