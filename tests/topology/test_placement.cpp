// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <gmock/gmock.h>
#include "base/error.hpp"
#include "topology/placement.hpp"

namespace minitaw::topology {
namespace {
using testing::AllOf, testing::HasSubstr;

TEST(Placement, CoresAreRangesOrUnknown) {
  EXPECT_EQ(cores_text(std::array{0, 1, 4}), "0-1,4");
  EXPECT_EQ(cores_text({}), "unknown");
}

TEST(NodesOf, CountsConsecutiveRanks) {
  EXPECT_EQ(nodes_of(std::array{0, 0, 0, 3, 3, 5}).text(), "3+2+1");
  EXPECT_EQ(nodes_of(std::array{7}).text(), "1");
  EXPECT_THAT([] { (void)nodes_of(std::array{0, 1, 0, 1}); },
      testing::ThrowsMessage<InputError>(AllOf(HasSubstr("rank 2"), HasSubstr("block"))))
      << "round-robin placement";
}

/// Ranks that share a core, directly or by way of others, have what they may run on together.
TEST(Placement, RanksAreACrowdWhereTheirThreadsOutnumberTheirCores) {
  using Ranks = std::vector<RankPlace>;
  for (const auto& [ranks, said] : {std::pair<Ranks, const char*>{{}, ""},
           {{{0, {0}, 1}, {0, {1}, 1}}, ""},
           {{{0, {0, 1}, 1}, {0, {0, 1}, 1}}, ""},
           {{{0, {0}, 1}, {1, {0}, 1}}, ""},
           {{{0, {}, 9}}, ""},
           {{{0, {7}, 2}}, "2 threads of rank 0 share 1 core"},
           {{{0, {0, 1}, 1}, {0, {0, 1}, 2}}, "3 threads of ranks 0-1 share 2 cores"},
           {{{0, {0}, 1}, {0, {4, 5}, 2}, {0, {5, 6}, 1}, {1, {4}, 1}, {0, {6}, 1}},
               "4 threads of ranks 1-2,4 share 3 cores"},
           {{{0, {3}, 1}, {0, {4}, 1}, {0, {3, 4}, 1}}, "3 threads of ranks 0-2 share 2 cores"},
           {{{1, {0}, 2}, {0, {0}, 3}}, "2 threads of rank 0 share 1 core"}})
    EXPECT_EQ(crowd(ranks), said);
}
}  // namespace
}  // namespace minitaw::topology
