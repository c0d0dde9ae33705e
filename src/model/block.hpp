#pragma once

#include "kernels/attention.hpp"
#include "kernels/types.hpp"
#include "model/plan.hpp"
#include "model/views.hpp"

namespace minitaw::model {

/// The tensors of one block: its weights (T = const E), or their gradients.
template <class T>
struct BlockTensors {
  BlockTensors(const Buffer& buffer, const Shard& shard, int block)
      : norm1(vector_of<T>(buffer, shard.tensor(block, Role::norm1))),
        wqkv(matrix_of<T>(buffer, shard.tensor(block, Role::wqkv))),
        wo(matrix_of<T>(buffer, shard.tensor(block, Role::wo))),
        norm2(vector_of<T>(buffer, shard.tensor(block, Role::norm2))),
        w13(matrix_of<T>(buffer, shard.tensor(block, Role::w13))),
        w2(matrix_of<T>(buffer, shard.tensor(block, Role::w2))) {}

  Vector<T> norm1;
  Matrix<T> wqkv, wo;
  Vector<T> norm2;
  Matrix<T> w13, w2;
};

[[nodiscard]] kernels::AttentionSizes attention_sizes(const Shape& shape);

/// What a block works on for one micro-batch: what its backward pass reads, wherever that is, and scratch.
/// Shapes as in plan.hpp. Each half's backward towards the input leaves what its backward towards the weights
/// reads, so the two may be apart if these views stay.
template <class E>
struct BlockState {
  /// Kept places come first; those that are not kept are in the workspace.
  BlockState(const Shape& shape, std::int64_t ffn, const BlockRegions& kept, const Buffer& kept_buffer,
             const WorkspacePlan& plan, const Buffer& workspace);

  Matrix<E> input, qkv, attention, middle, gate_up;
  Vector<float> rstd1, lse, rstd2;
  Matrix<E> normed, middle_gradient, product, attention_gradient, qkv_gradient;
  Vector<float> delta;
  Matrix<float> gain_partial, rope;
};

/// One block of the model: x -> x + Wo attention(rope(Wqkv norm1(x))) -> ... + W2 swiglu(W13 norm2(.)).
template <class E>
class Block {
public:
  Block(const kernels::ExecutionSpace& exec, const Shape& shape, const BlockTensors<const E>& weights,
        const BlockState<E>& state, kernels::Attention attention)
      : exec_(exec), shape_(shape), weights_(weights), state_(state), attention_(attention) {}

  /// x [T, H] becomes the output.
  void forward(Matrix<E> x) const;

  /// Computes again what the forward pass did not keep. Must precede the backward functions.
  void rebuild() const;

  /// dy [T, H] -> the gradient between the halves, in the state.
  void feed_forward_backward_input(Matrix<E> dy) const;
  /// Gradients of w2, w13 and norm2, written or added to.
  template <class G>
  void feed_forward_backward_weight(Matrix<E> dy, const BlockTensors<G>& gradient, bool accumulate) const;
  /// dx [T, H] from the gradient between the halves; dx may be what dy was.
  void attention_backward_input(Matrix<E> dx) const;
  /// Gradients of wo, wqkv and norm1, written or added to.
  template <class G>
  void attention_backward_weight(const BlockTensors<G>& gradient, bool accumulate) const;

private:
  [[nodiscard]] int turned_heads() const { return shape_.heads + shape_.kv_heads; }

  kernels::ExecutionSpace exec_;
  const Shape& shape_;
  BlockTensors<const E> weights_;
  BlockState<E> state_;
  kernels::Attention attention_;
};

/// The whole backward pass of a block: x is the gradient of its output, then of its input.
template <class E, class G>
void block_backward(const Block<E>& block, Matrix<E> x, const BlockTensors<G>& gradient, bool accumulate) {
  block.rebuild();
  block.feed_forward_backward_input(x);
  block.feed_forward_backward_weight(x, gradient, accumulate);
  block.attention_backward_input(x);
  block.attention_backward_weight(gradient, accumulate);
}

}  // namespace minitaw::model
