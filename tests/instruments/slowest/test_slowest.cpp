// SPDX-License-Identifier: BSD-3-Clause
// On three ranks.
#include <cmath>
#include <unistd.h>
#include "fixtures.hpp"
#include "harness/cases.hpp"
#include "instruments/rows.hpp"
#include "instruments/slowest/slowest.hpp"
#include "record/sample.hpp"

namespace minitaw::slowest {
namespace {
using record::Row, test::Rows, topology::RankPlace;

TEST(SlowestOf, IsTheLongestTimeOverTheMedian) {
  EXPECT_EQ(slowest_of({2, 4, 1, 4}).rank, 1) << "of a tie the first one";
  EXPECT_EQ(slowest_of({2, 4, 1, 4}).ratio, 4 / 3.0);
  EXPECT_EQ(slowest_of({3}).rank, -1);
}

Row row_of(std::int64_t rank, double ratio, int ranks = 3, int steps = 4) {
  CaseResult r = record::sample_case("tawpipe", 128, steps);
  r.found = {{"slowest_rank", rank}, {"slowest_ratio", ratio}};
  r.asked.ranks = ranks;
  return record::make_row(r);
}

TEST(Closing, NamesTheRankThatIsSlowInEveryCase) {
  const Row alone = row_of(-1, NAN, 1), skipped = row_of(-1, NAN, 3, 0), unknown = row_of(-1, NAN);
  for (const auto& [rows, expected] :
      Rows<std::vector<Row>, std::string>{{{row_of(2, 1.12)}, "rank 2 .* 12 %.*"},
          {{row_of(1, 1.3), alone, row_of(1, 1.2), skipped}, "rank 1 .* 20 %.*"},
          {{row_of(2, 1.3), row_of(2, 1.1)}, ""},  // more is needed
          {{row_of(2, 1.3), row_of(1, 1.3)}, ""},
          {{row_of(2, 1.3), unknown}, ""},
          {{alone, skipped}, ""}})
    EXPECT_THAT(remark().sentence(rows), testing::MatchesRegex(expected));
}

/// A second on these cores: 5 % and two hundredths of a second of each core are allowed.
TEST(OthersRan, AreThoseWhoAreNoRankOfTheCase) {
  const std::vector<RankPlace> alone = {{0, {0}}, {0, {1, 2}}, {1, {0}}},
                               together = {{0, {0, 1}}, {0, {0, 1}}};
  using Uses = std::vector<rates::CoreUse>;  // elapsed, busy, own
  for (const auto& [places, uses, ran] : Rows<std::vector<RankPlace>, Uses, bool>{
           {alone, {{1, 1.06, 1}, {1, 2.13, 2}, {1, 0.9, 1}}, false},
           {alone, {{1, 1, 1}, {1, 2, 2}, {1, 1.08, 1}}, true},
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
    const std::vector<RankPlace> places = {{0, {0}}, {0, {1}}, {0, {2}}};
    int busy = 0;
    const auto work = [&] {
      busy += rank_ == 2 ? seconds * static_cast<int>(sysconf(_SC_CLK_TCK)) : 0;
      write("stat", fmt::format("cpu{} {} 0 0 0 0 0 0 0 0 0\n", rank_, busy));
      return harness::StopReason::no;
    };
    work();
    const auto comparison = std::make_shared<Comparison>(places[rank_].cores, places, path("stat"));
    return harness::tests::job(engine::make_queues, {comparison}).run(c, {.stop = work}).result;
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
