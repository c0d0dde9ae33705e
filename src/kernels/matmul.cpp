#include "kernels/matmul.hpp"

#include "kernels/detail/matmul_kernels.hpp"

namespace minitaw::kernels {

template <class C, class E>
void matmul(const ExecutionSpace& exec, Matrix<C> c, Matrix<const E> a, Op op_a, Matrix<const E> b, Op op_b,
            float beta) {
  if constexpr (on_host && std::is_same_v<C, float> && std::is_same_v<E, float>)
    return detail::host::matmul(exec, c, a, op_a, b, op_b, beta);
#ifdef MINITAW_HAVE_CUBLASLT
  if (detail::cuda::matmul<C, E>(exec, c, a, op_a, b, op_b, beta)) return;
#endif
  detail::portable::matmul<C, E>(exec, c, a, op_a, b, op_b, beta);
}

template void matmul<float, float>(const ExecutionSpace&, Matrix<float>, Matrix<const float>, Op,
                                   Matrix<const float>, Op, float);
template void matmul<float, Bf16>(const ExecutionSpace&, Matrix<float>, Matrix<const Bf16>, Op,
                                  Matrix<const Bf16>, Op, float);
template void matmul<Bf16, Bf16>(const ExecutionSpace&, Matrix<Bf16>, Matrix<const Bf16>, Op,
                                 Matrix<const Bf16>, Op, float);

}  // namespace minitaw::kernels
