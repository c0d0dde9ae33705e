// SPDX-License-Identifier: BSD-3-Clause
// Ranks that share sequences, and pipelines that pass them in slices: what they send, keep and
// cost, by formulas (docs/long.md, docs/schedules.md).
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include "model/plan.hpp"
#include "schedule/account.hpp"
#include "schedule/simulate.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
/// A program and what a rank computes of it.
struct Job {
  Program program;
  Layout layout;
};

Job job_of(
    const std::string& spec, const Groups& groups, int micro_batches, const model::Shape& shape) {
  Request request{parse_spec(spec), groups, micro_batches, shape.layers};
  request.context = shape.context.count;
  request.key_parts = shape.key_parts;
  request.costs = model::block_costs(shape);
  const Program program = build_valid(request);
  return {program, model::make_layout(shape, cut_of(program))};
}

/// Grouped heads, and a vocabulary that no number of ranks divides.
model::Shape shape_of(int layers, int seq, int context, int slices = 1, bool fp32_keys = false) {
  model::Shape shape{layers, 32, 4, 2, 23, 37, seq, 3, model::Dtype::bf16};
  shape.context = {0, context};
  shape.slices = slices;
  shape.fp32_key_gradients = fp32_keys;
  return shape;
}

/// (n - 1) T 2 k d (2 e + g) bytes a rank, block and micro-batch, to the next rank and to the one
/// before; with slices (e + g), as keys stay for the backward visits. T = 48 3 / n tokens, k d =
/// 16. A pipeline's stage has some of the blocks; together they have all.
TEST(ContextBytes, OfKeysAndValuesAndTheirGradients) {
  for (const char* spec : {"ddp", "fsdp", "tawpipe", "1f1b", "zbv", "zb1:slices=3"})
    for (const int n : {2, 3})
      for (const bool fp32_keys : {false, true}) {
        const bool pipeline = spec[0] == '1' || spec[0] == 'z';
        const int layers = 14, slices = spec[3] == ':' ? 3 : 1, micro_batches = pipeline ? 2 : 4;
        const Job job = job_of(spec,
            Groups::equal(2 * n, 2),
            micro_batches,
            shape_of(layers, 48, n, slices, fp32_keys));
        const std::uint64_t tokens = 48 * 3 / n,
                            each = (slices > 1 ? 2 : 2 * 2) + (fp32_keys ? 4 : 2);
        const ByteMatrix matrix = bytes(job.program, job.layout);
        EXPECT_EQ(matrix.inside(job.program.groups, Traffic::context),
            micro_batches * layers * n * (n - 1) * tokens * 32 * each)
            << spec << " " << n;
        EXPECT_EQ(matrix.between(job.program.groups, Traffic::context), 0U);
      }
}

/// Weights and gradients move as often as for one micro-batch a rank.
TEST(ContextBytes, OfARoundAreThoseWithoutContext) {
  for (const char* spec : {"fsdp", "fsdp:hierarchical=on", "tawpipe"}) {
    const Groups groups = Groups::equal(8, 2);
    const Job alone = job_of(spec, groups, 8, shape_of(8, 48, 1)),
              together = job_of(spec, groups, 2, shape_of(8, 48, 4));
    const ByteMatrix a = bytes(alone.program, alone.layout),
                     b = bytes(together.program, together.layout);
    for (const Traffic kind : {Traffic::weights, Traffic::gradients, Traffic::embeddings})
      EXPECT_EQ(std::pair(a.inside(groups, kind), a.between(groups, kind)),
          std::pair(b.inside(groups, kind), b.between(groups, kind)))
          << spec;
  }
}

/// 48 3 tokens of 32 numbers in each of 8 blocks, in bf16: a multiple of 256 bytes for each n.
TEST(ContextMemory, OfGatheredKeysAndOfANthOfTheActivations) {
  for (const int n : {1, 2, 4}) {
    const Job job = job_of("ddp", Groups({4}), 4 / n, shape_of(8, 48, n, 1, true));
    EXPECT_EQ(8 * model::plan_saved(job.layout.shape).bytes * n, 8 * 48 * 3 * 32 * 2U);
    for (const Footprint& rank : memory(job.program, job.layout))
      EXPECT_EQ(rank.by_kind[index_of(Memory::context)], n > 1 ? 48 * 3 * 32 * (2 + 4U) : 0U);
  }
}

TEST(ContextCosts, OfTheSegmentsOfAVisitAreAnNthOfItsOwn) {
  using enum model::Recompute;
  const model::Price seconds = {.product = [](double flops) { return 1e-9 * flops; },
      .attention = [](double flops) { return 3e-9 * flops; },
      .attention_backward = [](double flops) { return 4e-9 * flops; },
      .memory = [](double bytes) { return 1e-8 * bytes; }};
  for (const char* spec : {"tawpipe", "zb1"})
    for (const int n : {2, 3})
      for (const model::Recompute recompute : {block, keep_attention, none}) {
        model::Shape part = shape_of(14, 48, n);
        part.recompute = recompute;
        part.key_parts = n - 1;
        const Job job = job_of(spec, Groups({2 * n}), 4, part);
        part.context = {};
        const Layout whole = model::make_layout(part, cut_of(job.program));
        // By kind, shard and micro-batch, over the segments of rank 0.
        std::map<std::tuple<Kind, int, int>, double> sums;
        for (const Action& a : job.program.ranks[0].actions)
          if (is_visit(a.kind))
            sums[{a.kind, a.shard, a.micro_batch}] += cost_of(a, job.layout, seconds);
        for (const auto& [visit, cost] : sums) {
          const auto& [kind, shard, micro_batch] = visit;
          const double expected = cost_of({.kind = kind, .shard = shard}, whole, seconds);
          EXPECT_NEAR(n * cost, expected, 1e-9 * expected) << spec << " " << n;
        }
      }
}

