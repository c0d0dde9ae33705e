#pragma once

#include "kernels/types.hpp"

/// SwiGLU (Shazeer 2020): y = silu(gate) up. x [T, 2 F]: gate columns, then up columns.
namespace minitaw::kernels {

/// y [T, F].
template <class E>
void swiglu_forward(const ExecutionSpace& exec, Matrix<E> y, MatrixIn<E> x);

/// dx [T, 2 F], and y [T, F] again, because the gradient of the weights behind it needs it. dx may be x, y
/// may be dy.
template <class E>
void swiglu_backward(const ExecutionSpace& exec, Matrix<E> dx, Matrix<E> y, MatrixIn<E> dy, MatrixIn<E> x);

}  // namespace minitaw::kernels
