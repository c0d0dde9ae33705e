// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gmock/gmock.h>
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
  expect(row, {{"median_s", 2.25}, {"q1_s", 1.5}, {"q3_s", 4.5}, {"spread", 3 / 2.25}});
  EXPECT_EQ(row.integer("samples"), 4);
}

/// Settings are those of the deck's table, which identity() shows; here what has no key.
TEST(Row, WhatCameOfACaseHasItsName) {
  CaseResult r = sample_case();
  r.asked.repeats = 13;
  r.max_loss_error = 1e-9;
  r.idle_ticks = {0, 1, 5};
  r.status = Status::wrong;
  r.reason = "because";
  r.bytes_source = "by formula";
  const Row row = make_row(r, {31, 11, 37});
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
groups 1+2
group_count 2
replicas 3
repeats 13
bytes_source by formula
ticks 17
idle_ticks 2
first_loss 3
last_loss 2.5
gradient_error 1e-07
loss_error 1e-09
attention_used portable
transport_used mpi
matmul_algorithms algorithm 2 of 3
slowest_rank 2
slowest_ratio 1.08
energy_source made up 1.2
energy 600
energy_per_token 0.125)");
  for (std::string name, text; expected >> name && std::getline(expected >> std::ws, text);)
    EXPECT_EQ(to_text(row.cell(name)), text) << name;
  // Of a block with F = 9: norms 2 x 12, matrices 12 (20 + 12 + 3 F); two ends of 23 x 12, a norm
  // of 12.
  EXPECT_EQ(row.integer("parameters"), 5 * (24 + 12 * (32 + 27)) + 2 * 276 + 12);
}

TEST(Row, Rates) {
  CaseResult r = sample_case("tawpipe", 128, 3);  // median 1.75 s, 6 x 2 x 128 tokens
  expect_none(make_row(r), {"peak", "mfu"});
  r.peak = 1e9;
  const Row row = make_row(r);
  // Matrices of a block: 12 (20 + 12 + 3 F), F = 9; head 23 x 12. Attention 6 L S A.
  constexpr double rate = 1536 / 1.75, matmul = 6 * (5 * 12 * (32 + 27) + 276),
                   causal = 6 * 5 * 128 * 12, teraflops = rate * (matmul + causal) * 1e-12;
  expect(row,
      {{"tokens_per_s", rate},
          {"tokens_per_s_rank", rate / 3},
          {"peak", 1e-3},
          {"tflops_causal", teraflops},
          {"tflops_rank", teraflops / 3},
          {"mfu", teraflops / 3 / 1e-3}});
}

TEST(Row, MemoryIsOfTheWorstRank) {
  const Row row = make_row(sample_case());
  for (const auto& [name, bytes] : {std::pair{"memory_planned", 7 * 3000 + 21},
           {"memory_measured", 7 * 6000 + 21 + 302},
           {"process_peak", 50002},
           {"device_used", 70002}})
    EXPECT_EQ(row.integer(name), bytes) << name;
}

/// Of five kinds, ranks 0 to 2 send 0, 1, ... 44 B to ranks 0 to 2: pairs 0, 4, 5, 7 and 8 of nine
/// lie inside of groups.
TEST(Row, BytesInsideAndBetweenGroups) {
  CaseResult r = sample_case();
  for (LinkBytes& link : r.bytes)
    link.planned = 1;
  const Row row = make_row(r);
  EXPECT_THAT(
      list_of(std::vector{"bytes_inside", "bytes_between", "planned_inside", "planned_between"},
          [&](const char* name) { return row.integer(name); }),
      testing::ElementsAre(650, 340, 25, 20));
  expect(row, {{"rate_inside", 650e-9 / 2.25}, {"rate_between", 340e-9 / 2.25}});
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
  expect_none(preview({sample_case().asked}).at(0),
      {"median_s", "tokens_per_s", "mfu", "rate_inside", "exposed_share", "compute_s"});
}

TEST(Result, KeepsItsFirstFailure) {
  CaseResult r;
  for (const char* reason : {"first", "second"})
    fail(r, reason);
  EXPECT_TRUE(r.status == Status::wrong && r.reason == "first") << r.reason;
}
}  // namespace
}  // namespace minitaw::record
