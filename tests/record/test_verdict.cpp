// SPDX-License-Identifier: BSD-3-Clause
#include "fixtures.hpp"
#include "record/verdict.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {
using test::Says;
using testing::AllOf, testing::ElementsAre, testing::StartsWith;

/// Of the sample: its steps take 0.75, 1.75, 2.75 and 3.75 s.
const std::string noisy_by = "noisy: quartiles 67 % of the median apart";

auto doubted(const std::vector<std::string>& words) {
  return AllOf(StartsWith("VALID ("), Says(words));
}

auto invalid(const std::vector<std::string>& words) {
  return AllOf(StartsWith("INVALID: "), Says(words));
}

/// A finished case that takes the same time in each step, whatever the rank.
CaseResult steady_case(double seconds = 2) {
  CaseResult r = sample_case("ddp");
  r.seconds.assign(4, {seconds, seconds, seconds});
  return r;
}

std::string verdict_of(const CaseResult& r) {
  return record::verdict_of(MeasuredRun(r, {}));
}

TEST(Verdict, OfARun) {
  CaseResult r = sample_case(), wrong = steady_case(), uncounted = steady_case();
  r.asked.warmup = 0;
  EXPECT_THAT(verdict_of(r), doubted({"no warm-up; ", noisy_by}));
  for (const double longer : {1.104, 1.106}) {  // quartiles 9.9 and 10.1 % of the median apart
    CaseResult near = steady_case();
    for (std::size_t i = 0; i < 4; ++i)
      near.seconds[i] = {0.5, i < 2 ? 1 : longer, 0.75};
    EXPECT_EQ(verdict_of(near),
        longer < 1.105 ? "VALID" : "VALID (noisy: quartiles 10 % of the median apart)");
  }
  wrong.status = Status::wrong;
  wrong.reason = "loss is not a number";
  uncounted.bytes[3].counted += 1;
  EXPECT_THAT(verdict_of(sample_case("tawpipe", 128, 2)), invalid({"2 timed steps"}));
  EXPECT_THAT(verdict_of(wrong), invalid({"wrong", wrong.reason}));
  EXPECT_THAT(verdict_of(uncounted), invalid({"bytes"}));
}

TEST(Verdict, OfASweep) {
  EXPECT_THAT(verdict({}), invalid({"no case"}));
  std::vector<Row> rows = {
      make_row(sample_case("ddp"), {5}), make_row(sample_case("tawpipe"), {6})};
  EXPECT_THAT(verdict(rows),
      doubted({"2 of 2 cases", "case 5 (ddp, 3 ranks in groups 1+2, 128 tokens)", noisy_by}));
  EXPECT_THAT(verdict(rows, {rows[0].text("identity"), "another", "a third"}),
      invalid({"unfinished cases: 2"}));
  EXPECT_THAT(verdict(rows, {"another"}, "stopped by SIGHUP"),
      invalid({"stopped by SIGHUP, unfinished cases: 1"}));
  rows.push_back(make_row(sample_case("tawpipe", 64, 1), {8}));
  EXPECT_THAT(verdict(rows),
      invalid({"1 of 3 cases",
          "case 8 (tawpipe, 3 ranks in groups 1+2, 64 tokens, steps 1)",
          "1 timed step",
          "at least 3"}));
}

TEST(Verdict, OfACaseIsThatOfItsWorstRepetitionAndItsRateTheirMedian) {
  CaseResult r = steady_case();
  r.asked.repeats = 3;
  r.asked.warmup = 0;
  std::vector<Row> rows = {make_row(r, {0, 0}), make_row(r, {0, 1})};
  EXPECT_THAT(verdict(rows), invalid({"2 of 3 repetitions"}));
  r.seconds = steady_case(3).seconds;
  rows.push_back(make_row(r, {0, 2}));
  EXPECT_THAT(verdict(rows), doubted({"no warm-up"}));
  EXPECT_THAT(figures_of_merit(rows), ElementsAre(StartsWith("768 tokens/s")));
  r.status = Status::wrong;
  r.reason = "a loss";
  rows.push_back(make_row(r, {0, 1}));
  EXPECT_THAT(verdict(rows), invalid({"wrong: a loss"}));
}

