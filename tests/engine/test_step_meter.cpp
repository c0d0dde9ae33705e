#include "engine/step_meter.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "cases.hpp"
#include "comm/mpi/size.hpp"
#include "engine/job.hpp"

namespace minitaw::engine {
namespace {

int world_rank() { return comm::mpi::rank_in(MPI_COMM_WORLD); }

int world_size() { return comm::mpi::size_of(MPI_COMM_WORLD); }

/// Counts up; notes what it is asked.
class Counting final : public meters::Meter {
public:
  const std::string& name() const override { return name_; }
  const std::string& fault() const override { return fault_; }
  record::DeviceSample read() override {
    asked += 'r';
    if (asked.size() == fails_at) fault_ = "it broke";
    const double value = 100.0 * world_rank() + static_cast<double>(asked.size());
    return {value, value + 0.25, value + 0.5, value + 0.75, static_cast<std::uint64_t>(world_rank())};
  }
  double energy() override {
    asked += 'e';
    return per_question * static_cast<double>(asked.size());
  }

  std::string asked;
  double per_question = 1;  ///< J
  std::size_t fails_at = 0;

private:
  std::string name_ = "made up 1.2";
  std::string fault_;
};

TEST(StepMeter, EveryRankAndStepHasItsSample) {
  Counting counting;
  counting.per_question = 1 + world_rank();
  record::CaseResult result;
  for (int repetition = 0; repetition < 2; ++repetition) {
    StepMeter meter(&counting);
    meter.begin();
    for (int step = 0; step < 3; ++step) meter.sample();
    meter.end();
    meter.collect(MPI_COMM_WORLD, result);
  }
  EXPECT_EQ(counting.asked, "errreerrre");
  if (world_rank() != 0) return;
  EXPECT_EQ(result.counters, "made up 1.2");
  ASSERT_EQ(result.device_samples.size(), 6U);
  ASSERT_EQ(result.energy.size(), 2U);
  for (int sample = 0; sample < 6; ++sample)
    for (int rank = 0; rank < world_size(); ++rank) {
      const record::DeviceSample& s = result.device_samples[sample][rank];
      EXPECT_EQ(s.clock_mhz, 100 * rank + 2 + sample + (sample > 2 ? 2 : 0));
      EXPECT_EQ(s.memory_clock_mhz - s.clock_mhz, 0.25);
      EXPECT_EQ(s.temperature_c - s.clock_mhz, 0.5);
      EXPECT_EQ(s.power_w - s.clock_mhz, 0.75);
      EXPECT_EQ(s.throttle, static_cast<std::uint64_t>(rank));
      EXPECT_EQ(result.energy[sample / 3][rank], 4 * (1 + rank));
    }
}

/// Rank `who` has this meter, the others a good one.
record::CaseResult collected(int who, Counting& bad, bool none = false) {
  Counting good;
  record::CaseResult result;
  for (int repetition = 0; repetition < 3; ++repetition) {
    StepMeter meter(who != world_rank() ? &good : none && repetition == 1 ? nullptr : &bad);
    meter.begin();
    for (int step = 0; step < 2; ++step) meter.sample();
    meter.end();
    meter.collect(MPI_COMM_WORLD, result);
  }
  return result;
}

void expect_unavailable(const record::CaseResult& result, const std::string& reason) {
  if (world_rank() != 0) return;
  EXPECT_TRUE(result.device_samples.empty() && result.energy.empty());
  const std::string who = world_size() == 1 ? "" : fmt::format("rank {}: ", world_size() - 1);
  EXPECT_EQ(result.counters, fmt::format("unavailable: {}{}", who, reason));
}

TEST(StepMeter, OneRankThatFailsInTheMiddleTakesTheCaseWithIt) {
  Counting bad;
  bad.fails_at = 7;  // in the second repetition
  expect_unavailable(collected(world_size() - 1, bad), "it broke");
}

TEST(StepMeter, OneRankWithoutMakesTheCaseUnavailableForGood) {
  Counting good;
  expect_unavailable(collected(world_size() - 1, good, true), "no NVIDIA device");
}

TEST(StepMeter, EnergyThatIsNotCountedIsLeftOut) {
  Counting without;
  without.per_question = std::nan("");
  const record::CaseResult result = collected(world_size() - 1, without);
  if (world_rank() != 0) return;
  EXPECT_EQ(result.device_samples.size(), 6U);
  if (world_size() == 1) {
    EXPECT_TRUE(result.energy.empty());
    return;
  }
  for (const std::vector<double>& ranks : result.energy) {
    EXPECT_GT(ranks.front(), 0);
    EXPECT_TRUE(std::isnan(ranks.back()));
  }
}

TEST(StepMeter, ACounterThatStandsStillHasCountedNothing) {
  Counting standing;
  standing.per_question = 0;
  const record::CaseResult result = collected(world_size() - 1, standing);
  if (world_rank() != 0) return;
  ASSERT_EQ(result.energy.size(), 3U);
  EXPECT_TRUE(std::isnan(result.energy[0].back()));
}

record::CaseResult run(const std::shared_ptr<meters::Meter>& meter, int steps) {
  Job job(MPI_COMM_WORLD,
          {.patience = std::chrono::seconds(60), .waiting = comm::mpi::patience(1, 24), .meter = meter});
  deck::Case c = tests::small_case("ddp", topology::Groups::equal(world_size(), 1), 2, 1);
  c.warmup = 2;
  c.steps = steps;
  return job.run(c, {}).result;
}

/// Through a whole case, the way the program goes, to the stand-in for NVIDIA's library.
TEST(StepMeter, ACaseIsReadThroughNvml) {
  ::setenv("FAKE_NVML", "", 1);
  const record::CaseResult result = run(meters::make_meter("GPU-1", FAKE_NVML_new), 3);
  if (world_rank() != 0) return;
  EXPECT_THAT(result.counters, testing::HasSubstr("nvml 12.580.65"));
  ASSERT_EQ(result.device_samples.size(), 3U) << "warm-up is not sampled";
  ASSERT_EQ(result.energy.size(), 1U);
  const record::Summary s = record::summarise(result);
  double joules = 0;
  for (const double rank : result.energy[0]) joules += rank;
  EXPECT_NEAR(joules, 1.5 * world_size(), 1e-9);
  EXPECT_NEAR(s.energy_per_token, joules / (3 * record::tokens_of(result.settings)), 1e-12);
  EXPECT_EQ(s.clock_min, result.device_samples[2][0].clock_mhz);
  EXPECT_EQ(s.temperature_max, result.device_samples[2][0].temperature_c);
}

TEST(StepMeter, ADeviceThatIsLostOnTheWayDoesNotEndTheCase) {
  // two readings to open the meter, two samples
  ::setenv("FAKE_NVML", world_rank() == world_size() - 1 ? "lost-after-4" : "", 1);
  const record::CaseResult result = run(meters::make_meter("GPU-1", FAKE_NVML_new), 4);
  ::setenv("FAKE_NVML", "", 1);
  expect_unavailable(result, "NVML's power: GPU is lost");
  EXPECT_EQ(result.status, record::Status::ok);
  if (world_rank() == 0) {
    EXPECT_EQ(result.seconds.size(), 4U);
  }
}

TEST(StepMeter, AHostSaysThatItHasNoDevice) {
  const record::CaseResult result = run(nullptr, 1);
  if (world_rank() == 0) {
    EXPECT_EQ(result.counters, "unavailable: no NVIDIA device");
  }
}

}  // namespace
}  // namespace minitaw::engine
