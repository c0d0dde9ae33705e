#include "model/footprint.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/plan.hpp"

namespace minitaw::model {
namespace {

Shape shape_of(Recompute recompute, Dtype dtype) {
  return {.layers = 3,
          .hidden = 64,
          .heads = 4,
          .kv_heads = 2,
          .ffn = {100, 7, 300},
          .vocab = 300,
          .seq = 33,
          .micro_batch = 2,
          .dtype = dtype,
          .recompute = recompute};
}

void expect_disjoint(std::vector<Region> regions, std::size_t bytes) {
  std::erase_if(regions, [](const Region& region) { return region.bytes == 0; });
  std::sort(regions.begin(), regions.end(), [](auto& a, auto& b) { return a.offset < b.offset; });
  for (std::size_t i = 0; i < regions.size(); ++i) {
    EXPECT_EQ(regions[i].offset % 256, 0U);
    EXPECT_LE(regions[i].offset + regions[i].bytes, i + 1 < regions.size() ? regions[i + 1].offset : bytes);
  }
}

std::vector<Region> regions_of(const BlockRegions& b) {
  return {b.input, b.rstd1, b.qkv, b.attention, b.lse, b.middle, b.rstd2, b.ffn};
}

class Footprint : public ::testing::TestWithParam<std::tuple<Recompute, Dtype>> {
protected:
  Shape shape() const { return shape_of(std::get<0>(GetParam()), std::get<1>(GetParam())); }
};

TEST_P(Footprint, KeptRegionsAreDisjointAndFill) {
  const Layout layout = make_layout(shape(), {2, 1});
  for (int shard = 0; shard < 2; ++shard) {
    const KeptPlan plan = plan_kept(layout, shard);
    std::vector<Region> all;
    for (const BlockRegions& block : plan.blocks)
      for (const Region& region : regions_of(block)) all.push_back(region);
    expect_disjoint(all, plan.bytes);
    EXPECT_EQ(kept_bytes(layout, shard), plan.bytes);
  }
}

TEST_P(Footprint, StashedRegionsAreDisjointAndFill) {
  const Layout layout = make_layout(shape(), {2, 1});
  for (int shard = 0; shard < 2; ++shard) {
    const StashPlan plan = plan_stash(layout, shard);
    std::vector<Region> all;
    for (const StashRegions& b : plan.blocks)
      all.insert(all.end(), {b.output_gradient, b.norm1, b.rstd1, b.attention, b.norm2, b.normed, b.ffn,
                             b.product, b.middle_gradient, b.qkv_gradient, b.gain_partial1, b.gain_partial2});
    expect_disjoint(all, plan.bytes);
    EXPECT_EQ(stash_bytes(layout, shard), plan.bytes);
  }
}

TEST_P(Footprint, RegionsOfOnePhaseAreDisjoint) {
  const Layout layout = make_layout(shape(), {2, 1});
  const WorkspacePlan p = plan_workspace(layout);
  const std::vector<Region> shared = {p.rope, p.tokens, p.gain_partial};
  std::vector<Region> block = regions_of(p.recomputed);
  block.insert(block.end(), {p.normed, p.middle_gradient});
  block.insert(block.end(), shared.begin(), shared.end());
  std::vector<Region> feed_forward = block, attention = block;
  feed_forward.push_back(p.product);
  std::erase_if(attention, [&](const Region& r) {
    return r.offset == p.recomputed.ffn.offset && r.bytes == p.recomputed.ffn.bytes;
  });
  attention.insert(attention.end(), {p.attention_gradient, p.qkv_gradient, p.delta});
  std::vector<Region> loss = {p.slice_normed, p.slice_gradient, p.slice_rstd, p.slice_logits, p.slice_losses};
  loss.insert(loss.end(), shared.begin(), shared.end());
  std::vector<Region> embedding = {p.index};
  embedding.insert(embedding.end(), shared.begin(), shared.end());
  for (const auto& phase : {feed_forward, attention, loss, embedding}) expect_disjoint(phase, p.bytes);
  EXPECT_EQ(workspace_bytes(layout), p.bytes);
}

INSTANTIATE_TEST_SUITE_P(All, Footprint,
                         ::testing::Combine(::testing::Values(Recompute::block, Recompute::keep_attention,
                                                              Recompute::none),
                                            ::testing::Values(Dtype::fp32, Dtype::bf16)));

TEST(Footprint, EachPolicyKeepsMoreAndNeedsLessScratch) {
  const auto layout = [](Recompute recompute) {
    return make_layout(shape_of(recompute, Dtype::fp32), {1, 1});
  };
  const Layout block = layout(Recompute::block), half = layout(Recompute::keep_attention),
               none = layout(Recompute::none);
  EXPECT_LT(kept_bytes(block, 0), kept_bytes(half, 0));
  EXPECT_LT(kept_bytes(half, 0), kept_bytes(none, 0));
  EXPECT_GT(workspace_bytes(block), workspace_bytes(half));
  EXPECT_GT(workspace_bytes(half), workspace_bytes(none));
}

TEST(Footprint, LogitsAreOfTheComputeType) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    const Layout layout = make_layout(shape_of(Recompute::block, dtype), {1, 1});
    EXPECT_EQ(plan_workspace(layout).slice_logits.bytes, 66U * 300 * bytes_of(dtype));
  }
}

