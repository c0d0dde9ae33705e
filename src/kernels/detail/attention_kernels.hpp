#pragma once

#include "kernels/attention.hpp"

/// The versions that attention.cpp chooses from; arguments as in attention.hpp.
namespace minitaw::kernels::detail {

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
