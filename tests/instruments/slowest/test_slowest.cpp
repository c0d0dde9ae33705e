// SPDX-License-Identifier: BSD-3-Clause
// On three ranks.
#include <cmath>
#include <unistd.h>
#include "fixtures.hpp"
#include "harness/cases.hpp"
#include "instruments/slowest/slowest.hpp"
#include "record/sample.hpp"

namespace minitaw::slowest {
namespace {
using record::Row, topology::RankPlace;

TEST(SlowestOf, IsTheLongestTimeOverTheMedian) {
  for (const auto& [times, rank, ratio] :
      std::vector<std::tuple<std::vector<double>, int, double>>{{{2, 3, 1}, 1, 1.5},
          {{2, 1, 2, 4, 2}, 3, 2},
          {{1, 2, 4, 2}, 2, 2},
          {{1, 3}, 1, 1.5},
          {{5, 4, 5}, 0, 1}}) {  // a tie: the first one
    EXPECT_EQ(slowest_of(times).rank, rank);
    EXPECT_DOUBLE_EQ(slowest_of(times).ratio, ratio);
  }
  EXPECT_EQ(slowest_of({3}).rank, -1);
  EXPECT_TRUE(std::isnan(slowest_of({3}).ratio));
}

Row row_of(std::int64_t rank, double ratio, int ranks = 3) {
  CaseResult r = record::sample_case();
  r.found = {{"slowest_rank", rank}, {"slowest_ratio", ratio}};
  if (ranks == 1) {
    r.asked.ranks = 1;
    r.asked.groups = topology::Groups({1});
    r.bytes.clear();
  }
  return record::make_row(r);
}

Row skipped() {
  CaseResult r;
  r.asked = record::sample_case().asked;
  r.status = Status::skipped;
  return record::make_row(r);
}

TEST(Closing, NamesTheRankThatIsSlowInEveryCase) {
  const Row alone = row_of(-1, NAN, 1), unknown = row_of(-1, NAN);
  for (const auto& [rows, expected] :
      std::vector<std::pair<std::vector<Row>, std::string>>{{{row_of(2, 1.12)}, "rank 2 .* 12 %.*"},
          {{row_of(1, 1.3), alone, row_of(1, 1.2), skipped()}, "rank 1 .* 20 %.*"},
          {{row_of(2, 1.3), row_of(2, 1.1)}, ""},  // more is needed
          {{row_of(2, 1.3), row_of(1, 1.3)}, ""},
          {{row_of(2, 1.3), unknown}, ""},
          {{unknown}, ""},
          {{alone, skipped()}, ""}})
    EXPECT_THAT(remark().sentence(rows), testing::MatchesRegex(expected));
}

/// A second on these cores: 5 % and two hundredths of a second of each core are allowed.
TEST(OthersRan, AreThoseWhoAreNoRankOfTheCase) {
  using Uses = std::vector<rates::CoreUse>;  // elapsed, busy, own
  const std::vector<RankPlace> alone = {{0, {0}}, {0, {1, 2}}, {1, {0}}},
                               together = {{0, {0, 1}}, {0, {0, 1}}};
  for (const auto& [places, uses, ran] :
      std::vector<std::tuple<std::vector<RankPlace>, Uses, bool>>{
          {alone, {{1, 1.06, 1}, {1, 2.13, 2}, {1, 0.9, 1}}, false},
          {alone, {{1, 1, 1}, {1, 2, 1.8}, {1, 1, 1}}, true},
          {alone, {{1, 1, 0.92}, {1, 2, 2}, {1, 1, 1}}, true},
          {alone, {{1, 1, 1}, {1, 2, 2}}, false},                    // of two ranks
          {alone, {{0.1, 0.1, 0.08}, {1, 2, 2}, {1, 1, 1}}, false},  // two ticks of a clock
          {alone, {{1, NAN, 0}, {1, NAN, 0}, {1, NAN, 0}}, false},
          {together, {{1, 1.9, 0.9}, {1, 1.9, 1.0}}, false},
          {together, {{1, 1.9, 0.9}, {1, 1.9, 0.4}}, true},
          {{}, {}, false}})
    EXPECT_EQ(others_ran(places, uses), ran) << uses.size();
}

class Comparing : public test::InFolder {
protected:
  /// Of ranks with a core each; that of rank 2 is busy for so many seconds more after each step,
  /// says a file.
  CaseResult run(const Case& c, int seconds) {
    std::vector<RankPlace> places;
    for (int r = 0; r < 3; ++r)
      places.push_back({0, {r}, 1});
    int busy = 0;
    const auto write_busy = [&] {
      return write("stat", fmt::format("cpu{} {} 0 0 0 0 0 0 0 0 0\n", rank_, busy));
    };
    const auto comparison = std::make_shared<Comparison>(
        places[rank_].cores, rank_ == 0 ? places : std::vector<RankPlace>(), write_busy());
    harness::Limits limits;
    limits.stop = [&] {
      busy += rank_ == 2 ? seconds * static_cast<int>(sysconf(_SC_CLK_TCK)) : 0;
      write_busy();
      return harness::StopReason::no;
    };
    return harness::tests::job(engine::make_queues, {comparison}).run(c, limits).result;
  }

  int rank_ = comm::mpi::rank_in(MPI_COMM_WORLD);
};

/// The last stage of a pipeline has the LM head.
TEST_F(Comparing, IsOfTimesForTheSameWorkOfRanksThatNobodyDisturbs) {
  Case c = harness::tests::small_case("1f1b", topology::Groups({3}), 3, 1);
  c.shape.vocab = 299;
  c.steps = 3;
  const CaseResult alone = run(c, 0), disturbed = run(c, 9);
  if (rank_ != 0)
    return;
  EXPECT_EQ(record::make_row(disturbed).integer("slowest_rank"), -1);
  const schedule::Program program = schedule::build(request_of(c));
  const model::Layout layout = model::make_layout(c.shape, schedule::cut_of(program));
  std::vector<double> works(3), times;
  for (int r = 0; r < 3; ++r) {
    for (const schedule::Action& a : program.ranks[r].actions)
      works[r] += schedule::flops(a, layout);
    times.push_back(alone.time[r].compute / works[r]);
  }
  EXPECT_GT(works.back(), 1.2 * works.front());
  const Row row = record::make_row(alone);
  EXPECT_EQ(times.at(row.integer("slowest_rank")), std::ranges::max(times));
  EXPECT_NEAR(row.real("slowest_ratio"), std::ranges::max(times) / median(times), 1e-12);
}
}  // namespace
}  // namespace minitaw::slowest
