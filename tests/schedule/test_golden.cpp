// SPDX-License-Identifier: BSD-3-Clause
// Check sums of what the rules generate, so that no program changes unnoticed. When a rule changes
// on purpose, compare the programs of before and after (`minitaw plan --program`), and then put the
// line that the test prints here.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include "schedule/shapes.hpp"

namespace minitaw::schedule {
namespace {
const std::string accepted = R"(
1f1b    d8dbc92e4e51057b
ddp     888e37c6105c38a9
fsdp    fd4df5a19df2354d
serial  7541b069805b4911
tawpipe a3974e1280755fc5
weipipe 155f6e6df564034b
zb1     3209b1254f8608e3
zb2     39ee4fc9bc839fe9
zbv     e8a06e3c6594c617
)";

/// FNV-1a.
void add(std::uint64_t& sum, const std::string& text) {
  for (const char letter : text)
    sum = (sum ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
}

/// A line for every schedule: of its programs with all options, clipped and not, on groups of some
/// numbers of ranks.
TEST(GoldenPrograms, AreWhatTheRulesGenerate) {
  std::map<std::string, std::uint64_t> sums;
  for (const Entry& entry : registry())
    if (!entry.needs_file)
      sums[entry.name] = 0xcbf29ce484222325;
  const std::vector<std::string> specs = shapes::joined(
      {{"serial"}, shapes::other_specs(), shapes::tawpipe_specs(), shapes::keeping_specs()});
  for (const int ranks : {1, 4, 6})
    shapes::for_each_request(ranks, specs, 2, 2, [&](Request request) {
      for (const bool clips : {false, true}) {
        request.clips = clips;
        add(sums.at(request.spec.name), to_text(build(request)));
      }
    });
  std::string found = "\n";
  for (const auto& [name, sum] : sums)
    found += fmt::format("{:7} {:016x}\n", name, sum);
  EXPECT_EQ(found, accepted);
}
}  // namespace
}  // namespace minitaw::schedule
