#pragma once

#include "kernels/kernels.hpp"

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

// The versions that attention.cpp chooses from; arguments as in attention.hpp.

namespace host {
void attention_forward(const ExecutionSpace& exec, Matrix<float> y, Vector<float> lse,
                       Matrix<const float> qkv, const AttentionSizes& sizes);
/// What the threads share: whole heads, or tiles of them, which takes more FLOPs and keeps more threads busy.
enum class Tasks { automatic, heads, tiles };
void attention_backward(const ExecutionSpace& exec, Matrix<float> dqkv, Matrix<const float> dy,
                        Matrix<const float> qkv, Matrix<const float> y, Vector<const float> lse,
                        const AttentionSizes& sizes, Tasks tasks = Tasks::automatic);
}  // namespace host

namespace portable {
template <class E>
void attention_forward(const ExecutionSpace& exec, Matrix<E> y, Vector<float> lse, Matrix<const E> qkv,
                       const AttentionSizes& sizes);
template <class E>
void attention_backward(const ExecutionSpace& exec, Matrix<E> dqkv, Vector<float> delta, Matrix<const E> dy,
                        Matrix<const E> qkv, Matrix<const E> y, Vector<const float> lse,
                        const AttentionSizes& sizes);
void attention_prepare(const ExecutionSpace& exec, const AttentionSizes& sizes);
}  // namespace portable

/// Builds with cuDNN only.
namespace cuda {
/// Empty if cuDNN can compute these sizes.
std::string reason_against_cudnn(const AttentionSizes& sizes);
void attention_prepare(const ExecutionSpace& exec, const AttentionSizes& sizes);
void attention_forward(const ExecutionSpace& exec, Matrix<Bf16> y, Vector<float> lse, Matrix<const Bf16> qkv,
                       const AttentionSizes& sizes);
void attention_backward(const ExecutionSpace& exec, Matrix<Bf16> dqkv, Matrix<const Bf16> dy,
                        Matrix<const Bf16> qkv, Matrix<const Bf16> y, Vector<const float> lse,
                        const AttentionSizes& sizes);
}  // namespace cuda

}  // namespace minitaw::kernels::detail

/// The version of a host build; arguments as in cross_entropy.hpp.

namespace minitaw::kernels::detail::host {

template <class E>
void cross_entropy(const ExecutionSpace& exec, Vector<double> losses, Matrix<E> logits, TokensIn targets,
                   float scale);

}  // namespace minitaw::kernels::detail::host
