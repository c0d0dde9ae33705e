// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <tuple>
#include "base/error.hpp"
#include "deck/keys.hpp"
#include "record/table.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {
void expect(const Row& row, const std::vector<std::pair<const char*, double>>& figures) {
  for (const auto& [name, value] : figures)
    EXPECT_DOUBLE_EQ(row.real(name), value) << name;
}

void expect_none(const Row& row, const std::vector<const char*>& names) {
  for (const char* name : names)
    EXPECT_TRUE(std::isnan(row.real(name))) << name;
}

TEST(Row, ASampleIsTheSlowestRankAndQuartilesAreInterpolated) {
  CaseResult r = sample_case();
  r.seconds[3][2] = 9.75;                 // its mean is not the median
  std::swap(r.seconds[0], r.seconds[3]);  // the order of the steps does not matter
  const Row row = make_row(r);            // 0.75, 1.75, 2.75, 9.75 s
  expect(row, {{"median_s", 2.25}, {"q1_s", 1.5}, {"q3_s", 4.5}});
  expect(row, {{"spread", 3 / 2.25}, {"tokens_per_s", 1536 / 2.25}});
  EXPECT_EQ(row.integer("samples"), 4);
}

/// Of the core and of instruments; settings are those of the deck's table.
TEST(Schema, HasTheColumnsThatCasesHave) {
  CaseResult r = sample_case();
  r.status = Status::wrong;
  r.reason = "because";
  r.peak = 1e9;
  r.max_loss_error = 1e-9;
  const Row row = make_row(r, {1, 1, 1}), empty = example_row();
  std::vector<std::string> settings = {"identity"}, known;
  for (const deck::Setting& setting : deck::settings())
    settings.emplace_back(setting.name);
  for (std::size_t i = 0; i < columns().size(); ++i) {
    const std::string& name = columns()[i].field.name;
    if (columns()[i].is_setting)
      known.push_back(name);
    else
      EXPECT_NE(to_text(row.cells[i]), to_text(empty.cells[i])) << name;
  }
  EXPECT_THAT(settings, testing::UnorderedElementsAreArray(known));
  EXPECT_THROW((void)row.cell("no_column"), LogicError);
  EXPECT_THROW((void)row.real("ranks"), InputError);
}

TEST(Row, SettingsAndWhatCameOfThemHaveTheirNames) {
  CaseResult r = sample_case();
  r.asked.repeats = 13;
  r.asked.seed = 29;
  r.asked.learning_rate = 0.03125;
  r.asked.attention = "host";
  r.asked.transport = "auto";
  r.asked.data = "text.txt";
  r.asked.clip_norm = 0.0625;
  r.asked.shape.dtype = model::Dtype::bf16;
  r.asked.shape.fp32_gradients = true;
  r.max_loss_error = 1e-9;
  r.idle_ticks = {0, 1, 5};
  r.status = Status::wrong;
  r.reason = "because";
  r.bytes_source = "by formula";
  const Row row = make_row(r, {31, 11, 37});
  // Of a block with F = 9: norms 2 x 12, matrices 12 (20 + 12 + 3 F); two ends of 23 x 12, a norm
  // of 12.
  const int parameters = 5 * (24 + 12 * (32 + 27)) + 2 * 276 + 12;
  std::istringstream expected(R"(case 31
repetition 11
session 37
status wrong
reason because
verdict INVALID: wrong: because
started 2026-07-18T09:30:00Z
begun 2026-07-18T09:30:00.250Z
ended 2026-07-18T09:30:10.750Z
accounted_step 1
accounted_s 1.25
schedule tawpipe
ranks 3
groups 1+2
group_count 2
replicas 3
layers 5
hidden 12
heads 3
kv_heads 1
vocab 23
ffn 9
dtype bf16
recompute block
seq 128
micro_batch 2
micro_batches 6
steps 4
repeats 13
warmup 1
seed 29
learning_rate 0.03125
data text.txt
attention host
transport auto
bytes_source by formula
ticks 17
idle_ticks 2
first_loss 3
last_loss 2.5
gradient_error 1e-07
loss_error 1e-09
attention_used portable
transport_used mpi
grad_dtype fp32
clip_norm 0.0625)");
  for (std::string name, text; expected >> name && std::getline(expected >> std::ws, text);)
    EXPECT_EQ(to_text(row.cell(name)), text) << name;
  EXPECT_EQ(row.integer("parameters"), parameters);
}

