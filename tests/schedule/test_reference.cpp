// SPDX-License-Identifier: BSD-3-Clause
// Generated programs train as a plain step does, in whichever order their lanes go on: the
// reference simulator runs them on numbers and knows nothing of the validator.
#include <gtest/gtest.h>
#include "schedule/shapes.hpp"

namespace minitaw::schedule {
[[nodiscard]] std::string simulate_on_numbers(const Program& program, std::uint64_t seed);

namespace {
void expect_right(const std::string& spec,
    const char* groups,
    int micro_batches,
    int layers,
    int replicas = 1,
    bool clips = false) {
  const Request request = shapes::with_enough_layers(
      {parse_spec(spec), topology::parse_groups(groups), micro_batches, layers, replicas, clips});
  if (!possible(request))
    return;
  const Program program = build(request);
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    ASSERT_EQ(simulate_on_numbers(program, seed), "") << shapes::name_of(request) << ", " << seed;
}

TEST(ReferenceSimulator, FindsEveryScheduleRightInAnyOrder) {
  for (const std::string& spec : shapes::joined({shapes::tawpipe_specs(), shapes::other_specs()})) {
    expect_right(spec, "2+2", 4, 4);
    expect_right(spec, "1+2+1", 8, 5);
    expect_right(spec, "3", 6, 3);
    expect_right(spec, "2+2", 8, 2, 2);
  }
  for (const std::string& spec : shapes::keeping_specs()) {
    expect_right(spec, "2+2", 8, 4);
    expect_right(spec, "2+3+1", 12, 6);
  }
}

TEST(ReferenceSimulator, FindsClippedStepsAndUnequalGroupsRight) {
  for (const char* spec : {"ddp", "fsdp", "zbv", "zb1", "tawpipe", "weipipe"})
    expect_right(spec, "2+2", 8, 4, 2, true);
  expect_right("ddp", "2+1", 3, 3, 1, true);
  for (const auto& [spec, groups, layers] : {std::tuple{"tawpipe", "3+1", 4},
           {"tawpipe:prefetch=3", "1+2+3", 6},
           {"tawpipe:dbs=off", "2+2+2", 6},
           {"tawpipe:rails=2", "2+3", 5},
           {"tawpipe", "2+1+1+1", 5},
           {"serial", "1", 3}})
    expect_right(spec, groups, layers, layers);
}
}  // namespace
}  // namespace minitaw::schedule
