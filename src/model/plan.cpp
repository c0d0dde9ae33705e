#include "model/plan.hpp"

#include <algorithm>

#include "model/data.hpp"

namespace minitaw::model {

namespace {

constexpr std::size_t region_alignment = 256;
constexpr std::int64_t largest_logits = std::int64_t{1} << 26;

/// Hands out regions one behind another.
class Carver {
public:
  explicit Carver(std::size_t begin) : end_(begin) {}

  Region take(std::int64_t elements, std::size_t element_bytes) {
    const Region region{end_, static_cast<std::size_t>(elements) * element_bytes};
    end_ += (region.bytes + region_alignment - 1) / region_alignment * region_alignment;
    return region;
  }
  [[nodiscard]] std::size_t end() const { return end_; }

private:
  std::size_t end_;
};

/// Sizes that the plans are made of.
struct Sizes {
  explicit Sizes(const Shape& shape)
      : tokens(shape.tokens()), hidden(tokens * shape.hidden), qkv(tokens * shape.qkv()),
        attention(tokens * shape.heads * shape.head_dim()), rows(tokens * shape.heads),
        element(bytes_of(shape.dtype)) {}

  std::int64_t tokens, hidden, qkv, attention, rows;
  std::size_t element;
};

constexpr std::size_t fp32 = 4, fp64 = 8, int32 = 4;

/// The regions of attention: kept or recomputed, depending on the caller.
void take_attention(Carver& carver, const Sizes& sizes, BlockRegions& block) {
  block.attention = carver.take(sizes.attention, sizes.element);
  block.lse = carver.take(sizes.rows, fp32);
}

/// The regions that only Recompute::none keeps; all but the feed-forward projections.
void take_rest(Carver& carver, const Sizes& sizes, BlockRegions& block) {
  block.rstd1 = carver.take(sizes.tokens, fp32);
  block.qkv = carver.take(sizes.qkv, sizes.element);
  block.middle = carver.take(sizes.hidden, sizes.element);
  block.rstd2 = carver.take(sizes.tokens, fp32);
}

DeferredRegions take_deferred(Carver& carver, const Shape& shape, std::int64_t ffn) {
  const Sizes sizes(shape);
  const std::int64_t partial = gain_chunks(sizes.tokens) * shape.hidden;
  DeferredRegions block;
  block.output_gradient = carver.take(sizes.hidden, sizes.element);
  block.norm1 = carver.take(shape.hidden, sizes.element);
  if (shape.recompute == Recompute::block) block.attention = carver.take(sizes.attention, sizes.element);
  if (shape.recompute == Recompute::none) {
    block.norm2 = carver.take(shape.hidden, sizes.element);
  } else {
    block.rstd1 = carver.take(sizes.tokens, fp32);
    block.normed = carver.take(sizes.hidden, sizes.element);
    block.ffn = carver.take(2 * sizes.tokens * ffn, sizes.element);
  }
  block.product = carver.take(sizes.tokens * ffn, sizes.element);
  block.middle_gradient = carver.take(sizes.hidden, sizes.element);
  block.qkv_gradient = carver.take(sizes.qkv, sizes.element);
  block.gain_partial1 = carver.take(partial, fp32);
  block.gain_partial2 = carver.take(partial, fp32);
  return block;
}

std::size_t plan_block(WorkspacePlan& plan, const Shape& shape, std::size_t begin) {
  const Sizes sizes(shape);
  const std::int64_t ffn = sizes.tokens * *std::max_element(shape.ffn.begin(), shape.ffn.end());
  Carver carver(begin);
  plan.normed = carver.take(sizes.hidden, sizes.element);
  plan.middle_gradient = carver.take(sizes.hidden, sizes.element);
  if (shape.recompute == Recompute::block) take_attention(carver, sizes, plan.recomputed);
  if (shape.recompute != Recompute::none) take_rest(carver, sizes, plan.recomputed);
  Carver feed_forward(carver.end());
  if (shape.recompute != Recompute::none) plan.recomputed.ffn = feed_forward.take(2 * ffn, sizes.element);
  plan.product = feed_forward.take(ffn, sizes.element);
  Carver attention(carver.end());
  plan.attention_gradient = attention.take(sizes.attention, sizes.element);
  plan.qkv_gradient = attention.take(sizes.qkv, sizes.element);
  plan.delta = attention.take(sizes.rows, fp32);
  return std::max(feed_forward.end(), attention.end());
}

std::size_t plan_loss(WorkspacePlan& plan, const Shape& shape, std::size_t begin) {
  const std::int64_t slice = loss_slice(shape);
  Carver carver(begin);
  plan.slice_normed = carver.take(slice * shape.hidden, bytes_of(shape.dtype));
  plan.slice_gradient = carver.take(slice * shape.hidden, bytes_of(shape.dtype));
  plan.slice_rstd = carver.take(slice, fp32);
  plan.slice_logits = carver.take(slice * shape.vocab, bytes_of(shape.dtype));
  plan.slice_losses = carver.take(slice, fp64);
  return carver.end();
}

std::size_t plan_embedding(WorkspacePlan& plan, const Shape& shape, std::size_t begin) {
  Carver carver(begin);
  plan.index = carver.take(2 * shape.tokens() + most_segments(shape.vocab, shape.tokens()), int32);
  return carver.end();
}

}  // namespace

std::int64_t gain_chunks(std::int64_t rows) { return std::min<std::int64_t>(rows, 512); }

std::int64_t loss_slice(const Shape& shape) {
  const std::int64_t most = largest_logits / shape.vocab;
  const std::int64_t whole_tiles = most > 64 ? most / 64 * 64 : most;
  return std::min(shape.tokens(), std::max<std::int64_t>(16, whole_tiles));
}

SavedPlan plan_saved(const Layout& layout, int shard) {
  const Shape& shape = layout.shape;
  const Shard& run = layout.shards[static_cast<std::size_t>(shard)];
  const Sizes sizes(shape);
  Carver carver(0);
  SavedPlan plan;
  for (int layer = run.first_layer; layer < run.first_layer + run.layers; ++layer) {
    BlockRegions block;
    block.input = carver.take(sizes.hidden, sizes.element);
    if (shape.recompute != Recompute::block) take_attention(carver, sizes, block);
    if (shape.recompute == Recompute::none) {
      take_rest(carver, sizes, block);
      block.ffn = carver.take(2 * sizes.tokens * shape.ffn[static_cast<std::size_t>(layer)], sizes.element);
    }
    plan.blocks.push_back(block);
  }
  plan.bytes = carver.end();
  return plan;
}

DeferredPlan plan_deferred(const Layout& layout, int shard) {
  const Shape& shape = layout.shape;
  const Shard& run = layout.shards[static_cast<std::size_t>(shard)];
  DeferredPlan plan;
  Carver carver(0);
  for (int layer = run.first_layer; layer < run.first_layer + run.layers; ++layer)
    plan.blocks.push_back(take_deferred(carver, shape, shape.ffn[static_cast<std::size_t>(layer)]));
  plan.bytes = carver.end();
  return plan;
}

WorkspacePlan plan_workspace(const Layout& layout) {
  const Shape& shape = layout.shape;
  WorkspacePlan plan;
  Carver carver(0);
  plan.rope = carver.take(shape.seq * shape.head_dim(), fp32);
  plan.tokens = carver.take(shape.tokens(), int32);
  plan.gain_partial = carver.take(gain_chunks(shape.tokens()) * shape.hidden, fp32);
  const std::size_t shared = carver.end();
  plan.bytes = std::max(
      {plan_block(plan, shape, shared), plan_loss(plan, shape, shared), plan_embedding(plan, shape, shared)});
  return plan;
}

std::size_t hidden_bytes(const Shape& shape) {
  return static_cast<std::size_t>(shape.tokens() * shape.hidden) * bytes_of(shape.dtype);
}

std::size_t saved_bytes(const Layout& layout, int shard) { return plan_saved(layout, shard).bytes; }

std::size_t deferred_bytes(const Layout& layout, int shard) { return plan_deferred(layout, shard).bytes; }

std::size_t workspace_bytes(const Layout& layout) { return plan_workspace(layout).bytes; }

std::size_t library_estimate(const Shape& shape) {
  constexpr std::size_t matmul_workspace = std::size_t{32} << 20;
  const auto rows = static_cast<std::size_t>(shape.tokens() * shape.heads);
  const auto width = static_cast<std::size_t>(shape.head_dim());
  const std::size_t grouped = shape.kv_heads < shape.heads ? width : 0;
  const std::size_t attention = rows * (width + 1 + grouped) * sizeof(float);
  return matmul_workspace + (shape.dtype == Dtype::bf16 ? attention : 0);
}

std::size_t optimiser_bytes(Dtype dtype, std::int64_t elements) {
  const std::size_t buffers = dtype == Dtype::fp32 ? 2 : 3;
  return buffers * sizeof(float) * static_cast<std::size_t>(elements);
}

}  // namespace minitaw::model
