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
}  // namespace
}  // namespace minitaw::topology
