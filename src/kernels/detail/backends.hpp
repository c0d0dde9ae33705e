// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "kernels/kernels.hpp"

/// The versions that matmul() and the functions of attention choose from; their arguments are the
/// same.

namespace minitaw::kernels::detail {
/// First queries, keys, values, outputs and row statistics of one head of one sequence.
struct Head {
  std::int64_t stride, y_stride;  ///< elements from one token to the next
  std::int64_t query, key, value, output, row;

  KOKKOS_INLINE_FUNCTION Head(const AttentionSizes& z, int sequence, int head)
      : stride((z.heads + 2 * z.kv_heads) * z.head_dim),
        y_stride(z.heads * z.head_dim),
        query(std::int64_t{sequence} * z.seq * stride + head * z.head_dim),
        key(std::int64_t{sequence} * z.seq * stride + (z.heads + head / z.group()) * z.head_dim),
        value(key + z.kv_heads * z.head_dim),
        output(std::int64_t{sequence} * z.seq * y_stride + head * z.head_dim),
        row((std::int64_t{sequence} * z.heads + head) * z.seq) {}
};

namespace host {
void attention_forward(const ExecutionSpace& exec,
    Matrix<float> y,
    Vector<float> lse,
    Matrix<const float> qkv,
    const AttentionSizes& sizes);
/// Unit of work of a thread: whole heads, or tiles of them: more FLOPs, but more threads are busy.
enum class Tasks { automatic, heads, tiles };
void attention_backward(const ExecutionSpace& exec,
    Matrix<float> dqkv,
    Matrix<const float> dy,
    Matrix<const float> qkv,
    Matrix<const float> y,
    Vector<const float> lse,
    const AttentionSizes& sizes,
    Tasks tasks = Tasks::automatic);
}  // namespace host

namespace portable {
/// Tests set this, so that attention's small tiles are tried there, too.
inline bool small_tiles_on_host = false;

template <class C, class E>
void matmul(const ExecutionSpace& exec,
    Matrix<C> c,
    Matrix<const E> a,
    Op op_a,
    Matrix<const E> b,
    Op op_b,
    float beta);
template <class E>
void attention_forward(const ExecutionSpace& exec,
    Matrix<E> y,
    Vector<float> lse,
    Matrix<const E> qkv,
    const AttentionSizes& sizes);
template <class E>
void attention_backward(const ExecutionSpace& exec,
    Matrix<E> dqkv,
    Vector<float> delta,
    Matrix<const E> dy,
    Matrix<const E> qkv,
    Matrix<const E> y,
    Vector<const float> lse,
    const AttentionSizes& sizes);
void attention_prepare(const ExecutionSpace& exec, const AttentionSizes& sizes);
}  // namespace portable

namespace cuda {
/// In builds with cuBLASLt. False if the library has no algorithm for these sizes, types and
/// addresses.
template <class C, class E>
[[nodiscard]] bool matmul(const ExecutionSpace& exec,
    Matrix<C> c,
    Matrix<const E> a,
    Op op_a,
    Matrix<const E> b,
    Op op_b,
    float beta);
}  // namespace cuda
}  // namespace minitaw::kernels::detail
