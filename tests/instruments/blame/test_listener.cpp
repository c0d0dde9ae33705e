// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>
#include "harness/cases.hpp"
#include "instruments/blame/listener.hpp"

namespace minitaw::blame {
namespace {
harness::CaseRunner job_with(Finder::Job job) {
  return {MPI_COMM_WORLD, {.instruments = {std::make_shared<Finder>(std::move(job))}}};
}

std::string text_of(const CaseResult& result) {
  const auto text = result.values_of<std::string>("blame/text");
  return text.empty() ? "" : text.front();
}

/// A second on these cores: 5 % and two hundredths of a second of each core are allowed.
TEST(CoreLoad, OthersAreThoseWhoAreNoRankOfTheCase) {
  using topology::RankPlace;
  using Uses = std::vector<rates::CoreUse>;
  const std::vector<RankPlace> alone = {{0, {0}}, {0, {1, 2}}, {1, {0}}};
  EXPECT_EQ(taken_by_others(alone, Uses{{1, 1.06, 1}, {1, 2.13, 2}, {1, 0.9, 1}}), "");
  EXPECT_EQ(taken_by_others(alone, Uses{{1, 1, 1}, {1, 2, 1.8}, {1, 1, 0.5}}),
      "other programs take 50 % of the cores of rank 2");
  EXPECT_EQ(taken_by_others(alone, Uses{{1, 1, 1}, {1, 2, 1.8}, {1, 1, 1}}),
      "other programs take 10 % of the cores of rank 1");
  EXPECT_EQ(taken_by_others(alone, Uses{{1, 1, 0.92}, {1, 2, 2}, {1, 1, 1}}),
      "other programs take 8 % of the cores of rank 0");
  EXPECT_EQ(taken_by_others(alone, Uses{{0.1, 0.1, 0.08}, {1, 2, 2}, {1, 1, 1}}), "")
      << "two ticks of a clock";
  EXPECT_EQ(taken_by_others(alone, Uses{{1, NAN, 0}, {1, NAN, 0}, {1, NAN, 0}}), "") << "not known";
  const std::vector<RankPlace> together = {{0, {0, 1}}, {0, {0, 1}}};
  EXPECT_EQ(taken_by_others(together, Uses{{1, 1.9, 0.9}, {1, 1.9, 1.0}}), "");
  EXPECT_EQ(taken_by_others(together, Uses{{1, 1.9, 0.9}, {1, 1.9, 0.4}}),
      "other programs take 30 % of the cores of rank 0");
  EXPECT_EQ(taken_by_others({}, {}), "");
}

/// The core of rank 1 is busy for 9 s more after each step, says the file.
TEST(CoreLoad, NoRankIsNamedBesideOtherPrograms) {
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD), ranks = comm::mpi::size_of(MPI_COMM_WORLD);
  if (ranks == 1)
    GTEST_SKIP() << "no rank is named";
  const std::string stat = fmt::format("stat-{}", rank);
  int busy = 0;
  const auto write = [&] {
    std::ofstream(stat) << fmt::format("cpu{} {} 0 0 0 0 0 0 0 0 0\n", rank, busy);
  };
  std::vector<topology::RankPlace> places;
  for (int r = 0; r < ranks; ++r)
    places.push_back({0, {r}, 1});
  for (const bool loaded : {true, false}) {
    write();
    harness::CaseRunner job = job_with({topology::Groups({ranks}), places, false, stat});
    Case c = harness::tests::small_case("ddp", topology::Groups({ranks}), 2, 1);
    c.steps = 3;
    harness::Limits limits;
    limits.stop = [&] {
      if (loaded && rank == 1)
        busy += 9 * static_cast<int>(sysconf(_SC_CLK_TCK));
      write();
      return harness::StopReason::no;
    };
    const CaseResult result = job.run(c, limits).result;
    if (rank > 0)
      continue;
    const bool told =
        text_of(result).find(" % of the cores of rank 1; minitaw screen") != std::string::npos;
    EXPECT_EQ(told, loaded) << text_of(result);
  }
  std::filesystem::remove(stat);
}

/// The last rank has the core of the first one.
TEST(Finder, NoRankIsNamedWhereRanksOfTheCaseShareCores) {
  const int ranks = comm::mpi::size_of(MPI_COMM_WORLD);
  std::vector<topology::RankPlace> places;
  for (int r = 0; r < ranks; ++r)
    places.push_back({0, {r % std::max(1, ranks - 1)}, 1});
  harness::CaseRunner job = job_with({topology::Groups({ranks}), places});
  for (const int used : {ranks, ranks - 1}) {
    if (used < 2)
      continue;
    Case c = harness::tests::small_case("ddp", topology::Groups({used}), 2, 1);
    c.steps = 3;
    const CaseResult result = job.run(c, {}).result;
    if (job.rank() > 0)
      continue;
    const bool judged = used < ranks;
    EXPECT_EQ(text_of(result).find("is judged: 2 threads of ranks 0") == std::string::npos, judged)
        << text_of(result);
    EXPECT_TRUE(judged || result.values_of<std::string>("blame/culprit")[0].empty());
  }
}
}  // namespace
}  // namespace minitaw::blame
