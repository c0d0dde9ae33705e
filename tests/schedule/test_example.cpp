// SPDX-License-Identifier: BSD-3-Clause
// The example schedule of docs/extending.md is valid at many shapes, and its text is the one on the
// page. That its gradients are right is tested in tests/harness.
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include "schedule/example.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
Program example(const topology::Groups& groups, int per_rank, int replicas = 1) {
  const Request request{
      {"lend", {}}, groups, per_rank * groups.ranks(), 2 * groups.ranks() + 1, replicas};
  return schedules::lend().build(request);
}

TEST(Example, IsValidAtEveryShape) {
  for (int ranks = 1; ranks <= 7; ++ranks)
    for (int groups = 1; groups <= ranks; ++groups) {
      if (ranks % groups != 0)
        continue;
      for (const int per_rank : {1, 3})
        EXPECT_EQ(validate(example(topology::Groups::equal(ranks, groups), per_rank)), std::nullopt)
            << ranks << " ranks in " << groups << " groups";
    }
  EXPECT_EQ(validate(example(topology::Groups({3, 1, 2}), 2)), std::nullopt);
  EXPECT_EQ(validate(example(topology::Groups({2, 2}), 2, 2)), std::nullopt) << "two replicas";
}

TEST(Example, ItsTextIsOnThePage) {
  std::ifstream file(MINITAW_EXTENDING);
  const std::string page(std::istreambuf_iterator<char>(file), {});
  const std::size_t begin = page.find("rank 0 slots");
  ASSERT_NE(begin, std::string::npos);
  const std::string shown = page.substr(begin, page.find("```", begin) - begin);
  const std::string text = to_text(example(topology::Groups({2, 2}), 1));
  EXPECT_NE(text.find(shown), std::string::npos) << text;
}
}  // namespace
}  // namespace minitaw::schedule
