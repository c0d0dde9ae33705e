// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>
#include "fixtures.hpp"
#include "harness/cases.hpp"
#include "instruments/slowest/slowest.hpp"
#include "record/sample.hpp"

namespace minitaw::slowest {
namespace {
using record::Row, topology::RankPlace;

bool is_root() {
  return comm::mpi::rank_in(MPI_COMM_WORLD) == 0;
}

TEST(SlowestOf, IsTheLongestTimeOverTheMedian) {
  const auto expect = [](const std::vector<double>& times, int rank, double ratio) {
    const Slowest found = slowest_of(times);
    EXPECT_EQ(found.rank, rank);
    EXPECT_DOUBLE_EQ(found.ratio, ratio);
  };
  expect({2, 3, 1}, 1, 1.5);
  expect({2, 1, 2, 4, 2}, 3, 2);
  expect({1, 2, 4, 2}, 2, 2);
  expect({1, 3}, 1, 1.5);
  expect({5, 4, 5}, 0, 1);  // a tie: the first one
  expect({2, 2}, 0, 1);
  for (const Slowest none : {slowest_of({}), slowest_of({3})}) {
    EXPECT_EQ(none.rank, -1);
    EXPECT_TRUE(std::isnan(none.ratio));
  }
}

CaseResult result_of(int rank, double ratio) {
  CaseResult r = record::sample_case();
  r.found.clear();
  r.found.emplace_back("slowest_rank", rank);
  r.found.emplace_back("slowest_ratio", ratio);
  return r;
}

Row row_of(int rank, double ratio) {
  return record::make_row(result_of(rank, ratio));
}

Slowest found_in(const CaseResult& result) {
  const Row row = record::make_row(result);
  return {static_cast<int>(row.integer("slowest_rank")), row.real("slowest_ratio")};
}

TEST(Closing, NamesTheRankThatIsSlowInEveryCase) {
  const auto said = remark().sentence;
  const std::string text = "rank 2 computes slowest in every case, at least 12 % longer than the "
                           "median of the ranks; minitaw screen measures each alone";
  EXPECT_EQ(said({row_of(2, 1.12)}), text);
  EXPECT_EQ(said({row_of(2, 1.3), row_of(2, 1.12), row_of(2, 1.2)}), text);
  EXPECT_EQ(said({row_of(2, 1.3), row_of(2, 1.09), row_of(2, 1.2)}), "") << "10 % are needed";
  EXPECT_EQ(said({row_of(2, 1.3), row_of(1, 1.3)}), "") << "another rank";
  EXPECT_EQ(said({row_of(2, 1.3), row_of(-1, NAN)}), "") << "not known";
  EXPECT_EQ(said({row_of(-1, NAN)}), "");
  EXPECT_EQ(said({}), "");
}

TEST(Closing, LeavesOutCasesThatCompareNoRanks) {
  CaseResult alone = result_of(-1, NAN), failed;
  alone.asked.ranks = 1;
  alone.asked.groups = topology::Groups({1});
  alone.bytes.clear();
  failed.asked = record::sample_case().asked;
  failed.status = Status::skipped;
  const auto said = remark().sentence;
  const Row of_one = record::make_row(alone), of_none = record::make_row(failed);
  EXPECT_THAT(said({of_one, row_of(2, 1.2), of_none}), testing::HasSubstr("20 %"));
  EXPECT_EQ(said({of_one, of_none}), "");
}

/// A second on these cores: 5 % and two hundredths of a second of each core are allowed.
TEST(OthersRan, AreThoseWhoAreNoRankOfTheCase) {
  using Uses = std::vector<rates::CoreUse>;
  const std::vector<RankPlace> alone = {{0, {0}}, {0, {1, 2}}, {1, {0}}};
  EXPECT_FALSE(others_ran(alone, Uses{{1, 1.06, 1}, {1, 2.13, 2}, {1, 0.9, 1}}));
  EXPECT_TRUE(others_ran(alone, Uses{{1, 1, 1}, {1, 2, 1.8}, {1, 1, 1}}));
  EXPECT_TRUE(others_ran(alone, Uses{{1, 1, 0.92}, {1, 2, 2}, {1, 1, 1}}));
  EXPECT_FALSE(others_ran(alone, Uses{{0.1, 0.1, 0.08}, {1, 2, 2}, {1, 1, 1}}))
      << "two ticks of a clock";
  EXPECT_FALSE(others_ran(alone, Uses{{1, NAN, 0}, {1, NAN, 0}, {1, NAN, 0}})) << "not known";
  const std::vector<RankPlace> together = {{0, {0, 1}}, {0, {0, 1}}};
  EXPECT_FALSE(others_ran(together, Uses{{1, 1.9, 0.9}, {1, 1.9, 1.0}}));
  EXPECT_TRUE(others_ran(together, Uses{{1, 1.9, 0.9}, {1, 1.9, 0.4}}));
  EXPECT_FALSE(others_ran({}, {}));
}

/// Executes cases of ranks with these places. The core of the last rank is busy for so many seconds
/// more after each step, says a file.
class Comparing : public ::testing::Test {
protected:
  CaseResult run(int ranks, const std::vector<RankPlace>& places, int seconds = 0) {
    const std::string stat = fmt::format("stat-{}", rank_);
    int busy = 0;
    const auto write = [&] {
      std::ofstream(stat) << fmt::format("cpu{} {} 0 0 0 0 0 0 0 0 0\n", rank_, busy);
    };
    write();
    harness::CaseRunner job(MPI_COMM_WORLD,
        {.instruments = {std::make_shared<Comparison>(
             places[rank_].cores, is_root() ? places : std::vector<RankPlace>(), stat)}});
    Case c = harness::tests::small_case("ddp", topology::Groups({ranks}), ranks, 1);
    c.steps = 3;
    harness::Limits limits;
    limits.stop = [&] {
      if (rank_ == ranks_ - 1)
        busy += seconds * static_cast<int>(sysconf(_SC_CLK_TCK));
      write();
      return harness::StopReason::no;
    };
    const CaseResult result = job.run(c, limits).result;
    std::filesystem::remove(stat);
    return result;
  }

