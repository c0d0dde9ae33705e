// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "base/error.hpp"
#include "kernels/settings.hpp"

/// Without Kokkos, as the vendors' libraries see it.
namespace minitaw::kernels::detail {
/// What a call of attention computes, with nothing left to a default. Throws LogicError for a part
/// that is not inside of what it is a part of.
struct Part {
  Part(const AttentionSizes& sizes, const AttentionPart& part = {})
      : z(sizes),
        run(part.run.count > 0 ? part.run : QueryRun{0, z.seq, 0}),
        kv_heads(part.kv_heads.count > 0 ? part.kv_heads : HeadRange{0, z.kv_heads}),
        own_rows(part.stride > 0),
        kv_stride(own_rows ? part.stride : row_of_qkv()),
        chunk(own_rows ? part.chunk : z.seq) {
    const bool inside = run.row >= 0 && run.row + run.count <= z.seq && run.position >= 0 &&
                        kv_heads.first >= 0 && kv_heads.first + kv_heads.count <= z.kv_heads &&
                        kv_stride >= kv_heads.count * z.head_dim && chunk > 0 &&
                        (own_rows || run.end() <= z.seq);
    if (!inside)
      throw LogicError("attention: a part that is not inside of its rows, heads or keys");
  }

  /// Query heads that read its key/value heads.
  [[nodiscard]] MINITAW_HOST_DEVICE HeadRange heads() const {
    return {kv_heads.first * z.group(), kv_heads.count * z.group()};
  }

  /// Elements of a token in qkv, and in y.
  [[nodiscard]] MINITAW_HOST_DEVICE int row_of_qkv() const {
    return (z.heads + 2 * z.kv_heads) * z.head_dim;
  }

  [[nodiscard]] MINITAW_HOST_DEVICE int row_of_y() const { return z.heads * z.head_dim; }

  /// Keys and values, or their gradients, in the rows of qkv.
  template <class T>
  [[nodiscard]] KeyValues<T> in(T* qkv) const {
    T* const keys = qkv + (z.heads + kv_heads.first) * z.head_dim;
    return {keys, keys + z.kv_heads * z.head_dim};
  }

  /// Those that the part means.
  template <class T>
  [[nodiscard]] KeyValues<T> choose(T* qkv, const KeyValues<T>& own) const {
    return own_rows ? own : in(qkv);
  }

  auto operator<=>(const Part&) const = default;

  AttentionSizes z;
  QueryRun run;
  HeadRange kv_heads;
  bool own_rows;           ///< keys and values are not those in qkv
  std::int64_t kv_stride;  ///< elements from a key to the next of its chunk
  int chunk;
};
}  // namespace minitaw::kernels::detail
