// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include "miniapp/progress.hpp"
#include "record/sample.hpp"

namespace minitaw::app {
namespace {
using namespace record;
using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

Case a_case(int seq, int repeats) {
  Case c = sample_case("tawpipe", seq).settings;
  c.repeats = repeats;
  return c;
}

/// The row of a case that ended like this, with so many repetitions.
Row ended(const Case& c, Status status, int repetitions) {
  CaseResult r = sample_case("tawpipe", static_cast<int>(c.shape.seq));
  r.settings = c;
  r.status = status;
  r.reason = "because";
  const std::vector<std::vector<double>> once = r.seconds;
  r.seconds.clear();
  for (int i = 0; i < repetitions; ++i)
    r.seconds.insert(r.seconds.end(), once.begin(), once.end());
  return make_row(r);
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
  const std::vector rows = {ended(cases[2], Status::ok, 2), ended(cases[1], Status::ok, 1)};
  EXPECT_THAT(
      pairs(remaining_runs(cases, rows, {})), ElementsAre(P{0, 0}, P{0, 1}, P{1, 1}, P{1, 2}));
  EXPECT_THAT(pairs(remaining_runs({a_case(6, 3)}, {ended(a_case(6, 2), Status::ok, 2)}, {})),
      ElementsAre(P{0, 2}));
}

/// Of a file with another case, one that lacks a repetition, a whole one, and failures.
TEST(Sweep, IsEndedWhereEveryCaseHasAllRepetitionsOrAFailure) {
  const std::vector cases = {a_case(5, 2), a_case(6, 2), a_case(7, 2), a_case(8, 2), a_case(9, 2)};
  const std::vector rows = rows_of(cases,
      {ended(a_case(4, 1), Status::ok, 1),
          ended(cases[2], Status::ok, 1),
          ended(cases[1], Status::ok, 2),
          ended(cases[3], Status::wrong, 1),
          ended(cases[4], Status::skipped, 0)});
  std::vector<std::int64_t> lengths;
  for (const Row& row : rows)
    lengths.push_back(row.integer("seq"));
  EXPECT_THAT(lengths, ElementsAre(7, 6, 8, 9));
  EXPECT_EQ(count_ended(rows), 3U);
}

TEST(RemainingRuns, FailedCasesStayAndSayWhyUnlessTheyAreRetried) {
  const std::vector cases = {a_case(5, 2), a_case(6, 1), a_case(7, 1), a_case(8, 1), a_case(9, 1)};
  const std::vector rows = {ended(cases[0], Status::oom, 1),
      ended(cases[1], Status::timeout, 0),
      ended(cases[2], Status::wrong, 1),
      ended(cases[3], Status::error, 0),
      ended(cases[4], Status::skipped, 0)};
  const RemainingRuns remaining = remaining_runs(cases, rows, {});
  EXPECT_THAT(pairs(remaining), ElementsAre(P{4, 0})) << "there may be more memory now";
  EXPECT_THAT(remaining.notes,
      ElementsAre(HasSubstr("oom: because; --retry"),
          HasSubstr("timeout: because"),
          HasSubstr("wrong: because"),
          HasSubstr("error: because")));
  const RemainingRuns again = remaining_runs(cases, rows, {.retry = true});
  EXPECT_THAT(pairs(again), ElementsAre(P{0, 0}, P{0, 1}, P{1, 0}, P{2, 0}, P{3, 0}, P{4, 0}));
  EXPECT_THAT(again.notes, IsEmpty());
}

TEST(RemainingRuns, InterleavesBySeedAndNumbersTheRepetitionsInTheirOrder) {
  const std::vector cases = {a_case(5, 4), a_case(6, 4), a_case(7, 4)};
  const std::vector rows = {ended(cases[1], Status::ok, 2)};
  const auto plain = pairs(remaining_runs(cases, rows, {}));
  std::vector<std::vector<P>> orders;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    auto order = pairs(remaining_runs(cases, rows, {.interleave = seed}));
    EXPECT_EQ(order, pairs(remaining_runs(cases, rows, {.interleave = seed})));
    EXPECT_TRUE(std::ranges::is_permutation(order, plain));
    for (std::size_t i = 0; i < order.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        EXPECT_TRUE(order[i].first != order[j].first || order[j].second < order[i].second);
    orders.push_back(std::move(order));
  }
  std::ranges::sort(orders);
  EXPECT_GT(std::unique(orders.begin(), orders.end()) - orders.begin(), 15);
}

TEST(RemainingRuns, TheCaseThatRanWhenTheJobDiedComesLast) {
  const std::vector cases = {a_case(5, 2), a_case(6, 1), a_case(7, 1)};
  const RemainingRuns remaining =
      remaining_runs(cases, {}, {.interrupted = deck::identity(cases[0])});
  EXPECT_THAT(pairs(remaining), ElementsAre(P{1, 0}, P{2, 0}, P{0, 0}, P{0, 1}));
}

TEST(SweepProgress, ReckonsByTheFlopsOfTheRunsSoFar) {
  Case twice = a_case(64, 1);
  twice.warmup = 2 * (twice.warmup + twice.steps) - twice.steps;
  SweepProgress progress({a_case(64, 1), twice}, {{0, 0}, {1, 0}, {0, 1}, {1, 1}});
  EXPECT_EQ(progress.after({}), "[1/4, 0:00 to go]") << "what ended early tells nothing";
  EXPECT_EQ(progress.after(20), "[2/4, 0:30 to go]");
  EXPECT_EQ(progress.after(40), "[3/4, 0:40 to go]");
}

TEST(SweepProgress, WhatIsLeftOutTakesNoTime) {
  SweepProgress progress({a_case(64, 2)}, {{0, 0}, {0, 1}, {0, 2}});
  progress.leave_out();
  EXPECT_EQ(progress.after(20), "[2/3, 0:20 to go]");
}

TEST(SweepProgress, OfOneMicroBatchOneRankComputesAtATime) {
  const Case six = a_case(64, 1);  // micro-batches, on three ranks
  Case one = six;
  one.micro_batches = 1;
  SweepProgress progress({six, one}, {{0, 0}, {1, 0}});
  EXPECT_EQ(progress.after(20), "[1/2, 0:10 to go]");
}

TEST(SweepProgress, Clock) {
  for (const auto& [seconds, text] :
      {std::pair{0, "0:00"}, {65, "1:05"}, {2 * 3600 + 3 * 60 + 4, "2:03:04"}})
    EXPECT_EQ(clock_text(seconds), text);
}
}  // namespace
}  // namespace minitaw::app
