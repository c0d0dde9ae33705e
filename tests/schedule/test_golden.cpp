// SPDX-License-Identifier: BSD-3-Clause
// Golden programs: the text of each schedule at a size that can be read line by line. Every text in this
// folder is generated again from its own first lines. When a rule changes on purpose, read the new text
// before you accept it: MINITAW_ACCEPT_GOLDEN=1 ctest -R schedule_golden

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>

#include "schedule/parse.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {
std::string read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// What the program in a text was built for. Programs know shards, not layers: as many layers do.
Request request_of(const Program& program) {
  return {parse_spec(program.schedule), program.groups, program.micro_batches, program.shards, program.replicas};
}

/// The texts in this folder.
std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(MINITAW_GOLDEN_DIR))
    if (entry.path().extension() == ".txt" && entry.path().filename() != "CMakeLists.txt")
      files.push_back(entry.path().filename());
  std::ranges::sort(files);
  return files;
}

class GoldenText : public testing::TestWithParam<std::string> {};

TEST_P(GoldenText, IsWhatTheRulesGenerate) {
  const std::string path = std::string(MINITAW_GOLDEN_DIR "/") + GetParam();
  const Program golden = parse_program(read(path));
  const std::string text = to_text(build(request_of(golden)));
  if (std::getenv("MINITAW_ACCEPT_GOLDEN") != nullptr) std::ofstream(path) << text;
  EXPECT_EQ(text, read(path));
  EXPECT_EQ(to_text(golden), read(path));
}

INSTANTIATE_TEST_SUITE_P(Schedules, GoldenText, testing::ValuesIn(golden_files()));

TEST(GoldenText, EveryScheduleHasOne) {
  std::set<std::string> names;
  for (const std::string& file : golden_files())
    names.insert(parse_spec(parse_program(read(std::string(MINITAW_GOLDEN_DIR "/") + file)).schedule).name);
  for (const Entry& entry : registry()) EXPECT_TRUE(names.contains(entry.name)) << entry.name;
}
}  // namespace
}  // namespace minitaw::schedule
