#pragma once

#include "kernels/matmul.hpp"

/// Linear layers without bias; weights w [out, in] as in y = x w^T.
namespace minitaw::kernels {

/// y [T, out] = x [T, in] w^T + beta y; beta 1 adds the layer to a residual stream without another pass.
template <class E>
void linear_forward(const ExecutionSpace& exec, Matrix<E> y, MatrixIn<E> x, MatrixIn<E> w, float beta = 0) {
  matmul<E, E>(exec, y, x, Op::plain, w, Op::transposed, beta);
}

/// dx [T, in] = dy [T, out] w.
template <class E>
void linear_backward_input(const ExecutionSpace& exec, Matrix<E> dx, MatrixIn<E> dy, MatrixIn<E> w) {
  matmul<E, E>(exec, dx, dy, Op::plain, w, Op::plain, 0);
}

/// dw [out, in] is, or with `accumulate` adds to, dy^T x.
template <class G, class E>
void linear_backward_weight(const ExecutionSpace& exec, Matrix<G> dw, Matrix<const E> dy, MatrixIn<E> x,
                            bool accumulate) {
  matmul<G, E>(exec, dw, dy, Op::transposed, x, Op::plain, accumulate ? 1.0F : 0.0F);
}

}  // namespace minitaw::kernels
