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

constexpr std::size_t fp32 = 4, fp64 = 8, int32 = 4;

/// Takes a block's tensors by their shapes.
struct BlockCarver {
  BlockCarver(const Shape& of_model, std::int64_t ffn_width)
      : shape(of_model), tokens(shape.tokens()), ffn(tokens * ffn_width), element(bytes_of(shape.dtype)) {}

  Region hidden(Carver& carver) const { return carver.take(tokens * shape.hidden, element); }
  Region qkv(Carver& carver) const { return carver.take(tokens * shape.qkv(), element); }
  Region heads(Carver& carver) const { return carver.take(tokens * shape.heads * shape.head_dim(), element); }
  Region gain(Carver& carver) const { return carver.take(shape.hidden, element); }
  Region products(Carver& carver, int count) const { return carver.take(count * ffn, element); }
  Region row_statistics(Carver& carver) const { return carver.take(tokens, fp32); }
  Region head_statistics(Carver& carver) const { return carver.take(tokens * shape.heads, fp32); }
  Region gain_partial(Carver& carver) const {
    return carver.take(std::min(tokens, most_gain_chunks) * shape.hidden, fp32);
  }

  /// Attention: kept or recomputed.
  void attention(Carver& carver, BlockRegions& block) const {
    block.attention = heads(carver);
    block.lse = head_statistics(carver);
  }
  /// What only Recompute::none keeps; all but the feed-forward projections.
  void rest(Carver& carver, BlockRegions& block) const {
    block.rstd1 = row_statistics(carver);
    block.qkv = qkv(carver);
    block.middle = hidden(carver);
    block.rstd2 = row_statistics(carver);
  }

  const Shape& shape;
  std::int64_t tokens, ffn;
  std::size_t element;
};

/// take(carver of the block's tensors, carver of the buffer) for each block of the shard.
template <class Take>
ShardPlan plan_shard(const Layout& layout, int shard, const Take& take) {
  const Shard& run = layout.shards[shard];
  ShardPlan plan;
  Carver carver(0);
  for (int layer = run.first_layer; layer < run.first_layer + run.layers; ++layer)
    plan.blocks.push_back(take(BlockCarver(layout.shape, layout.shape.ffn[layer]), carver));
  plan.bytes = carver.end();
  return plan;
}

std::size_t plan_block(WorkspacePlan& plan, const Shape& shape, std::size_t begin) {
  const BlockCarver take(shape, *std::max_element(shape.ffn.begin(), shape.ffn.end()));
  BlockRegions& block = plan.block;
  Carver carver(begin);
  block.normed = take.hidden(carver);
  block.middle_gradient = take.hidden(carver);
  if (shape.recompute == Recompute::block) take.attention(carver, block);
  if (shape.recompute != Recompute::none) take.rest(carver, block);
  Carver feed_forward(carver.end()), attention(carver.end());
  if (shape.recompute != Recompute::none) block.ffn = take.products(feed_forward, 2);
  block.product = take.products(feed_forward, 1);
  block.attention_gradient = take.heads(attention);
  block.qkv_gradient = take.qkv(attention);
  block.delta = take.head_statistics(attention);
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

std::int64_t loss_slice(const Shape& shape) {
  const std::int64_t most = largest_logits / shape.vocab;
  const std::int64_t whole_tiles = most > 64 ? most / 64 * 64 : most;
  return std::min(shape.tokens(), std::max<std::int64_t>(16, whole_tiles));
}

ShardPlan plan_saved(const Layout& layout, int shard) {
  const Recompute recompute = layout.shape.recompute;
  return plan_shard(layout, shard, [=](const BlockCarver& take, Carver& carver) {
    BlockRegions block;
    block.input = take.hidden(carver);
    if (recompute != Recompute::block) take.attention(carver, block);
    if (recompute == Recompute::none) {
      take.rest(carver, block);
      block.ffn = take.products(carver, 2);
    }
    return block;
  });
}

ShardPlan plan_deferred(const Layout& layout, int shard) {
  const Recompute recompute = layout.shape.recompute;
  return plan_shard(layout, shard, [=](const BlockCarver& take, Carver& carver) {
    BlockRegions block;
    block.output_gradient = take.hidden(carver);
    block.norm1 = take.gain(carver);
    if (recompute == Recompute::block) block.attention = take.heads(carver);
    if (recompute == Recompute::none) {
      block.norm2 = take.gain(carver);
    } else {
      block.rstd1 = take.row_statistics(carver);
      block.normed = take.hidden(carver);
      block.ffn = take.products(carver, 2);
    }
    block.product = take.products(carver, 1);
    block.middle_gradient = take.hidden(carver);
    block.qkv_gradient = take.qkv(carver);
    block.gain_partial1 = take.gain_partial(carver);
    block.gain_partial2 = take.gain_partial(carver);
    return block;
  });
}

WorkspacePlan plan_workspace(const Layout& layout) {
  const Shape& shape = layout.shape;
  WorkspacePlan plan;
  Carver carver(0);
  plan.rope = carver.take(shape.seq * shape.head_dim(), fp32);
  plan.tokens = carver.take(shape.tokens(), int32);
  plan.block.gain_partial1 = plan.block.gain_partial2 = BlockCarver(shape, 0).gain_partial(carver);
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
