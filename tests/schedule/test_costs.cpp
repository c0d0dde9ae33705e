#include "schedule/costs.hpp"

#include <gtest/gtest.h>

#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {

model::Shape some_shape(model::Recompute recompute) {
  model::Shape shape{.layers = 5,
                     .hidden = 24,
                     .heads = 6,
                     .kv_heads = 2,
                     .ffn = {40, 56, 40, 72, 40},
                     .vocab = 101,
                     .seq = 17,
                     .micro_batch = 3,
                     .dtype = model::Dtype::bf16};
  shape.recompute = recompute;
  return shape;
}

/// Of all compute actions of a program.
double all_flops(const Program& program, const model::Layout& layout) {
  double sum = 0;
  for (const RankProgram& rank : program.ranks)
    for (const Action& a : rank.actions) sum += flops(a, layout);
  return sum;
}

TEST(Costs, WithoutRecomputationExecutesTheModelFlops) {
  const model::Shape shape = some_shape(model::Recompute::none);
  const Program program = build({parse_spec("tawpipe"), topology::Groups({1, 2}), 6, shape.layers});
  const model::Layout layout = model::make_layout(shape, cut_of(program));
  const model::Flops per_token = model::flops_per_token(shape);
  const double expected =
      (per_token.matmul + per_token.attention_causal) * 6 * static_cast<double>(shape.tokens());
  EXPECT_NEAR(all_flops(program, layout), expected, 1e-9 * expected);
}

Action visit(Kind kind) {
  Action a;
  a.kind = kind;
  a.shard = 0;
  a.micro_batch = 0;
  return a;
}

TEST(Costs, HalvesAddUpAndRecomputationByHand) {
  const auto at = [](Kind kind, model::Recompute recompute) {
    return flops(visit(kind), model::make_layout(some_shape(recompute), {5, 1, 1, false}));
  };
  using enum model::Recompute;
  for (const model::Recompute recompute : {none, keep_attention, block})
    EXPECT_DOUBLE_EQ(at(Kind::backward, recompute),
                     at(Kind::backward_input, recompute) + at(Kind::backward_weight, recompute));
  EXPECT_DOUBLE_EQ(at(Kind::backward, none), 2 * at(Kind::forward, none));
  // T = 51, A = 24: matrices 24 x (40 + 24 + 3 x 40), attention 17 x 24.
  constexpr double matrices = 2.0 * 51 * 24 * 184, attention = 2.0 * 51 * 17 * 24, last = 2.0 * 51 * 24 * 40;
  EXPECT_DOUBLE_EQ(at(Kind::forward, block), matrices + attention);
  EXPECT_DOUBLE_EQ(at(Kind::backward_weight, block), matrices);
  EXPECT_DOUBLE_EQ(at(Kind::backward_input, none), matrices + 2 * attention);
  EXPECT_DOUBLE_EQ(at(Kind::backward_input, block), 2 * matrices + 3 * attention - last);
  EXPECT_DOUBLE_EQ(at(Kind::backward_input, keep_attention), 2 * matrices + 2 * attention - last);
}

TEST(Costs, BandwidthFollowsWhoTalksToWhom) {
  const Program program = build({parse_spec("tawpipe"), topology::Groups({2, 2}), 4, 5});
  const model::Layout layout = model::make_layout(some_shape(model::Recompute::block), cut_of(program));
  const Costs costs = costs_of(program, layout, {.flops = 1, .inside = 1000, .between = 10, .memory = 1});
  int seen = 0;
  for (int r = 0; r < 4; ++r)
    for (const Action& a : program.ranks[r].actions) {
      if (a.payload != Payload::weights || !is_communication(a.kind)) continue;
      const double bytes = 2.0 * static_cast<double>(layout.shards[a.shard].elements);
      EXPECT_DOUBLE_EQ(costs(r, a), bytes / (a.kind == Kind::broadcast ? 1000 : 10));
      EXPECT_EQ(free_transfers(costs)(r, a), 0);
      ++seen;
    }
  EXPECT_GT(seen, 8);
}

TEST(Costs, RanksWithMicroBatchesOfTheirOwn) {
  const Program program = build({parse_spec("tawpipe"), topology::Groups({2, 1}), 6, 5});
  model::Shape shape = some_shape(model::Recompute::block);
  const Machine machine;
  const Costs both = costs_of(program, model::make_layout(shape, cut_of(program)), machine, {3, 1, 2});
  for (int r = 0; r < 3; ++r) {
    shape.micro_batch = std::array{3, 1, 2}[r];
    const Costs one = costs_of(program, model::make_layout(shape, cut_of(program)), machine);
    for (const Action& a : program.ranks[r].actions) EXPECT_NEAR(both(r, a), one(r, a), 1e-9 * one(r, a));
  }
}

TEST(Costs, RingsMoveTheirShareOfTheBuffer) {
  const Program program = build({parse_spec("ddp"), topology::Groups({3}), 3, 5});
  const model::Layout layout = model::make_layout(some_shape(model::Recompute::block), cut_of(program));
  const Costs costs = costs_of(program, layout, {.flops = 1, .inside = 8, .between = 1, .memory = 1});
  int seen = 0;
  for (const Action& a : program.ranks[0].actions) {
    if (a.kind != Kind::all_reduce || a.payload != Payload::ends_gradient) continue;
    EXPECT_DOUBLE_EQ(costs(0, a), 2 * (2.0 / 3) * 4 * static_cast<double>(layout.ends.elements) / 8);
    ++seen;
  }
  EXPECT_EQ(seen, 1);
}

}  // namespace
}  // namespace minitaw::schedule
