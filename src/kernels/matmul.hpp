#pragma once

#include "kernels/types.hpp"

namespace minitaw::kernels {

enum class Op { plain, transposed };

/// c [m, n] = op(a) op(b) + beta c; beta is 0, and c may hold anything, or 1. Computed by the vendor's
/// library where it has these types (BLAS on a host, cuBLASLt on CUDA), else by a portable kernel. Products
/// are summed in float, whatever C and E are. C is the type of the result, so that totals stay float whatever
/// E is.
template <class C, class E>
void matmul(const ExecutionSpace& exec, Matrix<C> c, Matrix<const E> a, Op op_a, Matrix<const E> b, Op op_b,
            float beta);

}  // namespace minitaw::kernels
