// SPDX-License-Identifier: BSD-3-Clause
// Whole programs as texts that a reviewer can read: data/golden. With MINITAW_RENEW_GOLDEN set, the
// test writes them instead (tests/README.md).
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {
struct Golden {
  std::string schedule;
  std::vector<int> groups;
  int micro_batches, layers;
};

const std::vector<Golden> goldens = {
    {"fsdp", {2, 2}, 4, 1}, {"tawpipe", {2, 1}, 3, 3}, {"weipipe", {2}, 2, 2}, {"zb1", {3}, 3, 3}};

TEST(GoldenPrograms, AreWhatTheRulesGenerate) {
  for (const auto& [schedule, groups, micro_batches, layers] : goldens) {
    const std::string text =
        to_text(build({parse_spec(schedule), topology::Groups(groups), micro_batches, layers}));
    const std::string file = MINITAW_DATA "/golden/" + schedule + ".txt";
    if (std::getenv("MINITAW_RENEW_GOLDEN") != nullptr)
      std::ofstream(file, std::ios::binary) << text;
    std::ifstream stream(file, std::ios::binary);
    EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(stream), {})) << file;
  }
}
}  // namespace
}  // namespace minitaw::schedule
