// SPDX-License-Identifier: BSD-3-Clause
// Programs of a thousand ranks fit in memory (docs/schedules.md says how long they take).
#include <gtest/gtest.h>
#include <sys/resource.h>
#include "schedule/shapes.hpp"
#include "schedule/validate.hpp"
#include "this_run.hpp"

namespace minitaw::schedule {
namespace {
constexpr double gibibyte = 1024.0 * 1024 * 1024;

/// Most memory that the process has had at once.
double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

class Scale : public testing::TestWithParam<const char*> {};

/// 32 copies on 32 ranks each, in groups of 8; 16 micro-batches per rank.
TEST_P(Scale, ThousandRanksTakeLessThanTwoGibibytes) {
  constexpr int ranks = 1024, groups = 128, per_rank = 16, layers = 32, replicas = 32;
  static_assert(sizeof(Action) <= 92);
  const Program program = build({parse_spec(GetParam()),
      topology::Groups::equal(ranks, groups),
      per_rank * ranks,
      layers,
      replicas});
  const auto violation = validate(program);
  EXPECT_FALSE(violation) << violation->message;
  EXPECT_TRUE(test::sanitized || peak_bytes() < 2 * gibibyte) << peak_bytes();
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Scale, testing::Values("tawpipe", "weipipe", "fsdp", "fsdp:hierarchical=on", "zb2"));
}  // namespace
}  // namespace minitaw::schedule
