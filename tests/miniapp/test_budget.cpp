// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <malloc.h>
#include "budget.hpp"
#include "harness/cases.hpp"
#include "this_run.hpp"
#include "topology/memory.hpp"

namespace minitaw::app {
namespace {
using harness::References, harness::serial_reference;
using topology::Groups, topology::peak_memory, topology::reset_peak_memory;

TEST(MemoryPools, RanksOfANodeShareWhatIsFreeThere) {
  const MemoryPools pools(
      Groups({2, 3}), std::vector<std::string>(5), {70, 60, 95, 90, 100}, std::nullopt);
  EXPECT_EQ(pools.reason_against({30, 30, 30, 30, 30}), "");
  EXPECT_EQ(pools.reason_against({31, 30, 30, 30, 30}), "needs 61 B of 60 B (node 0)");
  EXPECT_EQ(pools.reason_against({10, 10, 30, 30, 31}), "needs 91 B of 90 B (node 1)");
  EXPECT_EQ(pools.reason_against({60}), "") << "a case on fewer ranks";
}

TEST(MemoryPools, RanksOfADeviceShareIt) {
  const MemoryPools pools(Groups({3, 1}), {"a", "b", "a", ""}, {50, 20, 40, 9}, std::nullopt);
  EXPECT_EQ(pools.reason_against({20, 20, 20, 9}), "");
  EXPECT_EQ(pools.reason_against({20, 20, 21, 9}), "needs 41 B of 40 B (device of rank 0)");
  EXPECT_EQ(pools.reason_against({20, 21, 20, 9}), "needs 21 B of 20 B (device of rank 1)");
  EXPECT_EQ(pools.reason_against({20, 20, 20, 10}), "needs 10 B of 9 B (node 1)")
      << "a rank without a device";
}

TEST(MemoryPools, EachRankHasWhatIsAllowed) {
  const MemoryPools pools(Groups({3}), {"a", "a", ""}, {1, 1, 1}, 25);
  EXPECT_EQ(pools.reason_against({25, 25, 25}), "");
  EXPECT_EQ(pools.reason_against({25, 26, 25}), "needs 26 B of 25 B (rank 1)");
}

TEST(MemoryPools, AReferenceTakesFromRank0) {
  const MemoryPools pools(Groups({1, 2}), std::vector<std::string>(3), {50, 60, 60}, std::nullopt);
  EXPECT_EQ(pools.reason_against({30, 30, 30}, {.alone = 50, .beside = 20}), "");
  EXPECT_EQ(pools.reason_against({30, 30, 30}, {.beside = 21}), "needs 51 B of 50 B (node 0)")
      << "beside the case";
  EXPECT_EQ(pools.reason_against({30, 30, 30}, {.alone = 51}), "needs 51 B of 50 B (node 0)")
      << "before the case";
}

Case serial_case() {
  Case c = harness::tests::small_case("serial", Groups({1}), 2, 2);
  c.steps = 3;
  return c;
}

/// A model of 2.6 million weights, or one with many tokens, whose activations take most of the
/// memory.
Case large_case(bool wide) {
  Case c = serial_case();
  if (wide)
    c.shape = {2, 256, 4, 2, 700, 1500, 16, 1};
  else
    c.shape = {2, 32, 4, 2, 80, 1400, 400, 4};
  c.micro_batches = 1;
  c.steps = 2;
  return c;
}

/// Resident bytes that `work` adds at its peak.
std::uint64_t added_by(const auto& work) {
  malloc_trim(0);  // what earlier tests left would be taken again and not count
  reset_peak_memory();
  const std::uint64_t before = peak_memory();
  work();
  return peak_memory() - before;
}

// What is planned is enough, and not far more than that.
class ReferenceMemoryOf : public ::testing::Test {
protected:
  void SetUp() override {
    if (!kernels::on_host)
      GTEST_SKIP() << "the arena is not this process's resident memory";
    if (test::sanitized)
      GTEST_SKIP() << "the sanitizer's memory counts too";
    mallopt(
        M_MMAP_THRESHOLD, 1 << 18);  // larger blocks go back to the system when they are given up
    (void)serial_reference(serial_case(), 1);  // libraries take theirs
  }

  static void expect_planned(std::uint64_t taken, std::uint64_t planned) {
    constexpr std::uint64_t others = std::uint64_t{8}
                                     << 20;  // threads, pages that the allocator keeps
    EXPECT_LE(taken, planned + others);
    EXPECT_GE(taken + others, planned / 2);
    EXPECT_GE(planned, 4 * others) << "too small to tell";
  }
};

TEST_F(ReferenceMemoryOf, VerifyHasTheGradientsOfTwoStepsOfTheReference) {
  const Case c = large_case(true);
  const std::uint64_t once = 4 * model::parameters(c.shape);
  const auto more = [&](const ReferenceMemory& a,
                        const ReferenceMemory& b,
                        std::uint64_t alone,
                        std::uint64_t beside) {
    EXPECT_EQ(
        std::pair(b.alone - a.alone, b.beside - a.beside), std::pair(alone * once, beside * once));
  };
  more(memory_of_verify(c, 1), memory_of_verify(c, 2), 1, 2);
  more(memory_of_verify(c, 2), memory_of_verify(c, 9), 0, 0);
}

TEST_F(ReferenceMemoryOf, VerifyIsCounted) {
  for (const bool wide : {false, true}) {
    SCOPED_TRACE(wide ? "wide" : "many tokens");
    const Case c = large_case(wide);
    const std::uint64_t taken = added_by([&] {
      const harness::Training serial = serial_reference(c, c.steps),
                              other = harness::float64_reference(c, c.steps);
      EXPECT_TRUE(compare(serial, other).passes(harness::float64_tolerance(c)));
    });
    expect_planned(taken, memory_of_verify(c, c.steps).alone);
  }
}

TEST_F(ReferenceMemoryOf, TheCheckOfARunIsCounted) {
  const Case c = large_case(true);
  References references;
  const harness::Training* made = nullptr;
  expect_planned(added_by([&] { made = &references.of(c); }), memory_of_check(c).alone);
  EXPECT_EQ(&references.of(c), made) << "it is kept";
}
}  // namespace
}  // namespace minitaw::app
