// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <compare>
#include <cstdint>
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

  [[nodiscard]] MINITAW_HOST_DEVICE int group() const { return heads / kv_heads; }

  auto operator<=>(const AttentionSizes&) const = default;
};

/// Rows [row, row + count) of each sequence's rows here, at the positions from `position` on of the
/// sequence.
struct QueryRun {
  int row = 0, count = 0, position = 0;

  /// The position after the last: its queries see keys [0, end()).
  [[nodiscard]] MINITAW_HOST_DEVICE int end() const { return position + count; }

  auto operator<=>(const QueryRun&) const = default;
};

struct HeadRange {
  int first = 0, count = 0;

  auto operator<=>(const HeadRange&) const = default;
};

/// What one call of attention computes, and how KeyValues lie. The default: all of it, keys and
/// values in the fused projection, positions as rows.
struct AttentionPart {
  QueryRun run{};        ///< count 0: all rows, at position 0
  HeadRange kv_heads{};  ///< with the query heads that read them; count 0: all
  /// Position j of sequence b is row (j / chunk) chunk B + b chunk + j % chunk of KeyValues, whose
  /// rows are `stride` elements apart; the first head of kv_heads is at their beginning. chunk = S
  /// is [B, S]; gathered chunks lie one after the other, with all sequences in each. stride 0: keys
  /// and values are those in qkv.
  std::int64_t stride = 0;
  int chunk = 0;

  auto operator<=>(const AttentionPart&) const = default;
};

/// Keys and values of whole sequences, or sums of their gradients, of the heads of a part, which
/// says how their rows lie.
template <class T>
struct KeyValues {
  T* keys = nullptr;
  T* values = nullptr;
};

/// AdamW (Loshchilov & Hutter 2019, algorithm 2).
struct AdamW {
  float learning_rate = 1e-3F, beta1 = 0.9F, beta2 = 0.95F, epsilon = 1e-8F, decay = 0.1F;
  float clip_norm = 0;  ///< a longer gradient is shortened to this norm; 0: none is
};

/// Factor that shortens a gradient of this norm to clip_norm, as torch.nn.utils.clip_grad_norm_
/// does; at most 1.
template <class Real>
[[nodiscard]] MINITAW_HOST_DEVICE Real clip_factor(Real clip_norm, Real norm) {
  return clip_norm < norm + Real(1e-6) ? clip_norm / (norm + Real(1e-6)) : Real(1);
}
}  // namespace minitaw::kernels