TEST(Footprint, BlockPolicyKeepsTheBlockInputOnly) {
  const Layout layout = make_layout(shape_of(Recompute::block, Dtype::bf16), {3, 1});
  EXPECT_EQ(kept_bytes(layout, 1), (flow_bytes(layout.shape) + 255) / 256 * 256);
  EXPECT_EQ(flow_bytes(layout.shape), 66U * 64 * 2);
}

/// Of a block with F = 8/3 H and as many key heads as query heads, in units of B S H bytes, bf16.
double stash_share(Recompute recompute) {
  const Shape shape{.layers = 1,
                    .hidden = 768,
                    .heads = 6,
                    .kv_heads = 6,
                    .ffn = {2048},
                    .vocab = 8,
                    .seq = 65536,
                    .micro_batch = 3,
                    .dtype = Dtype::bf16,
                    .recompute = recompute};
  return static_cast<double>(stash_bytes(make_layout(shape, {1, 1}), 0)) /
         static_cast<double>(shape.tokens() * shape.hidden);
}

TEST(Footprint, StashIsWhatZeroBubbleSaysLessWhatTheForwardPassKept) {
  // arXiv 2401.10241: 32 B S H. norm1's output is rebuilt (2); the attention output may be kept (2), and with
  // it all else: the gradient of gate and up projections takes their place (32/3), norm2's output is rebuilt.
  // Beside it: both gains' partial sums, 4 bytes x 512 rows each, and row statistics.
  const double rest = 2 * 4 * 512.0 / (65536 * 3) + 0.01;
  EXPECT_NEAR(stash_share(Recompute::block), 32 - 2, rest);
  EXPECT_NEAR(stash_share(Recompute::keep_attention), 32 - 4, rest);
  EXPECT_NEAR(stash_share(Recompute::none), 32 - 4 - 32.0 / 3 - 2, rest);
}

TEST(Footprint, ScratchOfALongSequenceDoesNotHoldAllLogits) {
  Shape shape{.layers = 1,
              .hidden = 4096,
              .heads = 32,
              .kv_heads = 32,
              .ffn = {11008},
              .vocab = 32000,
              .seq = 131072,
              .micro_batch = 1,
              .dtype = Dtype::bf16};
  EXPECT_EQ(loss_slice(shape), 2048);  // 2097 would fit into 2^26 logits
  shape.vocab = INT32_MAX;
  EXPECT_EQ(loss_slice(shape), 16);
}

}  // namespace
}  // namespace minitaw::model
