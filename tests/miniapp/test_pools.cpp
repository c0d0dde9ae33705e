// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gtest/gtest.h>
#include "miniapp/pools.hpp"

namespace minitaw::app {
namespace {
using topology::Groups;

std::string text_of(const std::optional<Shortage>& lack) {
  return lack ? fmt::format("{}: {} of {}", lack->pool, lack->needed, lack->bytes) : "";
}

TEST(MemoryPools, RanksOfANodeShareWhatIsFreeThere) {
  const MemoryPools pools(
      Groups({2, 3}), std::vector<std::string>(5), {70, 60, 95, 90, 100}, std::nullopt);
  EXPECT_EQ(text_of(pools.shortage({30, 30, 30, 30, 30})), "");
  EXPECT_EQ(text_of(pools.shortage({31, 30, 30, 30, 30})), "node 0: 61 of 60");
  EXPECT_EQ(text_of(pools.shortage({10, 10, 30, 30, 31})), "node 1: 91 of 90");
  EXPECT_EQ(text_of(pools.shortage({60})), "") << "a case on fewer ranks";
}

TEST(MemoryPools, RanksOfADeviceShareIt) {
  const MemoryPools pools(Groups({3, 1}), {"a", "b", "a", ""}, {50, 20, 40, 9}, std::nullopt);
  EXPECT_EQ(text_of(pools.shortage({20, 20, 20, 9})), "");
  EXPECT_EQ(text_of(pools.shortage({20, 20, 21, 9})), "device of rank 0: 41 of 40");
  EXPECT_EQ(text_of(pools.shortage({20, 21, 20, 9})), "device of rank 1: 21 of 20");
  EXPECT_EQ(text_of(pools.shortage({20, 20, 20, 10})), "node 1: 10 of 9")
      << "a rank without a device";
}

TEST(MemoryPools, EachRankHasWhatIsAllowed) {
  const MemoryPools pools(Groups({3}), {"a", "a", ""}, {1, 1, 1}, 25);
  EXPECT_EQ(text_of(pools.shortage({25, 25, 25})), "");
  EXPECT_EQ(text_of(pools.shortage({25, 26, 25})), "rank 1: 26 of 25");
}

TEST(MemoryPools, AReferenceTakesFromRank0) {
  const MemoryPools pools(Groups({1, 2}), std::vector<std::string>(3), {50, 60, 60}, std::nullopt);
  EXPECT_EQ(text_of(pools.shortage({30, 30, 30}, 20, 50)), "");
  EXPECT_EQ(text_of(pools.shortage({30, 30, 30}, 21)), "node 0: 51 of 50") << "beside the case";
  EXPECT_EQ(text_of(pools.shortage({30, 30, 30}, 0, 51)), "node 0: 51 of 50") << "before the case";
}
}  // namespace
}  // namespace minitaw::app