TEST(Verdict, SaysWhatItStandsOn) {
  using enum Status;
  std::vector<Row> rows;
  for (const auto& [status, error] :
      {std::pair{ok, 1e-7}, {wrong, 1}, {ok, NAN}, {skipped, NAN}, {oom, NAN}, {ok, 0}}) {
    CaseResult r = sample_case();
    r.status = status;
    r.max_gradient_error = error;
    rows.push_back(make_row(r, {static_cast<int>(rows.size())}));
  }
  EXPECT_THAT(closing_text(rows),
      Says({"# judged: bytes and memory", "in 4 cases", "serial reference in 3"}));
}

TEST(Verdict, TheFigureOfMeritIsTheFastestValidCaseAndSaysWhatIsInDoubt) {
  CaseResult failed = sample_case("ddp", 512);
  failed.status = Status::wrong;
  const Row noisy = make_row(sample_case("tawpipe", 256), {1}), quiet = make_row(steady_case()),
            wrong = make_row(failed, {2});
  const std::string slow = "768 tokens/s (ddp, 3 ranks in groups 1+2, 128 tokens)",
                    fast = "1365.33 tokens/s (tawpipe, 3 ranks in groups 1+2, 256 tokens), " +
                           noisy_by + "; best without doubt: ";
  for (const auto& [rows, merit] : {std::pair{std::vector{quiet}, slow},
           {{wrong}, "none"},
           {{quiet, noisy, wrong}, fast + slow},
           {{noisy}, fast + "none"}})
    EXPECT_THAT(figures_of_merit(rows), ElementsAre(merit));
}

TEST(Verdict, ClosesWithItsReasonsInOrder) {
  CaseResult by_nccl = steady_case();
  by_nccl.bytes_source = "by formula";
  const auto sentence = [](const std::vector<Row>& rows) {
    return rows.size() == 1 ? "one looked at" : std::string();
  };
  EXPECT_THAT(closing_text({make_row(by_nccl)}, {{"a", sentence}}),
      testing::MatchesRegex("# one looked at\n# judged[^\n]*\n# bytes of NCCL's collectives are by "
                            "formula[^\n]*\nfigure of merit[^\n]*\nRESULT: VALID\n"));
  EXPECT_THAT(closing_text({}, {{"a", sentence}}),
      testing::MatchesRegex("figure of merit: none\nRESULT: INVALID: [^\n]*\n"));
}

/// Each change of the first is another model; schedules, ranks, lengths and precisions of one
/// compare.
TEST(Verdict, EachModelHasItsFigureOfMerit) {
  const CaseResult first = sample_case();
  CaseResult same = sample_case("ddp", 64);
  same.asked.shape.dtype = model::Dtype::bf16;
  same.asked.replicas = 1;
  std::vector<Row> rows = {make_row(first), make_row(same, {1})};
  EXPECT_EQ(figures_of_merit(rows).size(), 1U);
  const auto add = [&](auto part) {
    CaseResult other = first;
    other.asked.shape.*part *= 2;
    rows.push_back(make_row(other, {static_cast<int>(rows.size())}));
  };
  using model::Shape;
  add(&Shape::layers);
  add(&Shape::hidden);
  add(&Shape::heads);
  add(&Shape::kv_heads);
  add(&Shape::vocab);
  add(&Shape::ffn);
  CaseResult wide = first, tied = first;
  wide.asked.shape.given_head_dim = 10;
  tied.asked.shape.tied = true;
  for (const CaseResult& other : {wide, tied})
    rows.push_back(make_row(other, {static_cast<int>(rows.size())}));
  EXPECT_EQ(figures_of_merit(rows).size(), 9U);
}
}  // namespace
}  // namespace minitaw::record
