// SPDX-License-Identifier: BSD-3-Clause
// The example schedule of docs/extending.md is valid at many shapes, and its text is the one on the
// page. That its gradients are right is tested in tests/harness.
#include "fixtures.hpp"
#include "schedule/example.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
TEST(Example, IsValidAndOnThePage) {
  const auto built = [](const char* groups, int per_rank, int replicas = 1) {
    const topology::Groups given = topology::parse_groups(groups);
    const int ranks = given.ranks();
    return schedules::lend().build(
        {{"lend", {}}, given, per_rank * ranks, 2 * ranks + 1, replicas});
  };
  for (const char* groups : {"1", "3", "1+1+1", "3+1+2", "2+2+2", "7"})
    for (const int per_rank : {1, 3})
      EXPECT_EQ(validate(built(groups, per_rank)), std::nullopt) << groups;
  EXPECT_EQ(validate(built("2+2", 2, 2)), std::nullopt);

  std::ifstream file(MINITAW_EXTENDING);
  const std::string page(std::istreambuf_iterator<char>(file), {}), text = to_text(built("2+2", 1));
  const std::size_t begin = page.find("rank 0 slots");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_NE(text.find(page.substr(begin, page.find("```", begin) - begin)), std::string::npos)
      << text;
}
}  // namespace
}  // namespace minitaw::schedule
