#pragma once

#include "kernels/types.hpp"

/// Rotary embedding (Su et al. 2021) on pairs (2i, 2i+1) with theta 10000, in place on the fused projection
/// qkv [T, (h + 2 h_kv) d]: queries and keys turn where they are, so no split ever copies them.
namespace minitaw::kernels {

/// table [S, d]: cosine and sine of position theta^(-2i / d) for each pair; angles in double, because
/// position 10^5 times a frequency leaves a float no digits of the angle.
void rope_table(const ExecutionSpace& exec, Matrix<float> table);

/// Turns the first `heads` heads (queries, then keys) of every token; row t has position t mod S.
template <class E>
void rope_forward(const ExecutionSpace& exec, Matrix<E> qkv, Matrix<const float> table, int heads);

/// Turns back: the gradient, because a rotation's transpose is its inverse.
template <class E>
void rope_backward(const ExecutionSpace& exec, Matrix<E> dqkv, Matrix<const float> table, int heads);

}  // namespace minitaw::kernels
