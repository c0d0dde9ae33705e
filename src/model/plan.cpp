// SPDX-License-Identifier: BSD-3-Clause
#include "model/plan.hpp"
#include <algorithm>
#include "model/data.hpp"

namespace minitaw::model {
namespace {
constexpr std::size_t region_alignment = 256;
constexpr std::int64_t largest_logits = std::int64_t{1} << 26;
constexpr std::size_t bf16 = 2, fp32 = 4, fp64 = 8, int32 = 4;

/// Hands out regions of a buffer, one behind another.
struct Carver {
  std::size_t end = 0;  ///< of the last region

  Region take(std::int64_t elements, std::size_t element_bytes) {
    const Region region{end, elements * element_bytes};
    end += (region.bytes + region_alignment - 1) / region_alignment * region_alignment;
    return region;
  }

  void take(BlockRegions& block, const std::vector<Intermediate>& parts, const Shape& shape) {
    for (const Intermediate part : parts) {
      const auto [rows, cols] = extents_of(part, shape);
      block[part] = take(rows * cols, part < Intermediate::rstd1 ? bytes_of(shape.dtype) : fp32);
    }
  }
};

BlockPlan plan_of(const Shape& shape, const std::vector<Intermediate>& parts) {
  BlockPlan plan;
  Carver carver;
  carver.take(plan.regions, parts, shape);
  plan.bytes = carver.end;
  return plan;
}

/// Lays out the scratch of a block. The halves of a backward visit share results in `deferred`; an
/// undivided visit has them here.
std::size_t plan_block(
    WorkspacePlan& plan, const Shape& shape, const Duties& duties, std::size_t begin) {
  using enum Intermediate;
  const auto take = [&](Carver& carver, const std::vector<Intermediate>& parts) {
    carver.take(plan.block, parts, shape);
  };
  Carver carver{begin};
  take(carver, {normed});
  if (duties.undivided_backward)
    take(carver, {middle_gradient});
  if (shape.recompute == Recompute::block)
    take(carver, {attention, lse});
  if (shape.recompute != Recompute::none)
    take(carver, {rstd1, qkv, middle, rstd2});
  Carver feed_forward = carver;
  if (shape.recompute != Recompute::none)
    take(feed_forward, {ffn});
  take(feed_forward, {product});
  // Where sequences are shared, gradients of the feed-forward's weights are computed after
  // attention's backward pass, while gradients of keys and values are added up.
  Carver backward = shape.shares_sequences() ? feed_forward : carver;
  take(backward, {attention_gradient, delta});
  if (duties.undivided_backward)
    take(backward, {qkv_gradient});
  return std::max(feed_forward.end, backward.end);
}

std::size_t plan_loss(WorkspacePlan& plan, const Shape& shape, std::size_t begin) {
  const std::int64_t tile = loss_tile(shape);
  Carver carver{begin};
  plan.tile_normed = carver.take(tile * shape.hidden, bytes_of(shape.dtype));
  plan.tile_gradient = carver.take(tile * shape.hidden, bytes_of(shape.dtype));
  plan.tile_rstd = carver.take(tile, fp32);
  plan.tile_logits = carver.take(tile * shape.vocab, bytes_of(shape.dtype));
  plan.tile_losses = carver.take(tile, fp64);
  return carver.end;
}

/// Returns what cuDNN's backward attention needs for a run of queries, as cuDNN 9.19 says: sums of
/// their gradients and a number a row, fp32; with grouped heads also gradients of keys and values
/// of every query head, bf16. Where keys lie apart, it cannot write everything in place: statistics
/// of the run, and gradients of its keys and values, come before that.
std::size_t attention_estimate(const Shape& shape, const SequenceRun& run) {
  const std::int64_t kv_heads = shape.kv_heads / shape.key_parts, d = shape.head_dim();
  const std::int64_t heads = shape.heads / shape.key_parts * shape.micro_batch;
  const std::int64_t keys = run.position + run.count;
  std::int64_t bytes = region_alignment + heads * run.count * (d + 1) * std::int64_t{fp32};
  if (shape.kv_heads < shape.heads)
    bytes += 2 * heads * keys * d * std::int64_t{bf16};
  if (shape.keys_apart())
    bytes += heads * run.count * std::int64_t{fp32} +
             2 * shape.micro_batch * kv_heads * keys * d * std::int64_t{bf16};
  return bytes;
}
}  // namespace

Extents extents_of(Intermediate part, const Shape& shape) {
  const std::int64_t rows = shape.tokens();
  const Extents hidden{rows, shape.hidden}, qkv{rows, shape.qkv()},
      heads{rows, shape.attention_width()}, gain{1, shape.hidden}, of_rows{rows, 1},
      of_scores{rows, shape.heads}, partial{std::min(rows, most_gain_sums), shape.hidden};
  const Extents of_part[] = {hidden,
      qkv,
      heads,
      hidden,
      {rows, 2 * shape.ffn},
      hidden,
      {rows, shape.ffn},
      hidden,
      hidden,
      heads,
      qkv,
      gain,
      gain,
      of_rows,
      of_rows,
      of_scores,
      of_scores,
      partial,
      partial};  // in the order of Intermediate
  static_assert(std::size(of_part) == std::tuple_size_v<decltype(BlockRegions::all)>);
  return of_part[static_cast<std::size_t>(part)];
}

std::int64_t loss_tile(const Shape& shape) {
  const std::int64_t most = largest_logits / shape.vocab;
  const std::int64_t whole_tiles = most > 64 ? most / 64 * 64 : most;
  return std::min(shape.tokens(), std::max<std::int64_t>(16, whole_tiles));
}

BlockPlan plan_saved(const Shape& shape) {
  using enum Intermediate;
  std::vector<Intermediate> parts = {input};
  if (shape.recompute != Recompute::block)
    parts.insert(parts.end(), {attention, lse});
  if (shape.recompute == Recompute::none)
    parts.insert(parts.end(), {rstd1, qkv, middle, rstd2, ffn});
  return plan_of(shape, parts);
}

BlockPlan plan_deferred(const Shape& shape) {
  using enum Intermediate;
  std::vector<Intermediate> parts = {
      output_gradient, norm1, product, middle_gradient, qkv_gradient, gain_partial1, gain_partial2};
  if (shape.recompute == Recompute::block)
    parts.push_back(attention);
  if (shape.recompute == Recompute::none)
    parts.push_back(norm2);
  else
    parts.insert(parts.end(), {rstd1, normed, ffn});
  return plan_of(shape, parts);
}

WorkspacePlan plan_workspace(const Layout& layout, const Duties& duties) {
  const Shape shape = largest_slice(layout.shape);
  WorkspacePlan plan;
  Carver carver;
  plan.rope = carver.take(layout.shape.local_seq() * shape.head_dim(), fp32);
  if (duties.embedding || duties.loss)
    plan.tokens = carver.take(shape.tokens(), int32);
  if (duties.undivided_backward || duties.loss) {
    carver.take(plan.block, {Intermediate::gain_partial1}, shape);
    plan.block[Intermediate::gain_partial2] = plan.block[Intermediate::gain_partial1];
  }

  // One of these at a time.
  const std::size_t shared = carver.end;
  plan.bytes = shared;
  if (duties.blocks)
    plan.bytes = std::max(plan.bytes, plan_block(plan, shape, duties, shared));
  if (duties.loss)
    plan.bytes = std::max(plan.bytes, plan_loss(plan, shape, shared));
  if (duties.embedding_gradient) {
    plan.index = carver.take(2 * shape.tokens() + most_starts(shape.vocab, shape.tokens()), int32);
    plan.bytes = std::max(plan.bytes, carver.end);
  }
  return plan;
}

std::size_t token_bytes(const Shape& shape) {
  const std::int64_t numbers = 3 * shape.tokens() + most_starts(shape.vocab, shape.tokens());
  return (numbers + numbers % 2) * int32;  // in whole eights, as Kokkos allocates
}

std::size_t hidden_bytes(const Shape& shape) {
  return shape.tokens() * shape.hidden * bytes_of(shape.dtype);
}

std::int64_t prefix_elements(const Shape& shape) {
  return shape.seq * shape.micro_batch * shape.key_values();
}

std::size_t library_estimate(const Shape& shape) {
  constexpr std::size_t matmul_workspace = std::size_t{32} << 20;
  std::size_t bytes = matmul_workspace;
  if (shape.dtype == Dtype::bf16)
    for (const Shape& slice : shape.has_slices() ? slices_of(shape) : std::vector{shape})
      for (const SequenceRun& run : runs_of(slice))
        bytes = std::max(bytes, attention_estimate(slice, run));
  return bytes;
}

std::size_t blas_estimate(const Shape& shape, int threads) {
  constexpr std::size_t most = std::size_t{64} << 20, of_token = 576;
  return threads > 1 ? threads * std::min(most, of_token * shape.tokens()) : 0;
}

std::size_t optimiser_bytes(Dtype dtype, std::int64_t elements) {
  const std::size_t buffers = dtype == Dtype::fp32 ? 2 : 3;
  return buffers * sizeof(float) * elements;
}
}  // namespace minitaw::model
