// SPDX-License-Identifier: BSD-3-Clause
// On three ranks.
#include <cmath>
#include <thread>
#include "fixtures.hpp"
#include "harness/cases.hpp"
#include "instruments/energy/energy.hpp"

namespace minitaw::energy {
namespace {
template <class T>
T found(const CaseResult& result, std::string_view column) {
  return std::get<T>(std::ranges::find(result.found, column, &Cells::value_type::first)->second);
}

/// A counter of each rank in a file.
class Steps : public test::InFolder {
protected:
  void count(int joules) const { write("energy", std::to_string(joules)); }

  [[nodiscard]] Meter open() const {
    count(1000);
    return Meter("", {.cray = path("energy"), .nvml = "", .rapl = ""});
  }

  /// What rank 0 has after three steps, if the rank uses so many joules in each, and before.
  CaseResult after_steps(Meter meter, const std::vector<int>& nodes, int joules) const {
    Energy reader(std::move(meter), topology::Groups(nodes));
    for (int step = 0; step < 3; ++step) {
      if (step == 0)
        count(1000 + joules);
      reader.before_step(step);
      count(1000 + joules * (step + 2));
      reader.after_step(step);
    }
    CaseResult result;
    reader.collect(MPI_COMM_WORLD, result);
    return result;
  }

  int rank_ = comm::mpi::rank_in(MPI_COMM_WORLD);
};

/// Ranks 1 and 2 share a node, of which each has half; another node has no part in the case.
TEST_F(Steps, HaveTheEnergyOfAllNodes) {
  const CaseResult result = after_steps(open(), {1, 2, 1}, 1 + rank_);
  if (rank_ != 0)
    return;
  EXPECT_DOUBLE_EQ(found<double>(result, "energy"), 3 * (1 + 2.0 / 2 + 3.0 / 2));
  EXPECT_EQ(found<std::string>(result, "energy_source"), "the node (pm_counters)");
}

TEST_F(Steps, OfARankThatCountsNothingHaveNoEnergy) {
  const CaseResult still = after_steps(open(), {1, 1, 1}, rank_ == 2 ? 0 : 2);
  const CaseResult lacking =
      after_steps(rank_ == 2 ? Meter("", {"", "", ""}) : open(), {1, 1, 1}, 2);
  if (rank_ != 0)
    return;
  EXPECT_TRUE(std::isnan(found<double>(still, "energy")));
  EXPECT_TRUE(std::isnan(found<double>(lacking, "energy")));
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
  Case c = harness::tests::small_case("ddp", topology::Groups({3}), 2, 1);
  c.warmup = 2;
  c.steps = 3;
  const auto energy = std::make_shared<Energy>(open(), topology::Groups({1, 1, 1}));
  const CaseResult result =
      harness::tests::job(engine::make_queues, {energy}).run(c, limits).result;
  if (rank_ != 0)
    return;
  EXPECT_EQ(found<double>(result, "energy"), 2 * 3) << "between the timed steps";
  EXPECT_EQ(
      found<double>(result, "energy_per_token"), 2.0 * 3 / (3 * tokens_of_step(result.asked)));
  const std::string begun = utc_text(result.clocks.at(0)[1]),
                    ended = utc_text(result.clocks.at(1)[1]);
  EXPECT_THAT(begun, testing::MatchesRegex("2.*T..:..:..[.][0-9][0-9][0-9]Z"));
  EXPECT_TRUE(times[1] < begun && begun <= times[2] && times[4] < ended);
}
}  // namespace
}  // namespace minitaw::energy
