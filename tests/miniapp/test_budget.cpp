// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <malloc.h>
#include "budget.hpp"
#include "harness/cases.hpp"
#include "this_run.hpp"
#include "topology/memory.hpp"

namespace minitaw::app {
namespace {
using harness::serial_reference;
using topology::Groups;

constexpr std::optional<std::uint64_t> unlimited;

const MemoryPools of_two_nodes(
    Groups({1, 2}), std::vector<std::string>(3), {{50}, {95}, {90}}, unlimited);

TEST(MemoryPools, RanksOfANodeShareWhatIsFreeThere) {
  EXPECT_EQ(of_two_nodes.reason_against({50, 45, 45}), "");
  EXPECT_EQ(of_two_nodes.reason_against({51, 45, 45}), "needs 51 B of 50 B (node 0)");
  EXPECT_EQ(of_two_nodes.reason_against({50, 45, 46}), "needs 91 B of 90 B (node 1)");
  EXPECT_EQ(of_two_nodes.reason_against({50}), "") << "a case on fewer ranks";
}

TEST(MemoryPools, AReferenceTakesFromRank0) {
  EXPECT_EQ(of_two_nodes.reason_against({30, 45, 45}, {.alone = 50, .beside = 20}), "");
  EXPECT_EQ(
      of_two_nodes.reason_against({30, 45, 45}, {.beside = 21}), "needs 51 B of 50 B (node 0)");
  EXPECT_EQ(
      of_two_nodes.reason_against({30, 45, 45}, {.alone = 51}), "needs 51 B of 50 B (node 0)");
}

TEST(MemoryPools, RanksOfADeviceShareIt) {
  const MemoryPools pools(Groups({3, 1}), {"a", "b", "a", ""}, {{50}, {20}, {40}, {9}}, unlimited);
  EXPECT_EQ(pools.reason_against({20, 20, 20, 9}), "");
  EXPECT_EQ(pools.reason_against({20, 20, 21, 9}), "needs 41 B of 40 B (device of rank 0)");
  EXPECT_EQ(pools.reason_against({20, 21, 20, 9}), "needs 21 B of 20 B (device of rank 1)");
  EXPECT_EQ(pools.reason_against({20, 20, 20, 10}), "needs 10 B of 9 B (node 1)")
      << "a rank without a device";
}

TEST(MemoryPools, NameTheFileThatLimitsThem) {
  const MemoryPools pools(
      Groups({2, 1}), std::vector<std::string>(3), {{60}, {50, "/job_7/max"}, {90}}, unlimited);
  EXPECT_EQ(pools.reason_against({30, 30}), "needs 60 B of 50 B (node 0, limited by /job_7/max)");
  EXPECT_EQ(pools.reason_against({1, 1, 91}), "needs 91 B of 90 B (node 1)");
}

TEST(MemoryPools, EachRankHasWhatIsAllowed) {
  const MemoryPools pools(Groups({3}), {"a", "a", ""}, {{1, "m"}, {1}, {1}}, 25);
  EXPECT_EQ(pools.reason_against({25, 25, 25}), "");
  EXPECT_EQ(pools.reason_against({25, 26, 25}), "needs 26 B of 25 B (rank 1)");
}

Case serial_case(const model::Shape& shape) {
  Case c = harness::tests::small_case("serial", Groups({1}), 1, 2);
  c.shape = shape;
  c.steps = 2;
  return c;
}

// Of 2.6 million weights; with many tokens, whose activations take most of the memory.
const Case wide = serial_case({2, 256, 4, 2, 700, 1500, 16, 1});
const Case of_many_tokens = serial_case({2, 32, 4, 2, 80, 1400, 400, 4});

TEST(ReferenceMemory, OfVerifyHasTheGradientsOfTwoStepsOfTheReference) {
  if (!kernels::on_host)
    GTEST_SKIP() << "the arena is not this process's resident memory";
  const std::uint64_t gradients = 4 * model::parameters(wide.shape);
  const ReferenceMemory one = memory_of_verify(wide, 1), two = memory_of_verify(wide, 2);
  EXPECT_EQ(two.alone - one.alone, gradients);
  EXPECT_EQ(two.beside - one.beside, 2 * gradients);
  EXPECT_EQ(memory_of_verify(wide, 9).alone, two.alone);
  EXPECT_EQ(memory_of_verify(wide, 9).beside, two.beside);
}

// What is planned is enough, and not far more than that.
class ReferenceMemoryOf : public ::testing::Test {
protected:
  void SetUp() override {
    if (!kernels::on_host)
      GTEST_SKIP() << "the arena is not this process's resident memory";
    if (test::sanitized)
      GTEST_SKIP() << "the sanitizer's memory counts too";
    // larger blocks go back to the system when they are given up
    mallopt(M_MMAP_THRESHOLD, 1 << 18);
    (void)serial_reference(serial_case({2, 16, 2, 2, 24, 40, 8, 1}), 1);  // libraries take theirs
  }

  static void expect_planned(std::uint64_t planned, const auto& work) {
    constexpr std::uint64_t others = 8 << 20;  // threads, pages that the allocator keeps
    malloc_trim(0);  // what earlier tests left would be taken again and not count
    topology::reset_peak_memory();
    const std::uint64_t before = topology::peak_memory();
    work();
    const std::uint64_t taken = topology::peak_memory() - before;
    EXPECT_LE(taken, planned + others);
    EXPECT_GE(taken + others, planned / 2);
    EXPECT_GE(planned, 4 * others) << "too small to tell";
  }
};

TEST_F(ReferenceMemoryOf, VerifyIsCounted) {
  for (const Case& c : {wide, of_many_tokens})
    expect_planned(memory_of_verify(c, c.steps).alone, [&] {
      const harness::Training serial = serial_reference(c, c.steps),
                              other = harness::float64_reference(c, c.steps);
      EXPECT_TRUE(compare(serial, other).passes(harness::float64_tolerance(c)));
    });
}

TEST_F(ReferenceMemoryOf, TheCheckOfARunIsCounted) {
  harness::References references;
  const harness::Training* made = nullptr;
  expect_planned(memory_of_check(wide).alone, [&] { made = &references.of(wide); });
  EXPECT_EQ(&references.of(wide), made) << "it is kept";
}
}  // namespace
}  // namespace minitaw::app
