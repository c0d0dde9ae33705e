// SPDX-License-Identifier: BSD-3-Clause
// Programs that people read: whole ones in data/golden, which the test writes instead with
// MINITAW_RENEW_GOLDEN set (tests/README.md), and the example of docs/extending.md. That its
// gradients are right is tested in tests/harness.
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include "schedule/example.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
std::string content_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(Golden, ProgramsAreWhatTheRulesGenerate) {
  const std::vector<std::tuple<std::string, Request>> goldens = {
      {"fsdp", {parse_spec("fsdp"), Groups({2, 2}), 4, 1}},
      {"tawpipe", {parse_spec("tawpipe"), Groups({2, 1}), 3, 3}},
      {"weipipe", {parse_spec("weipipe"), Groups({2}), 2, 2}},
      {"zb1", {parse_spec("zb1"), Groups({3}), 3, 3}},
      {"tied",
          {.spec = parse_spec("1f1b"),
              .groups = Groups({1, 1}),
              .layers = 2,
              .clips = true,
              .tied = true}}};
  for (const auto& [name, request] : goldens) {
    const std::string text = to_text(build(request));
    const std::string file = MINITAW_DATA "/golden/" + name + ".txt";
    if (std::getenv("MINITAW_RENEW_GOLDEN") != nullptr)
      std::ofstream(file, std::ios::binary) << text;
    EXPECT_EQ(text, content_of(file)) << file;
  }
}

TEST(Example, IsValidAndOnThePage) {
  const auto built = [](const char* groups, int per_rank, int replicas = 1) {
    const Groups given = topology::parse_groups(groups);
    const int ranks = given.ranks();
    return schedules::lend().build(
        {{"lend", {}}, given, per_rank * ranks, 2 * ranks + 1, replicas});
  };
  for (const char* groups : {"1", "3+1+2", "7"})
    for (const int per_rank : {1, 3})
      EXPECT_EQ(validate(built(groups, per_rank)), std::nullopt) << groups;
  EXPECT_EQ(validate(built("2+2", 2, 2)), std::nullopt);

  const std::string page = content_of(MINITAW_EXTENDING);
  const std::size_t begin = page.find("rank 0 slots");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_THAT(to_text(built("2+2", 1)),
      testing::HasSubstr(page.substr(begin, page.find("```", begin) - begin)));
}
}  // namespace
}  // namespace minitaw::schedule
