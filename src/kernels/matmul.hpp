#pragma once

#include "kernels/types.hpp"

namespace minitaw::kernels {

enum class Op { plain, transposed };

/// c [m, n] = op(a) op(b) + beta c by the vendor's library: BLAS on a host. With beta 0, c may hold anything.
/// C is the type of the result, so that totals stay float whatever E is.
template <class C, class E>
void matmul(const ExecutionSpace& exec, Matrix<C> c, Matrix<const E> a, Op op_a, Matrix<const E> b, Op op_b,
            float beta);

}  // namespace minitaw::kernels
