// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include "miniapp/progress.hpp"
#include "record/sample.hpp"

namespace minitaw::app {
namespace {
using namespace record;
using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

Case a_case(int seq, int repeats) {
  Case c = sample_case("tawpipe", seq).asked;
  c.repeats = repeats;
  return c;
}

/// Rows of a case: so many repetitions that ended ok, then one that did not.
std::vector<Row> ended(const Case& c, Status status, int repetitions) {
  CaseResult r = sample_case();
  r.asked = c;
  std::vector<Row> rows;
  const int number = static_cast<int>(c.shape.seq);
  for (int i = 0; i < repetitions; ++i)
    rows.push_back(make_row(r, {number, i}));
  if (status != Status::ok) {
    fail(r, "because");
    r.status = status;
    rows.push_back(make_row(r, {number, repetitions}));
  }
  return rows;
}

std::vector<Row> joined(const std::vector<std::vector<Row>>& parts) {
  std::vector<Row> all;
  for (const std::vector<Row>& rows : parts)
    all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

using P = std::pair<std::size_t, int>;

std::vector<P> pairs(const RemainingRuns& remaining) {
  std::vector<P> found;
  for (const Run& run : remaining.runs)
    found.emplace_back(run.index, run.repetition);
  return found;
}

TEST(RemainingRuns, IsAllRepetitionsInTheOrderOfTheDeck) {
  const RemainingRuns remaining =
      remaining_runs({a_case(5, 2), a_case(6, 1), a_case(7, 3)}, {}, {});
  EXPECT_THAT(pairs(remaining), ElementsAre(P{0, 0}, P{0, 1}, P{1, 0}, P{2, 0}, P{2, 1}, P{2, 2}));
  EXPECT_THAT(remaining.notes, IsEmpty());
}

TEST(RemainingRuns, GoesOnWhereTheFileEnds) {
  const std::vector cases = {a_case(5, 2), a_case(6, 3), a_case(7, 2)};
  const std::vector rows = joined({ended(cases[2], Status::ok, 2), ended(cases[1], Status::ok, 1)});
  EXPECT_THAT(
      pairs(remaining_runs(cases, rows, {})), ElementsAre(P{0, 0}, P{0, 1}, P{1, 1}, P{1, 2}));
  EXPECT_THAT(pairs(remaining_runs({a_case(6, 3)}, ended(a_case(6, 2), Status::ok, 2), {})),
      ElementsAre(P{0, 2}));
}

/// Of a file with another case, one that lacks a repetition, a whole one, and failures.
TEST(Sweep, IsEndedWhereEveryCaseHasAllRepetitionsOrAFailure) {
  const std::vector cases = {a_case(5, 2), a_case(6, 2), a_case(7, 2), a_case(8, 2), a_case(9, 2)};
  const std::vector rows = rows_of(cases,
      joined({ended(a_case(4, 1), Status::ok, 1),
          ended(cases[2], Status::ok, 1),
          ended(cases[1], Status::ok, 2),
          ended(cases[3], Status::wrong, 0),
          ended(cases[4], Status::skipped, 0)}));
  std::vector<std::int64_t> lengths;
  for (const Row& row : rows)
    lengths.push_back(row.integer("seq"));
  EXPECT_THAT(lengths, ElementsAre(7, 6, 6, 8, 9));
  EXPECT_EQ(count_ended(rows), 3U);
}

TEST(RemainingRuns, FailedCasesStayAndSayWhyUnlessTheyAreRetried) {
  const std::vector cases = {a_case(5, 2), a_case(6, 1), a_case(7, 1), a_case(8, 1), a_case(9, 1)};
  const std::vector rows = joined({ended(cases[0], Status::oom, 1),
      ended(cases[1], Status::timeout, 0),
      ended(cases[2], Status::wrong, 0),
      ended(cases[3], Status::error, 0),
      ended(cases[4], Status::skipped, 0)});
  const RemainingRuns remaining = remaining_runs(cases, rows, {});
  EXPECT_THAT(pairs(remaining), ElementsAre(P{4, 0})) << "there may be more memory now";
  EXPECT_THAT(remaining.notes,
      ElementsAre(HasSubstr("oom: because; --retry"),
          HasSubstr("timeout: because"),
          HasSubstr("wrong: because"),
          HasSubstr("error: because")));
  const RemainingRuns again = remaining_runs(cases, rows, {.retry = true});
  EXPECT_THAT(pairs(again), ElementsAre(P{0, 1}, P{1, 0}, P{2, 0}, P{3, 0}, P{4, 0}));
  EXPECT_THAT(again.notes, IsEmpty());
}

TEST(RemainingRuns, InterleavesAndNumbersTheRepetitionsInTheirOrder) {
  const std::vector cases = {a_case(5, 4), a_case(6, 4), a_case(7, 4)};
  const std::vector rows = ended(cases[1], Status::ok, 2);
  const auto plain = pairs(remaining_runs(cases, rows, {}));
  const auto order = pairs(remaining_runs(cases, rows, {.interleave = true}));
  EXPECT_EQ(order, pairs(remaining_runs(cases, rows, {.interleave = true})));
  EXPECT_TRUE(std::ranges::is_permutation(order, plain));
  for (std::size_t i = 0; i < order.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_TRUE(order[i].first != order[j].first || order[j].second < order[i].second);
  const auto changes =
      std::ranges::adjacent_find(order, [](const P& a, const P& b) { return a.first > b.first; });
  EXPECT_NE(changes, order.end()) << "a case is run again after another one";
}

TEST(RemainingRuns, TheCaseThatRanWhenTheJobDiedComesLast) {
  const std::vector cases = {a_case(5, 2), a_case(6, 1), a_case(7, 1)};
  const RemainingRuns remaining =
      remaining_runs(cases, {}, {.interrupted = deck::identity(cases[0])});
  EXPECT_THAT(pairs(remaining), ElementsAre(P{1, 0}, P{2, 0}, P{0, 0}, P{0, 1}));
}

TEST(TimeLimit, IsThatOfTheUserOrOfTheSlurmJob) {
  EXPECT_EQ(TimeLimit(5400.0).name(), "the time limit of 5400 s");
  EXPECT_GT(TimeLimit(std::nullopt).left(), 1e9) << "there is none";
  EXPECT_NEAR(TimeLimit(100.0).left(), 90, 5) << "a tenth is for the end";
  EXPECT_NEAR(TimeLimit(1000.0).left(), 970, 5);
}
}  // namespace
}  // namespace minitaw::app
