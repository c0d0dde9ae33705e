// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <thread>
#include "harness/cases.hpp"
#include "instruments/energy/listener.hpp"

namespace minitaw::energy {
namespace {
int world_rank() {
  return comm::mpi::rank_in(MPI_COMM_WORLD);
}

int world_size() {
  return comm::mpi::size_of(MPI_COMM_WORLD);
}

/// Counts up; notes what it is asked.
class Counting final : public Meter {
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

/// A meter read before, between and after three steps.
Readings read_three_steps(Meter& meter, const topology::Groups* nodes = nullptr) {
  StepMeter reader(meter, 3, nodes);
  for (int step = 0; step < 3; ++step) {
    reader.before_step(step);
    reader.after_step(step);
  }
  return reader.collect(MPI_COMM_WORLD);
}

TEST(StepMeter, EveryRankAndStepHasItsSample) {
  Counting counting;
  counting.per_question = 1 + world_rank();
  const Readings read = read_three_steps(counting);
  EXPECT_EQ(counting.asked, "errre");
  if (world_rank() != 0)
    return;
  EXPECT_EQ(read.source, "made up 1.2");
  ASSERT_EQ(read.samples.size(), 3U);
  ASSERT_EQ(read.energy.size(), static_cast<std::size_t>(world_size()));
  for (int step = 0; step < 3; ++step)
    for (int rank = 0; rank < world_size(); ++rank) {
      const DeviceSample& s = read.samples[step][rank];
      const double clock = 100 * rank + 2 + step;
      EXPECT_EQ(std::tuple(s.clock_mhz, s.memory_clock_mhz, s.temperature_c, s.power_w, s.throttle),
          std::tuple(
              clock, clock + 0.25, clock + 0.5, clock + 0.75, static_cast<std::uint64_t>(rank)));
      EXPECT_EQ(read.energy[rank], 4 * (1 + rank));
    }
}

/// The last rank has this meter, the others a good one.
Readings read_with(Meter& last) {
  Counting good;
  return read_three_steps(world_rank() == world_size() - 1 ? last : good);
}

void expect_unavailable(const Readings& read, const std::string& reason) {
  if (world_rank() != 0)
    return;
  EXPECT_TRUE(read.samples.empty() && read.energy.empty());
  const std::string who = world_size() == 1 ? "" : fmt::format("rank {}: ", world_size() - 1);
  EXPECT_EQ(read.source, fmt::format("unavailable: {}{}", who, reason));
}

TEST(StepMeter, OneRankThatFailsInTheMiddleOrHasNoneTakesTheCaseWithIt) {
  Counting bad;
  bad.fails_at = 3;
  expect_unavailable(read_with(bad), "it broke");
  Meter none("no NVIDIA device");
  expect_unavailable(read_with(none), "no NVIDIA device");
}

/// The first rank has a node of its own, the others share one, whose first rank reads. A node has
/// no part in the case.
TEST(StepMeter, OfANodeGivesItsRanksEqualParts) {
  Counting counting;
  Meter none("read by another rank");
  counting.per_question = 1 + world_rank();
  const int others = world_size() - 1;
  const topology::Groups nodes(others > 0 ? std::vector{1, others, 1} : std::vector{1});
  const Readings readings = read_three_steps(world_rank() < 2 ? counting : none, &nodes);
  if (world_rank() != 0)
    return;
  for (int rank = 0; rank < world_size(); ++rank) {
    const int first = rank == 0 ? 0 : 1, parts = rank == 0 ? 1 : others;
    EXPECT_NEAR(readings.energy.at(rank), 4.0 * (1 + first) / parts, 1e-12);
    EXPECT_NEAR(readings.samples.at(0)[rank].power_w, (2.75 + 100 * first) / parts, 1e-12);
  }
}

TEST(StepMeter, EnergyThatIsNotCountedIsLeftOut) {
  for (const double per_question : {std::nan(""), 0.0}) {  // none is told; the counter stands still
    Counting without;
    without.per_question = per_question;
    const Readings read = read_with(without);
    if (world_rank() != 0)
      continue;
    EXPECT_EQ(read.samples.size(), 3U);
    if (world_size() == 1 && std::isnan(per_question)) {
      EXPECT_TRUE(read.energy.empty());
      continue;
    }
    EXPECT_TRUE(world_size() == 1 || read.energy.front() > 0);
    EXPECT_TRUE(std::isnan(read.energy.back()));
  }
}

TEST(StepMeter, OfACaseIsReadAfterItsTimedSteps) {
  const auto meter = std::make_shared<Counting>();
  harness::Limits limits;
  std::vector<std::string> times;
  limits.stop = [&] {
    meter->asked += '|';  // after every step
    times.push_back(utc_now(true));
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return harness::StopReason::no;
  };
  Case c = harness::tests::small_case("ddp", topology::Groups::equal(world_size(), 1), 2, 1);
  c.warmup = 2;
  c.steps = 3;
  const auto of_node = world_rank() == 0 ? std::make_shared<Counting>() : std::make_shared<Meter>();
  const auto devices = std::make_shared<Energy>(meter);
  const auto nodes = std::make_shared<Energy>(of_node, topology::Groups::equal(world_size(), 1));
  const CaseResult result =
      harness::tests::job(engine::make_queues, {devices, nodes}).run(c, limits).result;
  EXPECT_EQ(meter->asked, "||er|r|re|") << "two steps of warm-up";
  if (world_rank() != 0)
    return;
  const auto joules = result.values_of<double>("node/energy");
  const auto watts = result.values_of<double>("node/power");
  for (int rank = 0; rank < world_size(); ++rank) {  // equal parts of what rank 0 has read
    EXPECT_NEAR(joules[rank], 4.0 / world_size(), 1e-12);
    EXPECT_NEAR(watts[rank], 2.75 / world_size(), 1e-12);
  }
  EXPECT_THAT(
      result.begun, testing::ElementsAre(testing::MatchesRegex("2.*T..:..:..[.][0-9][0-9][0-9]Z")));
  EXPECT_TRUE(
      times[1] < result.begun[0] && result.begun[0] <= times[2] && times[4] < result.ended.at(0));
}
}  // namespace
}  // namespace minitaw::energy