  int rank_ = comm::mpi::rank_in(MPI_COMM_WORLD), ranks_ = comm::mpi::size_of(MPI_COMM_WORLD);
};

TEST_F(Comparing, IsOfTheTimesOfRanksThatNobodyDisturbs) {
  std::vector<RankPlace> places;
  for (int r = 0; r < ranks_; ++r)
    places.push_back({0, {r}, 1});
  const CaseResult quiet = run(ranks_, places);
  const CaseResult loaded = run(ranks_, places, 9),
                   beside_load = run(std::max(1, ranks_ - 1), places, 9);
  if (!is_root())
    return;
  EXPECT_EQ(found_in(loaded).rank, -1);
  EXPECT_EQ(found_in(beside_load).rank >= 0, ranks_ > 2) << "its ranks are undisturbed";
  std::vector<double> times;
  for (const trace::RankTime& time : quiet.time)
    times.push_back(time.compute);
  const Slowest expected = slowest_of(times);  // their work is the same
  EXPECT_EQ(found_in(quiet).rank, expected.rank);
  if (ranks_ > 1) {
    EXPECT_NEAR(found_in(quiet).ratio, expected.ratio, 1e-12);
  }
}

/// The last stage of a pipeline has the LM head, and the first one has not.
TEST_F(Comparing, IsOfTimesForTheSameWork) {
  if (ranks_ == 1)
    GTEST_SKIP() << "of several ranks";
  Case c = harness::tests::small_case("1f1b", topology::Groups({ranks_}), ranks_, 1);
  c.shape.vocab = 299;
  c.steps = 3;
  harness::CaseRunner job(MPI_COMM_WORLD,
      {.instruments = {
           std::make_shared<Comparison>(std::vector<int>(), std::vector<RankPlace>())}});
  const CaseResult result = job.run(c, {}).result;
  if (!is_root())
    return;
  const schedule::Program program = schedule::build(request_of(c));
  const model::Layout layout = model::make_layout(c.shape, schedule::cut_of(program));
  std::vector<double> works(ranks_), times;
  for (int r = 0; r < ranks_; ++r) {
    for (const schedule::Action& a : program.ranks[r].actions)
      works[r] += schedule::flops(a, layout);
    times.push_back(result.time[r].compute / works[r]);
  }
  EXPECT_GT(works.back(), 1.2 * works.front());
  const Slowest expected = slowest_of(times);
  EXPECT_EQ(found_in(result).rank, expected.rank);
  EXPECT_NEAR(found_in(result).ratio, expected.ratio, 1e-12);
}
}  // namespace
}  // namespace minitaw::slowest
