// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include "model/layout.hpp"

namespace minitaw::model {
/// Bytes at a place inside a buffer; none where the tensor lives elsewhere.
struct Region {
  std::size_t offset = 0, bytes = 0;
};

/// Intermediate results of a block. Each lies in one of three buffers: saved by the forward pass
/// for the backward pass; deferred by one half of a split backward pass for the other; or scratch.
/// T = B S / n: the rank's part of sequences that n ranks share; of a slice, B (b - a) / n.
enum class Intermediate {
  input,               ///< [T, H] hidden state at the block's input
  qkv,                 ///< [T, (h + 2 h_kv) d] after rotation
  attention,           ///< [T, h d] attention output
  middle,              ///< [T, H] hidden state between attention and feed-forward
  ffn,                 ///< [T, 2 F] gate and up projections, then their gradient
  normed,              ///< [T, H] input of the linear layers; deferred: that of w13
  product,             ///< [T, F] SwiGLU product, before that its gradient
  output_gradient,     ///< [T, H] at the block's output; deferred only
  middle_gradient,     ///< [T, H]
  attention_gradient,  ///< [T, h d]
  qkv_gradient,        ///< [T, (h + 2 h_kv) d]
  norm1,               ///< [H] gain; deferred only
  norm2,
  rstd1,          ///< [T] fp32: reciprocal root mean square of the rows of `input`
  rstd2,          ///< of `middle`
  lse,            ///< [B, h, S / n] fp32: log-sum-exp of each row of scores
  delta,          ///< [B, h, S / n] fp32: sum of output x gradient of each row
  gain_partial1,  ///< [R, H] fp32: partial sums of the gradients of both gains
  gain_partial2,
};

struct BlockRegions {
  std::array<Region, 1 + static_cast<std::size_t>(Intermediate::gain_partial2)> all;

  Region& operator[](Intermediate part) { return all[static_cast<std::size_t>(part)]; }

  const Region& operator[](Intermediate part) const { return all[static_cast<std::size_t>(part)]; }
};

struct Extents {
  std::int64_t rows, cols;
};

/// Extents of an intermediate result of a block; R is min(T, most_gain_sums).
Extents extents_of(Intermediate part, const Shape& shape);

/// Of a block. Those of a shard lie one behind another.
struct BlockPlan {
  BlockRegions regions;
  std::size_t bytes = 0;  ///< a multiple of 256
};

/// Lays out the memory that a block's forward pass saves for its backward pass, for one
/// micro-batch, or a slice of it. Left out, and rebuilt by one pass over memory each: the
/// normalised inputs and the SwiGLU product.
BlockPlan plan_saved(const Shape& shape);

/// Lays out the memory that the input half of a block's backward pass defers for the weight half,
/// beside the saved one, for one micro-batch. Left out: norm1's output, rebuilt from the saved
/// input, row statistics and gain, for 2 T H bytes (bf16) less and a pass over memory that the
/// undivided pass makes too; norm2's likewise if `middle` is saved.
BlockPlan plan_deferred(const Shape& shape);

/// What a rank computes of the model: its scratch is for that and for nothing else.
struct Duties {
  bool blocks = false;
  bool undivided_backward = false;  ///< some backward visit of a block is not split into halves
  bool embedding = false;
  bool embedding_gradient = false;
  bool loss = false;
};

/// Those of a rank that computes everything.
inline constexpr Duties all_duties = {true, true, true, true, true};

/// Lays out the scratch that all compute actions of a rank share. Regions of different phases
/// overlap: the block's, the loss's and the embedding's, and within the block those of attention's
/// backward pass with ffn and product.
struct WorkspacePlan {
  Region rope;         ///< [S / n, d] cosine and sine of each pair at each token of a sequence that
                       ///< the rank has; lasts as long as the model
  Region tokens;       ///< [T] int32: tokens or targets of the action in progress
  BlockRegions block;  ///< what is not kept; both gain_partial are one place, also the loss's

  // The loss, one tile of tokens at a time (C tokens).
  Region tile_normed;    ///< [C, H]
  Region tile_gradient;  ///< [C, H]
  Region tile_rstd;      ///< [C] fp32
  Region tile_logits;    ///< [C, V]
  Region tile_losses;    ///< [C] fp64

  // The embedding's gradient.
  Region index;  ///< [2 T + most_segments] int32: MicroBatch::index()

  std::size_t bytes = 0;
};

WorkspacePlan plan_workspace(const Layout& layout, const Duties& duties = all_duties);
/// Most rows of partial sums in the gradient of a norm's gain (kernels::most_rmsnorm_chunks).
inline constexpr std::int64_t most_gain_sums = 512;
/// Tokens whose logits are in memory at a time: up to 2^26 logits, at least 16 tokens; tiles of 64
/// where it can be.
std::int64_t loss_tile(const Shape& shape);
/// Bytes that hold the tokens of a micro-batch, T = B S: inputs, targets and positions by token
/// [T], and where each distinct token begins (most_segments), int32.
std::size_t token_bytes(const Shape& shape);
/// Bytes of the hidden state [B S, H] that goes from block to block, and of its gradient.
std::size_t hidden_bytes(const Shape& shape);
/// Elements of the keys and values of a block that its slices gather, one after the other: of whole
/// sequences [B, S, 2 h_kv d].
std::int64_t prefix_elements(const Shape& shape);
/// Bytes behind the sum of squares of a gradient: the number, fp32, and from squares_scratch on
/// partial sums.
inline constexpr std::size_t squares_scratch = 256;
inline constexpr std::size_t squares_bytes = squares_scratch + 512 * sizeof(double);
/// Workspace that libraries are given on a device beside the arena: 32 MiB for cuBLASLt, or more
/// for cuDNN's backward attention in bf16, about 4 T h (d + 1) bytes and with grouped heads
/// 4 B S h d more. Another version of cuDNN may ask for less or more; a run measures it.
std::size_t library_estimate(const Shape& shape);
/// Estimate of what the BLAS of a host packs operands into, for all threads of a rank: 576 bytes
/// per token and thread, at most 64 MiB per thread, and next to nothing for one alone. As found
/// with OpenBLAS 0.3.29 at H = 32 to 256.
std::size_t blas_estimate(const Shape& shape, int threads);
/// Bytes of the optimiser's state for `elements` weights: two fp32 moments, for bf16 a master copy
/// as well.
std::size_t optimiser_bytes(Dtype dtype, std::int64_t elements);
}  // namespace minitaw::model
