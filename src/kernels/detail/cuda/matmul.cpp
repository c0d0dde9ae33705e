#include "kernels/detail/cuda/queue.hpp"
#include "kernels/detail/matmul_kernels.hpp"

namespace minitaw::kernels::detail::cuda {

namespace {

template <class E>
inline constexpr cudaDataType type_of = std::is_same_v<E, Bf16> ? CUDA_R_16BF : CUDA_R_32F;

/// The largest power of two up to 256 that divides the address: fast kernels read 16 bytes at once, and the
/// library must know when they cannot.
int alignment_of(const void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  int alignment = 256;
  while (value % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

}  // namespace

template <class C, class E>
bool matmul(const ExecutionSpace& exec, Matrix<C> c, Matrix<const E> a, Op op_a, Matrix<const E> b, Op op_b,
            float beta) {
  const bool turn_a = op_a == Op::transposed, turn_b = op_b == Op::transposed;
  const ProductKey key{static_cast<std::int64_t>(c.extent(0)),
                       static_cast<std::int64_t>(c.extent(1)),
                       static_cast<std::int64_t>(a.extent(turn_a ? 0 : 1)),
                       turn_a,
                       turn_b,
                       beta != 0,
                       type_of<E>,
                       type_of<C>,
                       alignment_of(a.data()),
                       alignment_of(b.data()),
                       alignment_of(c.data())};
  Queue& queue = queue_of(exec);
  return queue.products.multiply(queue.stream, queue.workspace, key, {a.data(), b.data(), c.data(), beta});
}

template bool matmul<float, float>(const ExecutionSpace&, Matrix<float>, Matrix<const float>, Op,
                                   Matrix<const float>, Op, float);
template bool matmul<float, Bf16>(const ExecutionSpace&, Matrix<float>, Matrix<const Bf16>, Op,
                                  Matrix<const Bf16>, Op, float);
template bool matmul<Bf16, Bf16>(const ExecutionSpace&, Matrix<Bf16>, Matrix<const Bf16>, Op,
                                 Matrix<const Bf16>, Op, float);

}  // namespace minitaw::kernels::detail::cuda
