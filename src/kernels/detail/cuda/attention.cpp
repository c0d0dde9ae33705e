#include "base/error.hpp"
#include "kernels/detail/attention_kernels.hpp"
#include "kernels/detail/cuda/queue.hpp"
#include "kernels/detail/pack.hpp"

namespace minitaw::kernels::detail::cuda {

namespace {

AttentionShape shape_of(const AttentionSizes& z) { return {z.batch, z.seq, z.heads, z.kv_heads, z.head_dim}; }

void require_alignment(std::initializer_list<const void*> addresses) {
  if (!aligned(addresses)) throw LogicError("attention = cudnn: an address is not a multiple of 16");
}

}  // namespace

std::string reason_against_cudnn(const AttentionSizes& sizes) {
  return reason_against_cudnn(shape_of(sizes));
}

void attention_prepare(const ExecutionSpace& exec, const AttentionSizes& sizes) {
  Queue& queue = queue_of(exec);
  queue.workspace.reserve(queue.attention.prepare(shape_of(sizes)));
}

void attention_forward(const ExecutionSpace& exec, Matrix<Bf16> y, Vector<float> lse, Matrix<const Bf16> qkv,
                       const AttentionSizes& sizes) {
  require_alignment({y.data(), lse.data(), qkv.data()});
  Queue& queue = queue_of(exec);
  queue.attention.forward(shape_of(sizes), y.data(), lse.data(), qkv.data(), queue.workspace.data());
}

void attention_backward(const ExecutionSpace& exec, Matrix<Bf16> dqkv, Matrix<const Bf16> dy,
                        Matrix<const Bf16> qkv, Matrix<const Bf16> y, Vector<const float> lse,
                        const AttentionSizes& sizes) {
  require_alignment({dqkv.data(), dy.data(), qkv.data(), y.data(), lse.data()});
  Queue& queue = queue_of(exec);
  queue.attention.backward(shape_of(sizes), dqkv.data(), dy.data(), qkv.data(), y.data(), lse.data(),
                           queue.workspace.data());
}

}  // namespace minitaw::kernels::detail::cuda
