// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <gtest/gtest.h>
#include "kokkos_listener.hpp"
#include "topology/memory.hpp"

namespace minitaw::topology {
namespace {
/// An allocation by Kokkos.
struct Allocation {
  Allocation(const char* label, std::size_t bytes) : memory(label, bytes) {}

  Kokkos::View<char*> memory;
};

TEST(MemoryWatch, SeesTheMostThatEachLabelHadAndWhatIsLeft) {
  const Allocation before("mine", 5000);
  std::optional<Allocation> earlier(std::in_place, "earlier", 600);
  const MemoryWatch watch;
  earlier.reset();  // it was there before: it does not make room
  { const Allocation a("mine", 1000), b("mine", 200); }
  const Allocation c("mine", 32), d("yours", 8);
  EXPECT_EQ(watch.taken().kokkos, (BytesByLabel{{"mine", 1200}, {"yours", 8}}));
  EXPECT_EQ(watch.kept(), (BytesByLabel{{"mine", 32}, {"yours", 8}}));
  const MemoryWatch next;
  EXPECT_EQ(next.taken().kokkos, BytesByLabel{});
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
  EXPECT_EQ(taken.kokkos, (BytesByLabel{{"mine", 128}}));
  if (taken.process_begin > 0) {
    EXPECT_LT(taken.process_peak, taken.process_begin + (std::uint64_t{64} << 20));
  }
}

/// A tool that was there before is still told.
TEST(MemoryWatch, PassesAllocationsOn) {
  const test::KokkosListener listener;
  const MemoryWatch watch;
  { const Allocation a("mine", 104); }
  EXPECT_EQ(watch.taken().kokkos, (BytesByLabel{{"mine", 104}}));
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
}  // namespace minitaw::topology
