#pragma once

#include "kernels/matmul.hpp"

/// The versions that matmul.cpp chooses from; arguments as in matmul.hpp.
namespace minitaw::kernels::detail {

namespace host {
void matmul(const ExecutionSpace& exec, Matrix<float> c, Matrix<const float> a, Op op_a,
            Matrix<const float> b, Op op_b, float beta);
}  // namespace host

namespace portable {
template <class C, class E>
void matmul(const ExecutionSpace& exec, Matrix<C> c, Matrix<const E> a, Op op_a, Matrix<const E> b, Op op_b,
            float beta);
}  // namespace portable

}  // namespace minitaw::kernels::detail
