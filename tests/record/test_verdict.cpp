// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <sstream>
#include "fixtures.hpp"
#include "record/verdict.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {
using test::Says;
using testing::AllOf, testing::ElementsAre, testing::HasSubstr, testing::Not, testing::StartsWith;

/// Of the sample: its steps take 0.75, 1.75, 2.75 and 3.75 s.
const std::string noisy_by = "67 %";

/// A finished case that takes 2 s a step, whatever the rank.
CaseResult steady_case(int seq = 128) {
  CaseResult r = sample_case("ddp", seq);
  for (std::vector<double>& step : r.seconds)
    step = {2, 2, 2};
  return r;
}

std::string verdict_of(const CaseResult& r) {
  return record::verdict_of(Measured(r, {}));
}

TEST(Verdict, OfARun) {
  CaseResult r = sample_case();
  EXPECT_THAT(verdict_of(r), AllOf(StartsWith("VALID ("), Says({"noisy", noisy_by})));
  r.settings.warmup = 0;
  EXPECT_THAT(verdict_of(r), AllOf(StartsWith("VALID ("), Says({"no warm-up", "noisy", noisy_by})));

  r = steady_case();
  EXPECT_EQ(verdict_of(r), "VALID");
  for (const double longer : {1.104, 1.106}) {  // quartiles 9.9 and 10.1 % of the median apart
    CaseResult near = r;
    for (std::size_t i = 0; i < 4; ++i)
      near.seconds[i] = {0.5, i < 2 ? 1 : longer, 0.75};
    EXPECT_EQ(verdict_of(near).starts_with("VALID (noisy"), longer > 1.105) << longer;
  }

  const auto invalid = [](const std::vector<std::string>& words) {
    return AllOf(StartsWith("INVALID: "), Says(words));
  };
  EXPECT_THAT(verdict_of(sample_case("tawpipe", 128, 2)), invalid({"2 timed steps"}));
  r.status = Status::wrong;
  r.reason = "loss is not a number";
  EXPECT_THAT(verdict_of(r), invalid({"wrong", r.reason}));
  r = steady_case();
  r.bytes[3].counted += 1;
  EXPECT_THAT(verdict_of(r), invalid({"bytes"}));
}

TEST(Verdict, OfASweep) {
  EXPECT_THAT(verdict(std::vector<Row>()), StartsWith("INVALID: no case"));
  std::vector<Row> rows = {
      make_row(sample_case("ddp"), {5}), make_row(sample_case("tawpipe"), {6})};
  EXPECT_THAT(verdict(rows),
      AllOf(StartsWith("VALID (2 of 2 cases"),
          Says({"case 5 (ddp, 3 ranks in groups 1+2, 128 tokens)", "noisy", noisy_by})));
  EXPECT_THAT(verdict(rows, {1, "stopped by SIGTERM"}),
      AllOf(StartsWith("INVALID: "), Says({"unfinished cases: 1", "stopped by SIGTERM"})));
  rows.push_back(make_row(sample_case("tawpipe", 64, 1), {8}));
  EXPECT_THAT(verdict(rows),
      AllOf(StartsWith("INVALID: 1 of 3 cases"),
          Says({"case 8 (tawpipe, 3 ranks in groups 1+2, 64 tokens, steps 1)",
              "1 timed step",
              "at least 3"})));
}

TEST(Verdict, OfACaseIsThatOfItsWorstRepetitionAndItsRateTheirMedian) {
  CaseResult r = steady_case();
  r.settings.repeats = 3;
  std::vector<Row> rows = {make_row(r, {0, 0}), make_row(r, {0, 1})};
  EXPECT_THAT(verdict(rows), AllOf(StartsWith("INVALID: "), HasSubstr("2 of 3 repetitions")));
  for (std::vector<double>& step : r.seconds)
    step = {3, 3, 3};
  rows.push_back(make_row(r, {0, 2}));
  EXPECT_EQ(verdict(rows), "VALID");
  EXPECT_THAT(figures_of_merit(rows), ElementsAre(StartsWith("768 tokens/s")));
  r.status = Status::wrong;
  r.reason = "a loss";
  rows.push_back(make_row(r, {0, 1}));
  EXPECT_THAT(verdict(rows), AllOf(StartsWith("INVALID: "), HasSubstr("wrong: a loss")));
}

