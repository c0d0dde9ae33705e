#include "record/provenance.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace minitaw::record {
namespace {

const HostNames hidden({"cn1", "cn2", "cn3", "cn4", "cn5"});
const HostNames shown({"cn1", "cn2", "cn3", "cn4", "cn5"}, true);

/// Ranks of each node, with a core each.
std::vector<RankPlace> places(const std::vector<int>& sizes, const std::string& unit = "host, 1 threads") {
  std::vector<RankPlace> ranks;
  for (int node = 0; node < static_cast<int>(sizes.size()); ++node)
    for (int i = 0; i < sizes[static_cast<std::size_t>(node)]; ++i)
      ranks.push_back({node, std::to_string(i), unit, ""});
  return ranks;
}

TEST(RankMap, FewRanksHaveALineEach) {
  std::vector<RankPlace> ranks = places({2, 1});
  ranks[2] = {1, "0-3,8", "device 0, NVIDIA H100, 79.6 GiB", "GPU-5"};
  EXPECT_EQ(map_text(ranks, hidden),
            "# rank 0: node 0, cores 0, host, 1 threads\n"
            "# rank 1: node 0, cores 1, host, 1 threads\n"
            "# rank 2: node 1, cores 0-3,8, device 0, NVIDIA H100, 79.6 GiB, GPU-5\n");
  EXPECT_THAT(map_text(ranks, shown), testing::HasSubstr("# rank 2: node 1 (cn2), cores"));
  EXPECT_THAT(map_text(ranks, hidden), testing::Not(testing::HasSubstr("cn")));
}

TEST(RankMap, ManyRanksShareLines) {
  std::vector<RankPlace> ranks(30, {0, "0-63", "host, 2 threads", ""});
  EXPECT_EQ(map_text(ranks, hidden), "# ranks 0 to 29: node 0, cores 0-63, host, 2 threads each\n");
  ranks[29].cores = "5";
  EXPECT_EQ(map_text(ranks, hidden), "# ranks 0 to 28: node 0, cores 0-63, host, 2 threads each\n"
                                     "# rank 29: node 0, cores 5, host, 2 threads\n");
}

TEST(RankMap, NodesLikeTheOneBeforeShareALine) {
  const std::vector<RankPlace> ranks = places({4, 4, 4, 7, 4});
  const std::string text = map_text(ranks, hidden);
  EXPECT_EQ(std::ranges::count(text, '\n'), 4 + 1 + 7 + 4) << text;
  EXPECT_THAT(
      text, testing::HasSubstr("\n# ranks 4 to 11: nodes 1 to 2, as on node 0\n# rank 12: node 3, cores 0"));
  EXPECT_THAT(map_text(ranks, shown),
              testing::HasSubstr("nodes 1 to 2 (cn2, cn3), as on node 0\n# rank 12: node 3 (cn4),"));
  EXPECT_THAT(map_text(places({1, 1, 15}), hidden), testing::HasSubstr("# rank 1: node 1, as on node 0\n"));
}

TEST(RankMap, ManyDevicesLeaveTheirIdentityToTheFile) {
  std::vector<RankPlace> ranks = places({8, 8, 8}, "device");
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].uuid = fmt::format("GPU-{}", r);
  const std::string text = map_text(ranks, hidden);
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("GPU-")));
  EXPECT_EQ(std::ranges::count(text, '\n'), 8 + 1) << text;
}

}  // namespace
}  // namespace minitaw::record
