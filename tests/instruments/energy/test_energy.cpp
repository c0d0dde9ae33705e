// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <thread>
#include "fixtures.hpp"
#include "harness/cases.hpp"
#include "instruments/energy/energy.hpp"

namespace minitaw::energy {
namespace {
int world_rank() {
  return comm::mpi::rank_in(MPI_COMM_WORLD);
}

int world_size() {
  return comm::mpi::size_of(MPI_COMM_WORLD);
}

template <class T>
T found(const CaseResult& result, std::string_view column) {
  const auto at = std::ranges::find(result.found, column, &Cells::value_type::first);
  return std::get<T>(at->second);
}

/// A counter of each rank in a file.
class Steps : public test::InFolder {
protected:
  Steps() { count(1000); }

  void count(int joules) const { write("energy", std::to_string(joules)); }

  [[nodiscard]] Meter open() const {
    return Meter("", {.cray = path("energy"), .nvml = "", .rapl = ""});
  }

  /// What rank 0 has after three steps, the rank uses so many joules in each, and before and after.
  CaseResult after_three_steps(Meter meter, const topology::Groups& nodes, int joules) const {
    Energy reader(std::move(meter), nodes);
    int now = 1000;
    for (int step = 0; step < 3; ++step) {
      count(now += step == 0 ? joules : 0);
      reader.before_step(step);
      count(now += joules);
      reader.after_step(step);
    }
    CaseResult result;
    reader.collect(MPI_COMM_WORLD, result);
    return result;
  }
};

/// Each rank has a node of its own, and another node has no part in the case.
TEST_F(Steps, HaveTheEnergyOfAllRanks) {
  const auto nodes = topology::Groups::equal(world_size() + 1, world_size() + 1);
  const CaseResult result = after_three_steps(open(), nodes, 1 + world_rank());
  if (world_rank() != 0)
    return;
  EXPECT_DOUBLE_EQ(found<double>(result, "energy"), 3.0 * world_size() * (world_size() + 1) / 2);
  EXPECT_EQ(found<std::string>(result, "energy_source"), "the node (pm_counters)");
}

/// The first rank has a node of its own, the others share one.
TEST_F(Steps, HaveEqualPartsOfANode) {
  const int others = world_size() - 1;
  const topology::Groups nodes(others > 0 ? std::vector{1, others, 1} : std::vector{1});
  const CaseResult result = after_three_steps(open(), nodes, 2);
  if (world_rank() == 0) {
    EXPECT_DOUBLE_EQ(found<double>(result, "energy"), others > 0 ? 12 : 6);
  }
}

TEST_F(Steps, OfARankThatCountsNothingHaveNoEnergy) {
  const auto nodes = topology::Groups::equal(world_size(), world_size());
  const bool is_last = world_rank() == world_size() - 1;
  const CaseResult still = after_three_steps(open(), nodes, is_last ? 0 : 2);
  const CaseResult lacking =
      after_three_steps(is_last ? Meter("", {"", "", ""}) : open(), nodes, 2);
  if (world_rank() != 0)
    return;
  for (const CaseResult* result : {&still, &lacking})
    EXPECT_TRUE(std::isnan(found<double>(*result, "energy")));
  EXPECT_EQ(found<std::string>(still, "energy_source"), "the node (pm_counters)");
  EXPECT_THAT(found<std::string>(lacking, "energy_source"), testing::StartsWith("unavailable: "));
}

/// Three steps are timed after two of warm-up; a joule is used after every step.
TEST_F(Steps, OfACaseAreReadAfterItsWarmUp) {
  harness::Limits limits;
  std::vector<std::string> times;
  limits.stop = [&] {
    count(1000 + static_cast<int>(times.size()));
    times.push_back(utc_now());
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return harness::StopReason::no;
  };
  Case c = harness::tests::small_case("ddp", topology::Groups::equal(world_size(), 1), 2, 1);
  c.warmup = 2;
  c.steps = 3;
  const auto energy =
      std::make_shared<Energy>(open(), topology::Groups::equal(world_size(), world_size()));
  const CaseResult result =
      harness::tests::job(engine::make_queues, {energy}).run(c, limits).result;
  if (world_rank() != 0)
    return;
  EXPECT_EQ(found<double>(result, "energy"), 2 * world_size()) << "between the timed steps";
  EXPECT_EQ(found<double>(result, "energy_per_token"),
      2 * world_size() / (3 * tokens_of_step(result.asked)));
  EXPECT_THAT(result.begun, testing::MatchesRegex("2.*T..:..:..[.][0-9][0-9][0-9]Z"));
  EXPECT_TRUE(times[1] < result.begun && result.begun <= times[2] && times[4] < result.ended);
}
}  // namespace
}  // namespace minitaw::energy
