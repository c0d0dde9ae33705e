// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <compare>
#include <cstdint>
#include "base/error.hpp"
#include "base/philox.hpp"

/// Constants and types that kernels, their plain references and the vendors' libraries share.
/// Without Kokkos.

namespace minitaw::kernels {
/// Sizes of causal attention with grouped query heads: query head i reads key/value head i h_kv /
/// h.
struct AttentionSizes {
  int batch = 0;     ///< B
  int seq = 0;       ///< S: rows of each sequence in qkv and y
  int heads = 0;     ///< h
  int kv_heads = 0;  ///< h_kv, divides h
  int head_dim = 0;  ///< d

  MINITAW_HOST_DEVICE int group() const { return heads / kv_heads; }

  auto operator<=>(const AttentionSizes&) const = default;
};

/// Rows [row, row + count) of each sequence's rows here, at the positions from `position` on of the
/// sequence.
struct QueryRun {
  int row = 0, count = 0, position = 0;

  /// The position after the last: its queries see keys [0, end()).
  MINITAW_HOST_DEVICE int end() const { return position + count; }

  auto operator<=>(const QueryRun&) const = default;
};

struct HeadRange {
  int first = 0, count = 0;

  auto operator<=>(const HeadRange&) const = default;
};

/// Keys and values of whole sequences, or sums of their gradients, of the heads of a part, which
/// says how their rows lie.
template <class T>
struct KeyValues {
  T* keys = nullptr;
  T* values = nullptr;
};

/// How rows of keys and values lie: with j = position - first, position of sequence b has row
/// (j / chunk) chunk B + b chunk + j % chunk, and rows are `stride` elements apart. One chunk of S
/// is [B, S]; gathered chunks lie one after the other, with all sequences in each.
struct KeyRows {
  std::int64_t stride = 0;
  int chunk = 0, first = 0;
};

/// The part of attention that one call computes, and how its KeyValues lie.
struct AttentionPart {
  /// of_run, of_heads: all of them where the count is 0, rows from position 0 on. own_stride and
  /// own_chunk are those of KeyValues, whose rows begin with the first head of the part. Stride 0:
  /// keys and values are those in qkv, positions as rows. Throws LogicError for a part that is not
  /// inside of what it is a part of.
  AttentionPart(const AttentionSizes& sizes,
      const QueryRun& of_run = {},
      const HeadRange& of_heads = {},
      std::int64_t own_stride = 0,
      int own_chunk = 0)
      : z(sizes),
        run(of_run.count > 0 ? of_run : QueryRun{0, z.seq, 0}),
        kv_heads(of_heads.count > 0 ? of_heads : HeadRange{0, z.kv_heads}),
        own_rows(own_stride > 0),
        kv_stride(own_rows ? own_stride : row_of_qkv()),
        chunk(own_rows ? own_chunk : z.seq) {
    const bool inside = run.row >= 0 && run.row + run.count <= z.seq && run.position >= 0 &&
                        kv_heads.first >= 0 && kv_heads.first + kv_heads.count <= z.kv_heads &&
                        kv_stride >= width() && chunk > 0 && (own_rows || run.end() <= z.seq);
    if (!inside)
      throw LogicError("attention: a part that is not inside of its rows, heads or keys");
  }

  /// Query heads that read its key/value heads.
  MINITAW_HOST_DEVICE HeadRange heads() const {
    return {kv_heads.first * z.group(), kv_heads.count * z.group()};
  }

  /// Elements of a key of all its heads.
  MINITAW_HOST_DEVICE int width() const { return kv_heads.count * z.head_dim; }

  /// Elements of a token in qkv, and in y.
  MINITAW_HOST_DEVICE int row_of_qkv() const { return (z.heads + 2 * z.kv_heads) * z.head_dim; }

  MINITAW_HOST_DEVICE int row_of_y() const { return z.heads * z.head_dim; }

  /// Keys and values, or their gradients, in the rows of qkv.
  template <class T>
  KeyValues<T> in(T* qkv) const {
    T* const keys = qkv + (z.heads + kv_heads.first) * z.head_dim;
    return {keys, keys + z.kv_heads * z.head_dim};
  }

  /// Rows of the run's positions in qkv, and of all positions where the part has its keys.
  KeyRows rows_in_qkv() const { return {row_of_qkv(), z.seq, run.position - run.row}; }

  KeyRows rows() const { return {kv_stride, chunk}; }

  auto operator<=>(const AttentionPart&) const = default;

  AttentionSizes z;
  QueryRun run;
  HeadRange kv_heads;
  bool own_rows;           ///< keys and values are not those in qkv
  std::int64_t kv_stride;  ///< elements from a key to the next of its chunk
  int chunk;
};

/// AdamW (Loshchilov & Hutter 2019, algorithm 2).
struct AdamW {
  float learning_rate = 1e-3F, beta1 = 0.9F, beta2 = 0.95F, epsilon = 1e-8F, decay = 0.1F;
  float clip_norm = 0;  ///< a longer gradient is shortened to this norm; 0: none is
};

/// Factor that shortens a gradient of this norm to clip_norm, as torch.nn.utils.clip_grad_norm_
/// does; at most 1.
template <class Real>
MINITAW_HOST_DEVICE Real clip_factor(Real clip_norm, Real norm) {
  return clip_norm < norm + Real(1e-6) ? clip_norm / (norm + Real(1e-6)) : Real(1);
}
}  // namespace minitaw::kernels
