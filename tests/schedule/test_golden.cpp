// SPDX-License-Identifier: BSD-3-Clause
// Whole programs as texts that a reviewer can read: data/golden. With MINITAW_RENEW_GOLDEN set, the
// test writes them instead (tests/README.md).
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {
struct Golden {
  std::string spec;
  int layers, micro_batches;
};

std::filesystem::path path_of(const std::string& file) {
  return std::filesystem::path(MINITAW_DATA) / "golden" / (file + ".txt");
}

bool renews() {
  return std::getenv("MINITAW_RENEW_GOLDEN") != nullptr;
}

class GoldenPrograms : public testing::TestWithParam<Golden> {};

INSTANTIATE_TEST_SUITE_P(Of,
    GoldenPrograms,
    testing::Values(
        Golden{"tawpipe", 4, 4}, Golden{"ddp", 2, 4}, Golden{"fsdp", 2, 4}, Golden{"zb1", 4, 3}),
    [](const auto& golden) { return golden.param.spec; });

/// On two groups of two ranks.
TEST_P(GoldenPrograms, AreWhatTheRulesGenerate) {
  const auto& [spec, layers, micro_batches] = GetParam();
  const std::string text =
      to_text(build({parse_spec(spec), topology::Groups({2, 2}), micro_batches, layers}));
  if (renews()) {
    std::ofstream(path_of(spec), std::ios::binary) << text;
    GTEST_SKIP() << "has written " << path_of(spec);
  }
  std::ifstream file(path_of(spec), std::ios::binary);
  EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(file), {})) << path_of(spec);
}
}  // namespace
}  // namespace minitaw::schedule
