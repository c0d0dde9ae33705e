// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include "fixtures.hpp"
#include "kokkos_listener.hpp"
#include "topology/memory.hpp"

namespace minitaw::topology {
namespace {
using Allocation = Kokkos::View<char*>;

constexpr std::size_t block = std::size_t{256} << 20;

/// Takes resident memory that goes back to the kernel at once, as large blocks do.
void take(std::size_t bytes) {
  EXPECT_EQ(std::vector<char>(bytes, 1).back(), 1);
}

/// A figure of the kernel in KiB, of this process if not of the node.
std::uint64_t kernel_bytes(const std::string& name, const char* file = "/proc/self/status") {
  std::ifstream words(file);
  for (std::string word; words >> word;)
    if (std::uint64_t kib = 0; word == name && words >> kib)
      return 1024 * kib;
  throw std::runtime_error("no " + name);
}

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
    take(block);
  });
  const Allocation d("mine", 24);
  const MemoryTaken taken = watch.taken();
  EXPECT_EQ(taken.kokkos, (BytesByLabel{{"mine", 128}}));
  if (taken.process_begin > 0) {
    EXPECT_LT(taken.process_peak, taken.process_begin + block / 4);
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

TEST(ProcessMemory, PeakIsTheKernelsAndOutlivesTheMemory) {
  take(block);
  const std::uint64_t before = kernel_bytes("VmHWM:"), peak = peak_memory(),
                      after = kernel_bytes("VmHWM:");  // it only grows
  EXPECT_TRUE(before <= peak && peak <= after) << before << " " << peak << " " << after;
  EXPECT_GT(peak, block);
}

TEST(ProcessMemory, OfACaseIsItsPeakAndWhatItKeeps) {
  return_freed_memory();
  take(block);
  const std::uint64_t old = kernel_bytes("VmHWM:");
  std::ofstream("/proc/self/clear_refs") << "5";
  if (kernel_bytes("VmHWM:") > old - block / 2)
    GTEST_SKIP() << "this kernel does not let a process start a new peak";
  take(2 * block);
  const MemoryWatch watch;
  take(block);
  // The kernel adds pages up now and then; less than figures in units of 1000 instead of 1024 bytes
  // would be wrong by.
  constexpr std::size_t slack = std::size_t{6} << 20;
  const MemoryTaken taken = watch.taken();
  EXPECT_NEAR(static_cast<double>(taken.process_peak - taken.process_begin), block, slack);
  EXPECT_LT(watch.process_growth(), slack / 2);
  const std::vector<char> kept(block / 2, 1);
  EXPECT_NEAR(static_cast<double>(watch.process_growth()), block / 2, slack);
}

TEST(ProcessMemory, WhatIsAvailableIsNoMoreThanTheNodeHas) {
  const std::uint64_t available = available_memory().bytes;
  EXPECT_LE(available, kernel_bytes("MemTotal:", "/proc/meminfo"));
  EXPECT_GT(available, block) << "the tests above took as much; in bytes, not in KiB";
}

/// A process in the group /job_7/step_0 of a tree that a test makes.
class ControlGroups : public test::InFolder {
protected:
  /// `type`: of the file system; `root`: the group that is mounted.
  void mount(const std::string& type, const std::string& root) const {
    const bool is_new = type == "cgroup2";
    (void)write("proc/cgroup", (is_new ? "0::" : "5:cpu:/\n4:memory:") + group_ + "\n");
    (void)write("proc/mountinfo",
        fmt::format("35 24 0:30 {} {} rw shared:9 - {} none rw,memory\n", root, path("m"), type));
  }

  FreeMemory available() const { return available_memory(path("proc")); }

  std::string group_ = "/job_7/step_0";
};

TEST_F(ControlGroups, OfVersion1LimitTheirProcessesAndCachesAreFree) {
  mount("cgroup", "/");
  (void)write("m/memory.limit_in_bytes", "9223372036854771712\n");
  (void)write("m/memory.usage_in_bytes", "500\n");
  (void)write("m/job_7/memory.limit_in_bytes", "1000\n");
  (void)write("m/job_7/memory.usage_in_bytes", "700\n");
  (void)write("m/job_7/step_0/memory.limit_in_bytes", "1000\n");
  (void)write("m/job_7/step_0/memory.usage_in_bytes", "600\n");
  EXPECT_EQ(available().bytes, 300U);
  EXPECT_EQ(available().limit, path("m/job_7/memory.limit_in_bytes"));
  (void)write("m/job_7/memory.stat", "inactive_file 250\ntotal_inactive_file 150\n");
  EXPECT_EQ(available().bytes, 400U);
  EXPECT_EQ(available().limit, path("m/job_7/step_0/memory.limit_in_bytes"));
  (void)write("m/job_7/step_0/memory.usage_in_bytes", "1001\n");
  EXPECT_EQ(available().bytes, 0U);
}

TEST_F(ControlGroups, OfVersion2LimitTheirProcessesAndCachesAreFree) {
  mount("cgroup2", "/");
  (void)write("m/job_7/memory.max", "1000\n");
  (void)write("m/job_7/memory.current", "700\n");
  (void)write("m/job_7/step_0/memory.max", "max\n");
  (void)write("m/job_7/step_0/memory.current", "600\n");
  (void)write("m/job_7/memory.stat", "anon 5\ninactive_file 150\n");
  EXPECT_EQ(available().bytes, 450U);
  EXPECT_EQ(available().limit, path("m/job_7/memory.max"));
}

TEST_F(ControlGroups, OfAContainerAreTheRootOfWhatItSees) {
  mount("cgroup", group_);
  (void)write("m/memory.limit_in_bytes", "1000\n");
  (void)write("m/memory.usage_in_bytes", "100\n");
  EXPECT_EQ(available().bytes, 900U);
  EXPECT_EQ(available().limit, path("m/memory.limit_in_bytes"));
}
}  // namespace
}  // namespace minitaw::topology
