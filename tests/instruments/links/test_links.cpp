// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include "instruments/links/links.hpp"

namespace minitaw::links {
namespace {
using testing::ElementsAre, testing::Pair;

/// The more flows, the slower; latencies tell their ranks.
class Made final : public Links {
public:
  double latency(int a, int b) override { return 10 * a + b; }

  double rate(const Flows& flows) override {
    asked.push_back(flows);
    return 60.0 / static_cast<double>(flows.size());
  }

  std::vector<Flows> asked;
};

std::vector<double> values_of(const Figures& figures) {
  std::vector<double> values;
  for (const Figure& figure : figures)
    values.push_back(figure.value);
  return values;
}

TEST(Links, InsideAreThoseOfTheFirstGroupThatHasSome) {
  Made links;
  EXPECT_THAT(
      values_of(measure_inside(links, topology::Groups({1, 2, 3}))), ElementsAre(12, 60, 30, 12));
  EXPECT_THAT(links.asked,
      ElementsAre(ElementsAre(Pair(1, 2)),
          ElementsAre(Pair(1, 2), Pair(2, 1)),
          ElementsAre(Pair(1, 2), Pair(2, 1), Pair(3, 4), Pair(4, 5), Pair(5, 3))));
  EXPECT_TRUE(measure_inside(links, topology::Groups({1, 1})).empty());
}

/// The busiest group is the last, of three ranks.
TEST(Links, BetweenGroupsAddUpToWhatAnAdapterCarries) {
  Made links;
  EXPECT_THAT(values_of(measure_between(links, topology::Groups({2, 1, 3}))),
      ElementsAre(2, 60, 2 * 30, 3 * 10));
  EXPECT_THAT(links.asked,
      ElementsAre(ElementsAre(Pair(0, 2)),
          ElementsAre(Pair(0, 2), Pair(1, 2)),
          ElementsAre(Pair(0, 2), Pair(1, 2), Pair(2, 3), Pair(3, 0), Pair(4, 1), Pair(5, 0))));
  EXPECT_TRUE(measure_between(links, topology::Groups({3})).empty());
}

TEST(Links, ALatencyIsHalfOfTheMedianRound) {
  EXPECT_EQ(latency_of({9, 1, 4}), 2);
  EXPECT_EQ(latency_of({}), 0);
}
}  // namespace
}  // namespace minitaw::links