/// The line of a text that begins with these words, without its end; empty if there is none.
std::string line_of(const std::string& text, const std::string& begin) {
  const std::size_t at = ("\n" + text).find("\n" + begin);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(Verdict, SaysWhatItStandsOn) {
  auto with = [number = 0](Status status, double error) mutable {
    CaseResult r = sample_case("ddp");
    r.status = status;
    r.max_gradient_error = error;
    return make_row(r, {number++});
  };
  const auto judged = [](const std::vector<Row>& rows) {
    return line_of(closing_text(rows), "# judged: ");
  };
  EXPECT_THAT(judged({with(Status::ok, 1e-7),
                  with(Status::wrong, 1),
                  with(Status::ok, NAN),
                  with(Status::skipped, NAN),
                  with(Status::oom, NAN),
                  with(Status::ok, 0)}),
      Says({"bytes and memory", "in 4 cases", "serial reference in 3"}));
  EXPECT_THAT(judged({with(Status::ok, 0)}), Says({"in 1 case,", "serial reference in 1"}));
  EXPECT_EQ(judged({with(Status::skipped, NAN)}), "");
}

TEST(Verdict, TheFigureOfMeritIsTheFastestValidCaseAndSaysWhatIsInDoubt) {
  CaseResult wrong = sample_case("ddp", 512);
  wrong.status = Status::wrong;
  const Row noisy = make_row(sample_case("tawpipe", 256), {1}), quiet = make_row(steady_case());
  const auto merit = [](const std::vector<Row>& rows) {
    return line_of(closing_text(rows), "figure of merit: ");
  };
  const std::string slow = "768 tokens/s (ddp, 3 ranks in groups 1+2, 128 tokens)";
  EXPECT_EQ(merit({quiet}), "figure of merit: " + slow);
  EXPECT_EQ(merit({make_row(wrong, {2})}), "figure of merit: none");

  const std::vector<std::string> fast = {
      "1365.33 tokens/s (tawpipe, 3 ranks in groups 1+2, 256 tokens)", "noisy", noisy_by};
  EXPECT_THAT(merit({quiet, noisy, make_row(wrong, {2})}),
      AllOf(Says(fast), testing::EndsWith("without doubt: " + slow)));
  EXPECT_THAT(merit({noisy}), AllOf(Says(fast), testing::EndsWith("without doubt: none")));
}

TEST(Verdict, ClosesWithItsReasonsInOrder) {
  CaseResult by_nccl = steady_case();
  by_nccl.bytes_source = "by formula";
  const auto sentence = [](const std::vector<Row>& rows) {
    return fmt::format("{} looked at", rows.size());
  };
  const auto nothing = [](const std::vector<Row>&) { return std::string(); };
  const Remarks instruments = {{"a", nothing}, {"b", sentence}};
  std::istringstream text(closing_text({make_row(by_nccl)}, instruments));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);)
    lines.push_back(line);
  EXPECT_THAT(lines,
      ElementsAre("# 1 looked at",
          StartsWith("# judged"),
          StartsWith("# bytes of NCCL's collectives are by formula"),
          StartsWith("figure of merit"),
          "RESULT: VALID"));
  EXPECT_THAT(closing_text({make_row(steady_case())}), Not(HasSubstr("by formula")));
  EXPECT_THAT(closing_text({make_row(sample_case("ddp", 1, 1))}), HasSubstr("\nRESULT: INVALID: "));
}

/// Each change of the first is another model; schedules, ranks, lengths and precisions of one
/// compare.
TEST(Verdict, EachModelHasItsFigureOfMerit) {
  CaseResult first = sample_case();
  std::vector<Row> models = {make_row(first)}, others = models;
  const std::vector<std::function<void(model::Shape&)>> changes = {[](auto& s) { s.layers = 4; },
      [](auto& s) { s.hidden = 24; },
      [](auto& s) { s.heads = 6; },
      [](auto& s) { s.kv_heads = 3; },
      [](auto& s) { s.vocab = 29; },
      [](auto& s) { s.ffn = 10; }};
  for (const auto& change : changes) {
    CaseResult other = first;
    change(other.settings.shape);
    models.push_back(make_row(other, {static_cast<int>(models.size())}));
  }
  EXPECT_EQ(figures_of_merit(models).size(), 7U);
  CaseResult same = sample_case("ddp", 64);
  same.settings.shape.dtype = model::Dtype::bf16;
  same.settings.replicas = 1;
  others.push_back(make_row(same, {1}));
  EXPECT_EQ(figures_of_merit(others).size(), 1U);
}
}  // namespace
}  // namespace minitaw::record
