// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "kernels/kernels.hpp"

/// Instantiates a product for its types of result and factors.
#define MINITAW_INSTANTIATE_PRODUCT(function)                                                      \
  template decltype(function<float, float>) function<float, float>;                                \
  template decltype(function<float, Bf16>) function<float, Bf16>;                                  \
  template decltype(function<Bf16, Bf16>) function<Bf16, Bf16>;

/// The versions that matmul() and the functions of attention choose from; their arguments are the
/// same.

namespace minitaw::kernels::detail {
/// The part of consecutive rows of a matrix that belongs to one head: head_dim elements of each.
template <class E>
struct HeadRows {
  E* first;
  std::int64_t stride;  ///< elements from one row to the next
  int count;
};

/// Where one head of one sequence finds its rows, a row a token.
struct Head {
  std::int64_t stride, y_stride;                ///< elements from one token to the next
  std::int64_t query, key, value, output, row;  ///< of its first token

  KOKKOS_INLINE_FUNCTION Head(const AttentionSizes& z, int sequence, int head)
      : stride((z.heads + 2 * z.kv_heads) * z.head_dim),
        y_stride(z.heads * z.head_dim),
        query(std::int64_t{sequence} * z.seq * stride + head * z.head_dim),
        key(std::int64_t{sequence} * z.seq * stride + (z.heads + head / z.group()) * z.head_dim),
        value(key + z.kv_heads * z.head_dim),
        output(std::int64_t{sequence} * z.seq * y_stride + head * z.head_dim),
        row((std::int64_t{sequence} * z.heads + head) * z.seq) {}

  // Rows of `count` tokens from `token` on, in qkv (or its gradient) and in the output (or its).

  template <class E>
  KOKKOS_INLINE_FUNCTION HeadRows<E> queries(E* qkv, int token, int count) const {
    return {qkv + query + token * stride, stride, count};
  }

  template <class E>
  KOKKOS_INLINE_FUNCTION HeadRows<E> keys(E* qkv, int token, int count) const {
    return {qkv + key + token * stride, stride, count};
  }

  template <class E>
  KOKKOS_INLINE_FUNCTION HeadRows<E> values(E* qkv, int token, int count) const {
    return {qkv + value + token * stride, stride, count};
  }

  template <class E>
  KOKKOS_INLINE_FUNCTION HeadRows<E> outputs(E* y, int token, int count) const {
    return {y + output + token * y_stride, y_stride, count};
  }
};

/// Tiles of `tile` tokens that a sequence has; the last one may be shorter.
KOKKOS_INLINE_FUNCTION int tiles_of(int seq, int tile) {
  return (seq + tile - 1) / tile;
}

/// A task: one tile of queries of one head. Later queries see more keys: the longest tasks come
/// first, so that none is left at the end.
struct QueryTile {
  Head head;
  int begin, count;  ///< of its queries

  KOKKOS_INLINE_FUNCTION QueryTile(const AttentionSizes& z, int tile, int task)
      : head(z, task / z.heads % z.batch, task % z.heads),
        begin((tiles_of(z.seq, tile) - 1 - task / (z.batch * z.heads)) * tile),
        count(begin + tile < z.seq ? tile : z.seq - begin) {}
};

namespace host {
void attention_forward(const ExecutionSpace& exec, const AttentionForward<float>& p);
/// Unit of work of a thread: whole heads, or tiles of them: more FLOPs, but more threads are busy.
enum class Tasks { automatic, heads, tiles };
void attention_backward(
    const ExecutionSpace& exec, const AttentionBackward<float>& p, Tasks tasks = Tasks::automatic);
}  // namespace host

namespace portable {
/// Tests set this, so that attention's small tiles are tried there, too.
inline bool small_tiles_on_host = false;

template <class C, class E>
void matmul(
    const ExecutionSpace& exec, Matrix<C> c, const Factor<E>& a, const Factor<E>& b, float beta);
template <class E>
void attention_forward(const ExecutionSpace& exec, const AttentionForward<E>& p);
template <class E>
void attention_backward(const ExecutionSpace& exec, const AttentionBackward<E>& p);
void attention_prepare(const ExecutionSpace& exec, const AttentionSizes& sizes);
}  // namespace portable

namespace cuda {
/// In builds with cuBLASLt. False if the library has no algorithm for these sizes, types and
/// addresses.
template <class C, class E>
[[nodiscard]] bool matmul(
    const ExecutionSpace& exec, Matrix<C> c, const Factor<E>& a, const Factor<E>& b, float beta);
}  // namespace cuda
}  // namespace minitaw::kernels::detail
