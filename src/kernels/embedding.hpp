#pragma once

#include "kernels/types.hpp"

namespace minitaw::kernels {

/// x [T, H] = table [V, H] at tokens [T].
template <class E>
void embedding_forward(const ExecutionSpace& exec, Matrix<E> x, MatrixIn<E> table, TokensIn tokens);

/// dtable [V, H] adds to the rows of dx [T, H] that share a token. order [T]: positions sorted by token,
/// ascending among equals; segment s is order[segments(s)] .. order[segments(s + 1) - 1], all of one token.
/// Each row of dtable is summed by one team in that order: no atomics, the same bits every time.
template <class E>
void embedding_backward(const ExecutionSpace& exec, Matrix<float> dtable, MatrixIn<E> dx, TokensIn tokens,
                        TokensIn order, TokensIn segments);

}  // namespace minitaw::kernels
