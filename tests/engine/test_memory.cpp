// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include "base/error.hpp"
#include "engine/memory.hpp"
#include "kokkos_listener.hpp"

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
  EXPECT_EQ(arena.slot({SlotClass::weights, 1}).bytes, 256U);
  EXPECT_EQ(arena.slot({SlotClass::weights, 2}).bytes, 0U) << "there is none";
  EXPECT_EQ(std::tuple(arena.optimiser(1).bytes, arena.workspace().bytes), std::tuple(512U, 4096U));
  std::vector<model::Buffer> buffers = {
      arena.optimiser(0), arena.optimiser(1), arena.workspace(), arena.staging()};
  for (const schedule::SlotSize& size : plan.slots)
    buffers.push_back(arena.slot(size.slot));
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers[i].data) % 256, 0U);
    Kokkos::deep_copy(bytes_of(buffers[i]), std::byte{static_cast<unsigned char>(i)});
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto held =
        Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), bytes_of(buffers[i]));
    for (std::size_t b = 0; b < held.size(); ++b)
      ASSERT_EQ(std::to_integer<std::size_t>(held(b)), i) << "byte " << b;
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
  EXPECT_EQ(arena.untouched(fill, 44), arena.untouched(fill));
  EXPECT_EQ(arena.untouched(fill, 45), "");
  write(arena.workspace(), 700, 300);
  EXPECT_EQ(arena.untouched(fill), "") << "sizes are rounded, and staging is not filled";
}

/// An allocation by Kokkos.
struct Allocation {
  Allocation(const char* label, std::size_t bytes) : memory(label, bytes) {}

  Kokkos::View<char*> memory;
};

using Labels = std::map<std::string, std::uint64_t>;

TEST(MemoryWatch, SeesTheMostThatEachLabelHadAndWhatIsLeft) {
  const Allocation before("mine", 5000);
  std::optional<Allocation> earlier(std::in_place, "earlier", 600);
  const MemoryWatch watch;
  earlier.reset();  // it was there before: it does not make room
  { const Allocation a("mine", 1000), b("mine", 200); }
  const Allocation c("mine", 32), d("yours", 8);
  EXPECT_EQ(watch.taken().kokkos, (Labels{{"mine", 1200}, {"yours", 8}}));
  EXPECT_EQ(watch.kept(), (Labels{{"mine", 32}, {"yours", 8}}));
  const MemoryWatch next;
  EXPECT_EQ(next.taken().kokkos, Labels{});
}

TEST(MemoryWatch, LeavesOutWhatIsNotTheCases) {
  MemoryWatch watch;
  const Allocation a("mine", 104);
  watch.leave_out([] {
    const Allocation b("mine", 5000), c("reference", 6000);
    EXPECT_EQ(std::vector<char>(std::size_t{256} << 20, 1).back(), 1);
  });
  const Allocation d("mine", 24);
  const MemoryTaken taken = watch.taken();
  EXPECT_EQ(taken.kokkos, (Labels{{"mine", 128}}));
  if (taken.process_begin > 0) {
    EXPECT_LT(taken.process_peak, taken.process_begin + (std::uint64_t{64} << 20));
  }
}

/// A tool that was there before is still told.
TEST(MemoryWatch, PassesAllocationsOn) {
  const test::KokkosListener listener;
  const MemoryWatch watch;
  { const Allocation a("mine", 104); }
  EXPECT_EQ(watch.taken().kokkos, (Labels{{"mine", 104}}));
  const test::KokkosListener::Seen seen = listener.seen();
  EXPECT_EQ(seen.count("allocation mine") + seen.count("deallocation mine"), 2U);
}

/// What the kernel says of this process in /proc/self/status, bytes.
std::uint64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) {
      EXPECT_TRUE(line.ends_with(" kB")) << line;
      return std::stoull(line.substr(field.size() + 1)) * 1024;
    }
  ADD_FAILURE() << "no " << field;
  return 0;
}

/// The peak lies between the kernel's own figures before and after: it only grows.
std::uint64_t peak_as_the_kernel_sees_it() {
  const std::uint64_t before = status_bytes("VmHWM"), peak = peak_memory(),
                      after = status_bytes("VmHWM");
  EXPECT_TRUE(before <= peak && peak <= after) << before << " " << peak << " " << after;
  return peak;
}

constexpr std::size_t block = std::size_t{256} << 20;

/// Takes resident memory that goes back to the kernel at once, as large blocks do.
void take(std::size_t bytes) {
  EXPECT_EQ(std::vector<char>(bytes, 1).back(), 1);
}

/// The kernel adds pages up now and then; less than a peak in units of 1000 instead of 1024 bytes
/// would be wrong by.
constexpr std::size_t slack = std::size_t{3} << 20;

TEST(ProcessMemory, PeakIsTheKernelsAndOutlivesTheMemory) {
  const std::uint64_t before = status_bytes("VmRSS");
  take(block);
  EXPECT_LT(status_bytes("VmRSS"), before + block / 2) << "the memory is gone";
  EXPECT_GE(peak_as_the_kernel_sees_it() + slack, before + block);
}

/// Whether this kernel lets a process start a new peak.
bool peaks_can_be_reset() {
  take(block);
  const std::uint64_t old = status_bytes("VmHWM");
  std::ofstream("/proc/self/clear_refs") << "5";
  return status_bytes("VmHWM") < old - block / 2;
}

TEST(ProcessMemory, ANewPeakForgetsTheOldOne) {
  if (!peaks_can_be_reset())
    GTEST_SKIP() << "this kernel does not let a process start a new peak";
  take(block);
  const std::uint64_t old = peak_memory();
  reset_peak_memory();
  EXPECT_LT(peak_memory(), old - block / 2);
  take(block / 2);
  const std::uint64_t peak = peak_as_the_kernel_sees_it();
  EXPECT_GE(peak + block / 4, old - block / 2);
  EXPECT_LT(peak, old - block / 4);
}

TEST(ProcessMemory, OfACaseIsItsPeakAndWhatItKeeps) {
  return_freed_memory();
  if (!peaks_can_be_reset())
    GTEST_SKIP() << "this kernel does not let a process start a new peak";
  const MemoryWatch watch;
  take(block);
  const std::uint64_t peak = watch.taken().process_peak, begin = watch.taken().process_begin;
  EXPECT_NEAR(static_cast<double>(peak - begin), static_cast<double>(block), 2.0 * slack);
  EXPECT_LT(watch.process_growth(), slack);
  const std::vector<char> kept(block / 2, 1);
  EXPECT_NEAR(
      static_cast<double>(watch.process_growth()), static_cast<double>(block / 2), 2.0 * slack);
}

TEST(ProcessMemory, WhatIsAvailableIsNoMoreThanTheNodeHas) {
  std::ifstream info("/proc/meminfo");
  std::string name;
  std::uint64_t total = 0;
  ASSERT_TRUE(info >> name >> total);
  ASSERT_EQ(name, "MemTotal:");
  const std::uint64_t available = available_memory();
  EXPECT_LE(available, total * 1024);
  EXPECT_GT(available, block) << "the tests above took as much; in bytes, not in KiB";
}
}  // namespace
}  // namespace minitaw::engine
