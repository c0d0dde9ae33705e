// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include "harness/case_runner.hpp"
#include "harness/taken.hpp"

namespace minitaw::harness {
namespace {
using tests::world_rank, tests::world_size;

/// Counts up; notes what it is asked.
class Counting final : public meters::Meter {
public:
  Counting() { name_ = "made up 1.2"; }

  DeviceSample read() override {
    asked += 'r';
    if (asked.size() == fails_at)
      fault_ = "it broke";
    const double value = 100.0 * world_rank() + static_cast<double>(asked.size());
    return {
        value, value + 0.25, value + 0.5, value + 0.75, static_cast<std::uint64_t>(world_rank())};
  }

  double energy() override {
    asked += 'e';
    return per_question * static_cast<double>(asked.size());
  }

  std::string asked;
  double per_question = 1;  ///< J
  std::size_t fails_at = 0;
};

TEST(StepMeter, EveryRankAndStepHasItsSample) {
  Counting counting;
  counting.per_question = 1 + world_rank();
  CaseResult result;
  for (int repetition = 0; repetition < 2; ++repetition) {
    StepMeter meter(counting);
    meter.begin();
    for (int step = 0; step < 3; ++step)
      meter.sample();
    meter.collect(MPI_COMM_WORLD, result.device);
  }
  EXPECT_EQ(counting.asked, "errreerrre");
  if (world_rank() != 0)
    return;
  EXPECT_EQ(result.device.source, "made up 1.2");
  ASSERT_EQ(result.device.samples.size(), 6U);
  ASSERT_EQ(result.device.energy.size(), 2U);
  for (int sample = 0; sample < 6; ++sample)
    for (int rank = 0; rank < world_size(); ++rank) {
      const DeviceSample& s = result.device.samples[sample][rank];
      const double clock = 100 * rank + 2 + sample + (sample > 2 ? 2 : 0);
      EXPECT_EQ(std::tuple(s.clock_mhz, s.memory_clock_mhz, s.temperature_c, s.power_w, s.throttle),
          std::tuple(
              clock, clock + 0.25, clock + 0.5, clock + 0.75, static_cast<std::uint64_t>(rank)));
      EXPECT_EQ(result.device.energy[sample / 3][rank], 4 * (1 + rank));
    }
}

/// Rank `who` has this meter, the others a good one.
CaseResult collected(int who, Counting& bad, bool none = false) {
  Counting good;
  meters::Meter nothing("no NVIDIA device");
  CaseResult result;
  for (int repetition = 0; repetition < 3; ++repetition) {
    StepMeter meter(who != world_rank() ? good : none && repetition == 1 ? nothing : bad);
    meter.begin();
    for (int step = 0; step < 2; ++step)
      meter.sample();
    meter.collect(MPI_COMM_WORLD, result.device);
  }
  return result;
}

void expect_unavailable(const CaseResult& result, const std::string& reason) {
  if (world_rank() != 0)
    return;
  EXPECT_TRUE(result.device.samples.empty() && result.device.energy.empty());
  const std::string who = world_size() == 1 ? "" : fmt::format("rank {}: ", world_size() - 1);
  EXPECT_EQ(result.device.source, fmt::format("unavailable: {}{}", who, reason));
}

TEST(StepMeter, OneRankThatFailsInTheMiddleOrHasNoneTakesTheCaseWithIt) {
  Counting bad, good;
  bad.fails_at = 7;  // in the second repetition
  expect_unavailable(collected(world_size() - 1, bad), "it broke");
  expect_unavailable(collected(world_size() - 1, good, true), "no NVIDIA device");
}

/// The first rank has a node of its own, the others share one, whose first rank reads. A node has
/// no part in the case.
TEST(StepMeter, OfANodeGivesItsRanksEqualParts) {
  Counting counting;
  meters::Meter none("read by another rank");
  counting.per_question = 1 + world_rank();
  const int others = world_size() - 1;
  StepMeter meter(world_rank() < 2 ? counting : none,
      topology::Groups(others > 0 ? std::vector{1, others, 1} : std::vector{1}));
  Readings readings;
  meter.begin();
  meter.sample();
  meter.collect(MPI_COMM_WORLD, readings);
  if (world_rank() != 0)
    return;
  for (int rank = 0; rank < world_size(); ++rank) {
    const int first = rank == 0 ? 0 : 1, parts = rank == 0 ? 1 : others;
    EXPECT_NEAR(readings.energy.at(0)[rank], 2.0 * (1 + first) / parts, 1e-12);
    EXPECT_NEAR(readings.samples.at(0)[rank].power_w, (2.75 + 100 * first) / parts, 1e-12);
  }
}

TEST(StepMeter, EnergyThatIsNotCountedIsLeftOut) {
  for (const double per_question : {std::nan(""), 0.0}) {  // none is told; the counter stands still
    Counting without;
    without.per_question = per_question;
    const CaseResult result = collected(world_size() - 1, without);
    if (world_rank() != 0)
      continue;
    EXPECT_EQ(result.device.samples.size(), 6U);
    EXPECT_EQ(result.device.energy.size(), world_size() == 1 && std::isnan(per_question) ? 0U : 3U);
    for (const std::vector<double>& ranks : result.device.energy) {
      EXPECT_TRUE(world_size() == 1 || ranks.front() > 0);
      EXPECT_TRUE(std::isnan(ranks.back()));
    }
  }
}

TEST(StepMeter, OfACaseIsReadAfterItsTimedSteps) {
  const auto meter = std::make_shared<Counting>();
  Limits limits;
  std::vector<std::string> times;
  limits.stop = [&] {
    meter->asked += '|';  // behind every step
    times.push_back(utc_now(true));
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return StopReason::no;
  };
  Case c = tests::small_case("ddp", topology::Groups::equal(world_size(), 1), 2, 1);
  c.warmup = 2;
  c.steps = 3;
  const auto node =
      world_rank() == 0 ? std::make_shared<Counting>() : std::make_shared<meters::Meter>();
  const CaseResult result = tests::job({.meter = meter, .node_meter = node}).run(c, limits).result;
  EXPECT_EQ(meter->asked, "||er|r|r|e") << "two steps of warm-up";
  if (world_rank() != 0)
    return;
  for (int rank = 0; rank < world_size(); ++rank) {  // equal parts of what rank 0 has read
    EXPECT_NEAR(result.node.energy.at(0)[rank], 4.0 / world_size(), 1e-12);
    EXPECT_NEAR(result.node.samples.at(0)[rank].power_w, 2.75 / world_size(), 1e-12);
  }
  EXPECT_THAT(
      result.begun, testing::ElementsAre(testing::MatchesRegex("2.*T..:..:..[.][0-9][0-9][0-9]Z")));
  EXPECT_TRUE(
      times[1] < result.begun[0] && result.begun[0] <= times[2] && times[4] < result.ended.at(0));
}
}  // namespace
}  // namespace minitaw::harness
