// SPDX-License-Identifier: BSD-3-Clause
// A program takes no more memory, however many replicas there are (docs/performance.md).
#include <gtest/gtest.h>
#include <sys/resource.h>
#include "schedule/account.hpp"
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

Request request_for(const std::string& spec, int replicas) {
  constexpr int ranks = 32, groups = 4, per_rank = 16, layers = 32;
  return {parse_spec(spec),
      topology::Groups::equal(replicas * ranks, replicas * groups),
      per_rank * replicas * ranks,
      layers,
      replicas};
}

class Scale : public testing::TestWithParam<const char*> {};

/// 320 replicas of 32 ranks each, in groups of 8; 16 micro-batches per rank.
TEST_P(Scale, TenThousandRanksTakeTheMemoryOfOneReplica) {
  static_assert(sizeof(Action) <= 92);
  const Program two = build(request_for(GetParam(), 2)), all = build(request_for(GetParam(), 320));
  EXPECT_EQ(all.job_ranks(), 10'240);
  EXPECT_EQ(program_bytes(all), program_bytes(two));
  const auto violation = validate(all);
  EXPECT_FALSE(violation) << violation->message;
  EXPECT_TRUE(test::sanitized || peak_bytes() < gibibyte / 4) << peak_bytes();
}

INSTANTIATE_TEST_SUITE_P(Schedules, Scale, testing::Values("tawpipe", "zb2"));
}  // namespace
}  // namespace minitaw::schedule
