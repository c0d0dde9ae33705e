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

/// Builds with cuBLASLt only.
namespace cuda {
/// False if the library has no algorithm for these sizes, types and addresses.
template <class C, class E>
[[nodiscard]] bool matmul(const ExecutionSpace& exec, Matrix<C> c, Matrix<const E> a, Op op_a,
                          Matrix<const E> b, Op op_b, float beta);
}  // namespace cuda

}  // namespace minitaw::kernels::detail
