// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <gmock/gmock.h>
#include "base/clocks.hpp"

namespace minitaw {
namespace {
/// By clocks that began at different moments.
std::string judged(const ClockSeconds& passed) {
  const ClockSeconds begin = {100, 1784367000, 7};
  return disagreement(begin, {begin[0] + passed[0], begin[1] + passed[1], begin[2] + passed[2]});
}

TEST(Clocks, MayDifferByAThousandthAndASlack) {
  EXPECT_EQ(judged({10, 10.009, 10.009}), "");
  EXPECT_EQ(judged({1e-5, 3e-5, 0}), "") << "they are not read at once";
  for (std::size_t clock = 0; clock < 3; ++clock)
    for (const double other : {9.989, 10.011}) {
      ClockSeconds passed = {10, 10, 10};
      passed[clock] = other;
      EXPECT_NE(judged(passed), "") << clock << ": " << other;
    }
  EXPECT_NE(judged({2e-4, 1e-4, 1e-4}), "") << "twice as long, however short";
  EXPECT_NE(judged({10, -3, 10}), "") << "somebody has set the clock";
}

TEST(Clocks, AreTwoWhereTheCounterIsNotKnown) {
  EXPECT_EQ(judged({10, 10, NAN}), "");
  EXPECT_EQ(judged({10, 20, NAN}),
      "the clocks disagree about the time of all steps: monotonic 10.000000 s, real 20.000000 s, "
      "counter not known");
}

TEST(Clocks, OfThisMachineAgree) {
  const ClockReading begin = read_clocks();
  ClockReading end = begin;
  while (end.monotonic < begin.monotonic + 0.02)
    end = read_clocks();
  const auto [first, last] = seconds_of(begin, end);
  EXPECT_EQ(disagreement(first, last), "");
  EXPECT_FALSE(last[2] <= first[2]) << "it counts, or is not known";
}
}  // namespace
}  // namespace minitaw
