// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include "miniapp/progress.hpp"
#include "record/sample.hpp"

namespace minitaw::app {
namespace {
using record::make_row, record::Row, record::sample_case;
using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

/// With so many repetitions each; they differ in their lengths, from 5 on.
std::vector<Case> cases_of(const std::vector<int>& repeats) {
  std::vector<Case> cases;
  for (const int count : repeats) {
    cases.push_back(sample_case("tawpipe", 5 + static_cast<int>(cases.size())).asked);
    cases.back().repeats = count;
  }
  return cases;
}

/// A case of a file: so many repetitions that ended ok, then, perhaps, one that did not.
struct Ended {
  Case asked;
  int repetitions = 0;
  Status then = Status::ok;
};

std::vector<Row> file_of(const std::vector<Ended>& all) {
  std::vector<Row> rows;
  for (const auto& [asked, repetitions, then] : all) {
    CaseResult r = sample_case();
    r.asked = asked;
    const int number = static_cast<int>(asked.shape.seq);
    for (int i = 0; i < repetitions; ++i)
      rows.push_back(make_row(r, {number, i}));
    if (then == Status::ok)
      continue;
    fail(r, "because");
    r.status = then;
    rows.push_back(make_row(r, {number, repetitions}));
  }
  return rows;
}

/// Two digits for each run: its case and its repetition.
std::vector<std::string> digits(const RemainingRuns& remaining) {
  std::vector<std::string> found;
  for (const Run& run : remaining.runs)
    found.push_back(fmt::format("{}{}", run.index, run.repetition));
  return found;
}

TEST(RemainingRuns, IsAllRepetitionsInTheOrderOfTheDeck) {
  const RemainingRuns remaining = remaining_runs(cases_of({2, 1, 3}), {}, {});
  EXPECT_THAT(digits(remaining), ElementsAre("00", "01", "10", "20", "21", "22"));
  EXPECT_THAT(remaining.notes, IsEmpty());
}

TEST(RemainingRuns, GoesOnWhereTheFileEnds) {
  const std::vector cases = cases_of({2, 3, 2});
  const std::vector rows = file_of({{cases[2], 2}, {cases[1], 1}});
  EXPECT_THAT(digits(remaining_runs(cases, rows, {})), ElementsAre("00", "01", "11", "12"));
  EXPECT_THAT(
      digits(remaining_runs(cases_of({3}), file_of({{cases[0], 2}}), {})), ElementsAre("02"));
}

TEST(RemainingRuns, FailedCasesStayAndSayWhyUnlessTheyAreRetried) {
  const std::vector cases = cases_of({2, 1, 1, 1, 1});
  const std::vector rows = file_of({{cases[0], 1, Status::oom},
      {cases[1], 0, Status::timeout},
      {cases[2], 0, Status::wrong},
      {cases[3], 0, Status::error},
      {cases[4], 0, Status::skipped}});
  const RemainingRuns remaining = remaining_runs(cases, rows, {});
  EXPECT_THAT(digits(remaining), ElementsAre("40")) << "there may be more memory now";
  EXPECT_THAT(remaining.notes,
      ElementsAre(HasSubstr("oom: because; --retry"),
          HasSubstr("timeout: because"),
          HasSubstr("wrong: because"),
          HasSubstr("error: because")));
  const RemainingRuns again = remaining_runs(cases, rows, {.retry = true});
  EXPECT_THAT(digits(again), ElementsAre("01", "10", "20", "30", "40"));
  EXPECT_THAT(again.notes, IsEmpty());
}

TEST(RemainingRuns, InterleavesAndNumbersTheRepetitionsInTheirOrder) {
  const std::vector cases = cases_of({4, 4, 4});
  const std::vector rows = file_of({{cases[1], 2}});
  const auto order = digits(remaining_runs(cases, rows, {.interleave = true}));
  EXPECT_EQ(order, digits(remaining_runs(cases, rows, {.interleave = true})));
  std::string cases_in_order, repetitions[3];
  for (const std::string& run : order) {
    cases_in_order += run[0];
    repetitions[run[0] - '0'] += run[1];
  }
  EXPECT_THAT(repetitions, ElementsAre("0123", "23", "0123"));
  EXPECT_FALSE(std::ranges::is_sorted(cases_in_order)) << "a case is run again after another one";
}

/// Once more, last; a skipped one does not count as tried.
TEST(RemainingRuns, ACaseInWhichTheJobDiedIsTriedLastAndOnce) {
  const std::vector cases = cases_of({2, 1, 2});
  const auto after = [&](const std::vector<Status>& ends, bool retry = false) {
    std::vector<Row> rows;
    for (const Status end : ends) {
      CaseResult r = sample_case();
      r.asked = cases[0];
      r.status = end;
      if (end == Status::error)
        r.reason = fmt::format("{}: a reason", record::job_died);
      rows.push_back(make_row(r, {0, 0}));
    }
    return remaining_runs(cases, rows, {.retry = retry});
  };
  using enum Status;
  for (const std::vector<Status>& once : {std::vector{error}, {error, skipped}}) {
    const RemainingRuns remaining = after(once);
    EXPECT_THAT(digits(remaining), ElementsAre("10", "20", "21", "00", "01"));
    EXPECT_THAT(remaining.notes, IsEmpty());
  }
  EXPECT_THAT(after({error}).last, ElementsAre(HasSubstr("once more")));
  EXPECT_THAT(digits(after({error, ok})), ElementsAre("10", "20", "21", "01"));
  for (const std::vector<Status>& twice : {std::vector{error, error}, {error, skipped, error}}) {
    EXPECT_THAT(digits(after(twice)), ElementsAre("10", "20", "21"));
    EXPECT_THAT(after(twice).notes, ElementsAre(HasSubstr("a reason; --retry")));
    EXPECT_THAT(after(twice).last, IsEmpty());
    EXPECT_THAT(digits(after(twice, true)), ElementsAre("10", "20", "21", "00", "01"));
  }
}

TEST(TimeLimit, IsThatOfTheUserOrOfTheSlurmJob) {
  EXPECT_EQ(TimeLimit(5400.0).name(), "the time limit of 5400 s");
  EXPECT_GT(TimeLimit(std::nullopt).left(), 1e9) << "there is none";
  EXPECT_NEAR(TimeLimit(100.0).left(), 90, 5) << "a tenth is for the end";
  EXPECT_NEAR(TimeLimit(1000.0).left(), 970, 5);
}
}  // namespace
}  // namespace minitaw::app
