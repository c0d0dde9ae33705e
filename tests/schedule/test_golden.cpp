// SPDX-License-Identifier: BSD-3-Clause
// Whole programs as texts that a reviewer can read: data/golden. With MINITAW_RENEW_GOLDEN set, the
// test writes them instead (tests/README.md).
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {
struct Golden {
  std::string file, spec;
  std::vector<int> groups;
  int micro_batches, layers;
  int replicas = 1;
  bool clips = false;
  int context = 1;
};

/// A family each, with a switch that changes its form.
const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = {
      {"serial", "serial", {1}, 2, 2},
      {"ddp_clipped", "ddp", {2}, 2, 2, 1, true},
      {"fsdp", "fsdp", {1, 1}, 2, 2},
      {"fsdp_kept_in_groups",
          "fsdp:hierarchical=on:reshard=group:fetch=step:reduce=group",
          {2, 2},
          8,
          2},
      {"1f1b_chunks_replicas", "1f1b:chunks=2", {2, 2}, 4, 4, 2},
      {"zb1", "zb1", {3}, 3, 3},
      {"zbv_clipped", "zbv:blocking=on", {2}, 3, 4, 1, true},
      {"weipipe", "weipipe", {3}, 3, 3},
      {"tawpipe", "tawpipe", {2, 1}, 3, 3},
      {"tawpipe_rails_kept", "tawpipe:rails=2:reshard=group:reduce=group", {2, 2}, 8, 4},
      {"tawpipe_passed_on", "tawpipe:dbs=off:cco=off", {1, 1, 1}, 3, 3},
      {"tawpipe_context", "tawpipe", {2, 2}, 2, 4, 1, false, 2},
      {"zb1_context", "zb1", {4}, 3, 3, 1, false, 2},
      {"tawpipe_kept_whole", "tawpipe:reshard=none:reduce=none", {1, 1}, 4, 2},
  };
  return all;
}

std::filesystem::path path_of(const std::string& file) {
  return std::filesystem::path(MINITAW_DATA) / "golden" / (file + ".txt");
}

bool renews() {
  return std::getenv("MINITAW_RENEW_GOLDEN") != nullptr;
}

class GoldenPrograms : public testing::TestWithParam<Golden> {};

TEST_P(GoldenPrograms, AreWhatTheRulesGenerate) {
  const Golden& golden = GetParam();
  Request request{parse_spec(golden.spec),
      topology::Groups(golden.groups),
      golden.micro_batches,
      golden.layers,
      golden.replicas,
      golden.clips};
  request.context = golden.context;
  request.costs.block = 1;
  const std::string text = to_text(build(request));
  if (renews()) {
    std::ofstream(path_of(golden.file), std::ios::binary) << text;
    GTEST_SKIP() << "has written " << path_of(golden.file);
  }
  std::ifstream file(path_of(golden.file), std::ios::binary);
  EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(file), {})) << path_of(golden.file);
}

INSTANTIATE_TEST_SUITE_P(Of, GoldenPrograms, testing::ValuesIn(goldens()), [](const auto& golden) {
  return golden.param.file;
});

TEST(GoldenFiles, HaveAProgramEachAndEveryScheduleHasOne) {
  if (renews())
    GTEST_SKIP() << "while they are written";
  std::set<std::string> files, expected, schedules, registered;
  for (const auto& entry : std::filesystem::directory_iterator(path_of("").parent_path()))
    files.insert(entry.path().stem());
  for (const Golden& golden : goldens()) {
    expected.insert(golden.file);
    schedules.insert(parse_spec(golden.spec).name);
  }
  for (const Entry& entry : registry())
    if (!entry.needs_file && entry.name != "zb2")  // zb1's rule with another number
      registered.insert(entry.name);
  EXPECT_EQ(files, expected);
  EXPECT_EQ(schedules, registered);
}
}  // namespace
}  // namespace minitaw::schedule