TEST(Row, Rates) {
  CaseResult r = sample_case("tawpipe", 128, 3);  // median 1.75 s, 6 x 2 x 128 tokens
  expect_none(make_row(r), {"peak", "mfu"});
  r.peak = 1e9;
  const Row row = make_row(r);
  // Matrices of a block: 12 (20 + 12 + 3 F), F = 7 .. 11; head 23 x 12. Attention 6 L S A.
  const double rate = 1536 / 1.75, matmul = 6.0 * (12 * (5 * 32 + 3 * 45) + 276),
               causal = 6.0 * 5 * 128 * 12;
  const double teraflops = rate * (matmul + causal) * 1e-12;
  expect(row, {{"tokens_per_s", rate}, {"tokens_per_s_rank", rate / 3}, {"peak", 1e-3}});
  EXPECT_NEAR(row.real("tflops_causal"), teraflops, 1e-18);
  EXPECT_NEAR(row.real("tflops_rank"), teraflops / 3, 1e-18);
  EXPECT_NEAR(row.real("mfu"), teraflops / 3 / 1e-3, 1e-15);
}

TEST(Row, MemoryIsOfTheWorstRank) {
  const Row row = make_row(sample_case());
  for (const auto& [name, bytes] : {std::pair{"memory_planned", 7 * 3000 + 21},
           {"memory_measured", 7 * 6000 + 21 + 302},
           {"process_peak", 50002},
           {"device_used", 70002}})
    EXPECT_EQ(row.integer(name), bytes) << name;
}

TEST(Row, BytesInsideAndBetweenGroups) {
  CaseResult r = sample_case();
  std::int64_t inside = 0, between = 0;
  for (std::int64_t i = 0; i < 45; ++i) {
    const auto from = i / 5 / 3, to = i / 5 % 3;
    ((from == 0) == (to == 0) ? inside : between) += i;
  }
  for (LinkBytes& link : r.bytes)
    link.planned = 1;
  const Row row = make_row(r);
  EXPECT_EQ(std::tuple(row.integer("bytes_inside"), row.integer("bytes_between")),
      std::tuple(inside, between));
  EXPECT_EQ(std::tuple(row.integer("planned_inside"), row.integer("planned_between")),
      std::tuple(5 * 5, 4 * 5));
  EXPECT_DOUBLE_EQ(row.real("rate_inside") * 2.25e9, static_cast<double>(inside));
  EXPECT_DOUBLE_EQ(row.real("rate_between") * 2.25e9, static_cast<double>(between));
}

TEST(Row, TheAccountIsOfOneStepAndAMeanOverRanks) {
  CaseResult r = sample_case();  // 1.25 s; the overlap is of all ranks together
  for (trace::RankTime& rank : r.time)
    rank.exposed[index_of(schedule::Traffic::context)] = 0.03125;
  expect(make_row(r),
      {{"compute_s", 0.5},
          {"exposed_weights_s", 0.125},
          {"exposed_gradients_s", 0.0625},
          {"exposed_activations_s", 0.0625},
          {"exposed_embeddings_s", 0.1875},
          {"exposed_context_s", 0.03125},
          {"idle_s", 0.3125},
          {"exposed_share", 0.46875 / 1.25},
          {"idle_share", 0.25},
          {"overlap", 0.75 / 2.25}});
  for (trace::RankTime& rank : r.time)
    rank.communication = rank.hidden = 0;
  expect_none(make_row(r), {"overlap"});
}

TEST(Row, WithoutSamplesHasNoFigures) {
  const Row row = preview({sample_case().asked}).at(0);
  expect_none(
      row, {"median_s", "tokens_per_s", "mfu", "rate_inside", "exposed_share", "compute_s"});
  EXPECT_EQ(row.integer("memory_measured"), 0);
}

TEST(Result, KeepsItsFirstFailure) {
  CaseResult r;
  for (const char* reason : {"first", "second"})
    fail(r, reason);
  EXPECT_TRUE(r.status == Status::wrong && r.reason == "first") << r.reason;
}

}  // namespace
}  // namespace minitaw::record
