// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "kernels/kernels.hpp"

/// Instantiates a product for its types of result and factors.
#define MINITAW_INSTANTIATE_PRODUCT(function)                                                      \
  template decltype(function<float, float>) function<float, float>;                                \
  template decltype(function<float, Bf16>) function<float, Bf16>;                                  \
  template decltype(function<Bf16, Bf16>) function<Bf16, Bf16>;

/// The versions that matmul() and the functions of attention choose from. Their arguments are the
/// same, for attention as placed() returns them.

namespace minitaw::kernels::detail {
/// The problem as the versions expect it: without rows of its own its keys, values and sums of
/// their gradients are those in the fused projection.
template <class Problem>
Problem placed(Problem p) {
  if (p.part.own_rows)
    return p;
  p.key_values = p.part.in(p.qkv.data());
  if constexpr (requires { p.gradient_sums = p.part.in(p.dqkv.data()); })
    p.gradient_sums = p.part.in(p.dqkv.data());
  return p;
}

/// Divides the scratch memory of a team. From null it only counts.
struct Memory {
  float* data;
  int floats = 0;

  KOKKOS_INLINE_FUNCTION float* take(int count) {
    float* const place = data + floats;
    floats += count;
    return place;
  }
};

/// Some rows of one head: head_dim elements each.
template <class E>
struct HeadRows {
  E* first;
  std::int64_t stride;  ///< elements from one row to the next
  int count;
  // where rows lie in chunks:
  std::int64_t jump = 0;  ///< further elements from a chunk to the next
  int chunk = 0;
  int into = 0;  ///< rows of the chunk before the first one

  KOKKOS_INLINE_FUNCTION E* row(int i) const {
    E* const at = first + i * stride;
    return jump == 0 ? at : at + (into + i) / chunk * jump;
  }
};

/// The places of the rows of one head of one sequence, a row a position. `query`, `output` and
/// `row` belong to position 0, even if it is not here.
struct Head {
  std::int64_t stride, y_stride, kv_stride;  ///< elements from one position to the next
  std::int64_t query, key, output, row;      ///< of position 0; row: in [B, h, S]
  std::int64_t jump;
  int chunk;

  KOKKOS_INLINE_FUNCTION Head(const AttentionPart& p, int sequence, int head)
      : stride(p.row_of_qkv()),
        y_stride(p.row_of_y()),
        kv_stride(p.kv_stride),
        chunk(p.chunk) {
    const AttentionSizes& z = p.z;
    const int shift = p.run.row - p.run.position;
    const std::int64_t first = std::int64_t{sequence} * z.seq + shift;
    query = first * stride + head * z.head_dim;
    output = first * y_stride + head * z.head_dim;
    row = (std::int64_t{sequence} * z.heads + head) * z.seq + shift;
    key = std::int64_t{sequence} * chunk * kv_stride +
          (head / z.group() - p.kv_heads.first) * z.head_dim;
    jump = p.run.end() > chunk ? std::int64_t{z.batch - 1} * chunk * kv_stride : 0;
  }

  // Rows of `count` positions from `position` on, in qkv (or its gradient), in the output (or its),
  // and in keys, values or their gradients.

  template <class E>
  KOKKOS_INLINE_FUNCTION HeadRows<E> queries(E* qkv, int position, int count) const {
    return {qkv + (query + position * stride), stride, count};
  }

  template <class E>
  KOKKOS_INLINE_FUNCTION HeadRows<E> outputs(E* y, int position, int count) const {
    return {y + (output + position * y_stride), y_stride, count};
  }

  template <class E>
  KOKKOS_INLINE_FUNCTION HeadRows<E> keys(E* keys_or_values, int position, int count) const {
    E* const first = keys_or_values + (key + position * kv_stride);
    if (jump == 0)
      return {first, kv_stride, count};
    const int before = position / chunk;
    return {first + before * jump, kv_stride, count, jump, chunk, position - before * chunk};
  }
};

/// Tiles of `tile` positions that `count` of them make; the last one may be shorter.
KOKKOS_INLINE_FUNCTION int tiles_of(int count, int tile) {
  return (count + tile - 1) / tile;
}

/// A task: one tile of queries of one head. Later queries see more keys: the longest tasks come
/// first, so that none is left at the end.
struct QueryTile {
  Head head;
  int begin, count;  ///< positions of its queries

  KOKKOS_INLINE_FUNCTION QueryTile(const AttentionPart& p, int tile, int task)
      : QueryTile(p, tile, task / p.heads().count, p.heads().first + task % p.heads().count) {}

private:
  KOKKOS_INLINE_FUNCTION QueryTile(const AttentionPart& p, int tile, int sequence, int head_index)
      : head(p, sequence % p.z.batch, head_index),
        begin(p.run.position + (tiles_of(p.run.count, tile) - 1 - sequence / p.z.batch) * tile),
        count(begin + tile < p.run.end() ? tile : p.run.end() - begin) {}
};

namespace host {
void attend(const ExecutionSpace& exec, const AttentionForward<float>& p);
/// Unit of work of a thread: whole heads, or tiles of them: more FLOPs, but more threads are busy.
enum class Tasks { automatic, heads, tiles };
void attend(
    const ExecutionSpace& exec, const AttentionBackward<float>& p, Tasks tasks = Tasks::automatic);
}  // namespace host

namespace portable {
/// Tests set this, so that attention's small tiles are tried there, too.
inline bool small_tiles_on_host = false;

template <class C, class E>
void matmul(
    const ExecutionSpace& exec, Matrix<C> c, const Factor<E>& a, const Factor<E>& b, float beta);
template <class E>
void attend(const ExecutionSpace& exec, const AttentionForward<E>& p);
template <class E, class G>
void attend(const ExecutionSpace& exec, const AttentionBackward<E, G>& p);
void attention_prepare(const ExecutionSpace& exec, const AttentionPart& part);
}  // namespace portable

namespace vendor {
/// Exists in builds with cuBLASLt or rocBLAS. Returns false if the library has no algorithm for
/// these sizes, types and addresses.
template <class C, class E>
[[nodiscard]] bool matmul(
    const ExecutionSpace& exec, Matrix<C> c, const Factor<E>& a, const Factor<E>& b, float beta);
}  // namespace vendor
}  // namespace minitaw::kernels::detail
