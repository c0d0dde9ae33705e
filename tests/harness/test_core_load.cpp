// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <unistd.h>
#include "fixtures.hpp"
#include "harness/case_runner.hpp"
#include "harness/taken.hpp"
#include "instruments/blame/core_load.hpp"

namespace minitaw::harness {
namespace {
using test::Says, tests::world_rank, tests::world_size;

/// A second on these cores: 5 % and two hundredths of a second of each core are allowed.
TEST(CoreLoad, OthersAreThoseWhoAreNoRankOfTheCase) {
  using topology::RankCores;
  using Uses = std::vector<CoreUse>;
  const std::vector<RankCores> alone = {{0, {0}}, {0, {1, 2}}, {1, {0}}};
  EXPECT_EQ(taken_by_others(alone, Uses{{1, 1.06, 1}, {1, 2.13, 2}, {1, 0.9, 1}}), "");
  EXPECT_THAT(taken_by_others(alone, Uses{{1, 1, 1}, {1, 2, 1.8}, {1, 1, 0.5}}),
      Says({"other programs", " 50 %", "rank 2"}));
  EXPECT_THAT(taken_by_others(alone, Uses{{1, 1, 1}, {1, 2, 1.8}, {1, 1, 1}}),
      Says({"other programs", " 10 %", "rank 1"}));
  EXPECT_THAT(taken_by_others(alone, Uses{{1, 1, 0.92}, {1, 2, 2}, {1, 1, 1}}),
      Says({"other programs", " 8 %", "rank 0"}));
  EXPECT_EQ(taken_by_others(alone, Uses{{0.1, 0.1, 0.08}, {1, 2, 2}, {1, 1, 1}}), "")
      << "two ticks of a clock";
  EXPECT_EQ(taken_by_others(alone, Uses{{1, NAN, 0}, {1, NAN, 0}, {1, NAN, 0}}), "") << "not known";
  const std::vector<RankCores> together = {{0, {0, 1}}, {0, {0, 1}}};
  EXPECT_EQ(taken_by_others(together, Uses{{1, 1.9, 0.9}, {1, 1.9, 1.0}}), "");
  EXPECT_THAT(taken_by_others(together, Uses{{1, 1.9, 0.9}, {1, 1.9, 0.4}}),
      Says({"other programs", " 30 %", "rank 0"}));
  EXPECT_EQ(taken_by_others({}, {}), "");
}

/// The core of rank 1 is busy for 9 s more after each step, says the file.
TEST(CoreLoad, NobodyIsNamedBesideOtherPrograms) {
  const int rank = world_rank(), ranks = world_size();
  if (ranks == 1)
    GTEST_SKIP() << "nobody is named";
  const std::string stat = fmt::format("stat-{}", rank);
  int busy = 0;
  const auto write = [&] {
    std::ofstream(stat) << fmt::format("cpu{} {} 0 0 0 0 0 0 0 0 0\n", rank, busy);
  };
  std::vector<topology::RankCores> cores;
  for (int r = 0; r < ranks; ++r)
    cores.push_back({0, {r}, 1});
  for (const bool loaded : {true, false}) {
    write();
    CaseRunner job(MPI_COMM_WORLD, {.cores = cores, .stat = stat});
    Case c = tests::small_case("ddp", topology::Groups({ranks}), 2, 1);
    c.steps = 3;
    Limits limits;
    limits.stop = [&] {
      if (loaded && rank == 1)
        busy += 9 * static_cast<int>(sysconf(_SC_CLK_TCK));
      write();
      return StopReason::no;
    };
    const CaseResult result = job.run(c, limits).result;
    if (rank > 0)
      continue;
    const auto told = Says({" %", "cores of rank 1;"});
    EXPECT_EQ(testing::Value(result.blame.text, told), loaded) << result.blame.text;
  }
  std::filesystem::remove(stat);
}
}  // namespace
}  // namespace minitaw::harness
