// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include "base/error.hpp"
#include "schedule/pieces.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {
TEST(Validate, AllReplicasHaveGroupsAlike) {
  const auto of_replica = [](const std::vector<int>& groups) {
    Request request;
    request.groups = topology::Groups(groups);
    request.replicas = 3;
    return request.groups_of_replica();
  };
  EXPECT_EQ(of_replica({1, 2, 1, 2, 1, 2}).text(), "1+2");
  for (const std::vector<int>& groups :
      {std::vector{1, 2, 2, 1, 1, 2}, {1, 2, 1, 2, 2, 1}, {2, 1, 1, 2, 1, 2}})
    EXPECT_THROW((void)of_replica(groups), InputError);
}

/// Sums of several ranks meet anywhere: at a border they join, and what is in both is found.
TEST(Contributions, AreFoundTwiceWhereverRunsMeet) {
  using detail::Interval, detail::Sum;
  const auto twice = [](std::vector<Interval> a, std::vector<Interval> b) {
    Sum sum(std::move(a));
    return sum.add(Sum(std::move(b)));
  };
  EXPECT_EQ(twice({{0, 2}, {5, 7}}, {{2, 5}}), -1);
  EXPECT_EQ(twice({{0, 2}}, {{1, 3}}), 1);
  EXPECT_EQ(twice({{3, 5}}, {{1, 4}}), 3);
  EXPECT_EQ(twice({{3, 5}}, {{0, 9}}), 3);
  EXPECT_EQ(twice({{3, 5}}, {{3, 4}}), 3);
  Sum sum({{0, 2}, {5, 7}});
  EXPECT_EQ(sum.add(Sum({{2, 5}, {7, 8}, {8, 9}})), -1);
  EXPECT_EQ(sum.first_missing(0), 9);
}
}  // namespace
}  // namespace minitaw::schedule
