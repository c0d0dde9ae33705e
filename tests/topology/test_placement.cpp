// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include "fixtures.hpp"
#include "topology/placement.hpp"

namespace minitaw::topology {
namespace {
TEST(Placement, CoresAreRangesOrUnknown) {
  EXPECT_EQ(cores_text(std::array{1, 3, 4, 5, 8, 9}), "1,3-5,8-9");
  EXPECT_EQ(cores_text({}), "unknown");
}

TEST(NodesOf, CountsConsecutiveRanks) {
  EXPECT_EQ(nodes_of(std::array{0, 0, 0, 3, 3, 5}).text(), "3+2+1");
  const auto round_robin = [] { (void)nodes_of(std::array{0, 1, 0, 1}); };
  EXPECT_THAT(test::refusal_of(round_robin), test::Says({"rank 2", "block"}));
}

/// Ranks that share a core, directly or by way of others, have what they may run on together.
TEST(Placement, RanksAreACrowdWhereTheirThreadsOutnumberTheirCores) {
  using Places = std::vector<RankPlace>;
  const std::vector<Places> with_room = {{},
      {{0, {0}, 1}, {0, {1}, 1}},
      {{0, {0, 1}, 1}, {0, {0, 1}, 1}},
      {{0, {0}, 1}, {1, {0}, 1}},
      {{0, {}, 9}}};
  for (const Places& ranks : with_room)
    EXPECT_FALSE(is_crowded(ranks));
  const std::vector<Places> without = {{{0, {7}, 2}},
      {{0, {0, 1}, 1}, {0, {0, 1}, 2}},
      {{0, {0}, 1}, {0, {4, 5}, 2}, {0, {5, 6}, 1}, {1, {4}, 1}, {0, {6}, 1}},
      {{0, {3}, 1}, {0, {4}, 1}, {0, {3, 4}, 1}}};
  for (const Places& ranks : without)
    EXPECT_TRUE(is_crowded(ranks));
}

/// Machine 0 has ranks on cores 1-4, machine 1 on core 0.
TEST(Placement, RanksThatShareACoreWhileOthersAreUnusedAreNamed) {
  std::vector<RankPlace> ranks = {{0, {1, 2}}, {0, {2, 3}}, {0, {4}}, {1, {0}}, {0, {}}};
  std::vector<std::vector<int>> cores = {{1, 2, 3, 4}, {}, {}, {0, 1}, {}};
  EXPECT_EQ(overlap_text(ranks, cores), "") << "machine 0 has no more, no ranks share one of 1";
  cores[0] = {0, 1, 2, 3, 4, 5};
  EXPECT_THAT(overlap_text(ranks, cores),
      testing::StartsWith("ranks 0-1 share core 2 while no rank uses cores 0,5: give"));
  ranks[2].cores = {1};
  ranks[4] = {1, {0}};
  EXPECT_THAT(overlap_text(ranks, cores),
      testing::StartsWith("ranks 0-2 share cores 1-2 while no rank uses cores 0,4-5, and likewise "
                          "on 1 node more: "));
}

TEST(Placement, AQuotaKeepsThreadsFromComputing) {
  EXPECT_EQ(throttled_share({.threads = 2}), 0);
  EXPECT_EQ(throttled_share({.threads = 2, .quota = 2.5}), 0);
  EXPECT_EQ(throttled_share({.threads = 2, .quota = 0.5}), 0.75);
}
}  // namespace
}  // namespace minitaw::topology