/// Every rank's visits: micro-batch and slice.
std::string visits_of(const Program& program, int rank) {
  std::string all;
  for (const Action& a : program.ranks[rank].actions)
    if (is_visit(a.kind))
      all += fmt::format("{}{}.{} ",
          name_of(a.kind),
          a.micro_batch / program.slices,
          slice_of(program, a.micro_batch));
  return all;
}

/// Written by hand from section 3 of arXiv 2406.03488: two stages, two micro-batches of three
/// slices.
TEST(Slices, GoForwardInOrderAndComeBackInReverse) {
  const Program program = build({parse_spec("1f1b:slices=3"), Groups({2}), 2, 2});
  EXPECT_EQ(
      visits_of(program, 0), "F0.0 F0.1 F0.2 F1.0 BW0.2 F1.1 BW0.1 F1.2 BW0.0 BW1.2 BW1.1 BW1.0 ");
  EXPECT_EQ(
      visits_of(program, 1), "F0.0 F0.1 F0.2 BW0.2 F1.0 BW0.1 F1.1 BW0.0 F1.2 BW1.2 BW1.1 BW1.0 ");
}

std::size_t saved_bytes(const Footprint& rank) {
  std::size_t bytes = 0;
  for (const SlotSize& slot : rank.slots)
    bytes += slot.slot.cls == SlotClass::saved ? slot.bytes : 0;
  return bytes;
}

/// 64 tokens a slice, B = 3, H = 32, k d = 16, bf16: multiples of 256 bytes; keys of two blocks.
TEST(Slices, TakeTheMemoryThatFormulasSay) {
  const int p = 4, k = 4;
  model::Shape shape = shape_of(2 * p, 64 * k, 1, k, true);
  shape.even_slices = true;
  const Job job = job_of("1f1b:slices=4:cut=even", Groups({p}), 2 * p, shape);
  const std::vector<Footprint> ranks = memory(job.program, job.layout);
  for (int i = 0; i < p; ++i) {
    EXPECT_EQ(saved_bytes(ranks[i]), (p - i - 1 + k) * 2 * 64U * 3 * 32 * 2) << i;
    EXPECT_EQ(ranks[i].by_kind[index_of(Memory::context)],
        2 * 64U * k * 3 * 32 * (2 * (i < 2 ? 3 : 2) + 4))
        << i;
    // of each slice at both ends: 192 inputs, targets and positions, where up to 37 tokens begin
    EXPECT_EQ(ranks[i].by_kind[index_of(Memory::tokens)],
        i % (p - 1) == 0 ? 2U * p * k * 4 * (3 * 192 + 37 + 1) : 0U);
  }
}

/// Slices of equal cost differ in length: a long one may find only the slot of a short one free,
/// which grows. Up to 28 % of the most that is alive at once.
TEST(Slices, OfDifferentLengthShareSlots) {
  const Job job = job_of("zb1:slices=8", Groups({4}), 12, shape_of(4, 1 << 14, 1, 8));
  const std::vector<Footprint> ranks = memory(job.program, job.layout);
  for (int i = 0; i < 4; ++i) {
    std::size_t alive = 0, most = 0;
    for (const Action& a : job.program.ranks[i].actions) {
      const model::Shape& slice = job.layout.shape_of(slice_of(job.program, a.micro_batch));
      if (a.kind == Kind::forward)
        most = std::max(most, alive += model::plan_saved(slice).bytes);
      if (a.kind == Kind::backward_weight)
        alive -= model::plan_saved(slice).bytes;
    }
    const std::size_t found = saved_bytes(ranks[i]);
    EXPECT_TRUE(found >= most && 10 * found <= 13 * most) << i;
  }
}

/// Hidden states are as many as without slices, in k times as many messages; costs add up.
TEST(Slices, SendAndCostWhatTheirMicroBatchDoes) {
  const Job whole = job_of("1f1b", Groups({3}), 4, shape_of(5, 70, 1));
  for (const int k : {2, 8}) {
    const Job job = job_of(fmt::format("1f1b:slices={}", k), Groups({3}), 4, shape_of(5, 70, 1, k));
    const ByteMatrix matrix = bytes(job.program, job.layout);
    EXPECT_EQ(matrix.cells(), bytes(whole.program, whole.layout).cells());
    EXPECT_EQ(matrix.at(0, 1, Traffic::activations), 70U * 3 * 32 * 2 * 4);
    EXPECT_EQ(
        std::ranges::count(job.program.ranks[1].actions, Kind::send, &Action::kind), 2 * 4 * k);
    for (const Kind kind :
        {Kind::forward, Kind::backward, Kind::backward_input, Kind::backward_weight, Kind::loss}) {
      Action a{.kind = kind, .shard = 0, .micro_batch = 0};
      double sum = 0;
      for (; a.micro_batch < k; ++a.micro_batch)
        sum += flops(a, job.layout);
      EXPECT_NEAR(sum / flops(a, whole.layout), 1, 1e-12) << name_of(kind);
    }
  }
}
}  // namespace
}  // namespace minitaw::schedule
