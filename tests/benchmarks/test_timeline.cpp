// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <gmock/gmock.h>
#include "timeline.hpp"

namespace minitaw::kernel_times {
namespace {
using testing::HasSubstr;
constexpr std::uint64_t bound = 2000;

/// Of the activities the later half counts: as many before them that must not. The latest comes
/// first.
std::vector<Activity> after_warm_up(std::vector<Activity> steady) {
  std::vector<Activity> all;
  for (std::size_t i = 0; i < steady.size(); ++i)
    all.push_back({"warm-up", 100000 * i, 100000 * i + 1});
  for (Activity& activity : steady) {
    activity.begin += 10000000;
    activity.end += 10000000;
    all.push_back(std::move(activity));
  }
  std::ranges::reverse(all);
  return all;
}

TEST(Timeline, SumsByNameMostTimeFirst) {
  const Summary found =
      summarize(after_warm_up({{"a", 0, 1000}, {"b", 1500, 9500}, {"a", 10000, 14000}}), bound);
  EXPECT_EQ(std::tuple(found.activities, found.span, found.busy), std::tuple(3, 14000U, 13000U));
  ASSERT_EQ(found.totals.size(), 2U);
  EXPECT_EQ(found.totals[0].name, "b");
  EXPECT_EQ(std::tuple(found.totals[1].calls, found.totals[1].time), std::tuple(2, 5000U));
  EXPECT_TRUE(found.gaps.empty());
}

TEST(Timeline, CountsGapsAboveTheBoundByTheirNeighbours) {
  const Summary found = summarize(
      after_warm_up({{"a", 0, 1000}, {"b", 3000, 4000}, {"a", 6001, 7000}, {"b", 12000, 12500}}),
      bound);
  ASSERT_EQ(found.gaps.size(), 2U);  // the first is just 2 us: not above
  EXPECT_EQ(found.gaps[0].before + found.gaps[0].after, "ab");
  EXPECT_EQ(std::tuple(found.gaps[0].count, found.gaps[0].longest), std::tuple(1, 5000U));
  EXPECT_EQ(found.gaps[1].together, 2001U);
}

TEST(Timeline, KernelsOfSeveralStreamsCoverEachOthersGaps) {
  const Summary found = summarize(
      after_warm_up(
          {{"long", 0, 20000}, {"a", 1000, 2000}, {"b", 9000, 10000}, {"c", 21000, 22000}}),
      bound);
  EXPECT_TRUE(found.gaps.empty());
  EXPECT_EQ(std::tuple(found.busy, found.span), std::tuple(21000U, 22000U));
}

TEST(Timeline, ReportsWhatItFound) {
  const std::string text =
      report(summarize(after_warm_up({{"a", 0, 1000}, {"b", 5000, 7000}}), bound), bound);
  for (const char* words : {"2 kernels, copies and fills in 0.007 ms, busy 42.86 %",
           "gaps above 2 us: 1, together 57.143 %",
           "| b | 1 | 0.002 | 28.57 % | 2.0 |",
           "| a | b | 1 | 4.0 | 57.143 % |"})
    EXPECT_THAT(text, HasSubstr(words));
  EXPECT_THAT(report(summarize({}, bound), bound), HasSubstr("0 kernels"))
      << "and no division by zero";
}
}  // namespace
}  // namespace minitaw::kernel_times
