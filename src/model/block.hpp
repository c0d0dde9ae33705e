#pragma once

#include "kernels/kernels.hpp"
#include "model/model.hpp"
#include "model/plan.hpp"

/// Typed views of places inside buffers.

namespace minitaw::model {

using kernels::Matrix;
using kernels::Vector;

template <class T>
Vector<T> vector_at(const Buffer& buffer, const Region& region, std::int64_t elements) {
  return Vector<T>(reinterpret_cast<T*>(buffer.data + region.offset), static_cast<std::size_t>(elements));
}

template <class T>
Matrix<T> matrix_at(const Buffer& buffer, const Region& region, std::int64_t rows, std::int64_t cols) {
  return Matrix<T>(reinterpret_cast<T*>(buffer.data + region.offset), static_cast<std::size_t>(rows),
                   static_cast<std::size_t>(cols));
}

template <class T>
Vector<T> vector_of(const Buffer& buffer, const Tensor& tensor) {
  return Vector<T>(buffer.as<T>() + tensor.offset, static_cast<std::size_t>(tensor.rows));
}

template <class T>
Matrix<T> matrix_of(const Buffer& buffer, const Tensor& tensor) {
  return Matrix<T>(buffer.as<T>() + tensor.offset, static_cast<std::size_t>(tensor.rows),
                   static_cast<std::size_t>(tensor.cols));
}

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
  /// The gains alone: all that a backward pass towards the weights reads.
  BlockTensors(Vector<T> gain1, Vector<T> gain2) : norm1(gain1), norm2(gain2) {}

  Vector<T> norm1;
  Matrix<T> wqkv, wo;
  Vector<T> norm2;
  Matrix<T> w13, w2;
};

[[nodiscard]] kernels::AttentionSizes attention_sizes(const Shape& shape);

/// The buffers that a block works in and where its places are in them.
struct BlockPlaces {
  const BlockRegions& saved;
  Buffer saved_buffer;
  const DeferredRegions& deferred;  ///< no bytes anywhere where the backward pass is not split
  Buffer deferred_buffer;
  const WorkspacePlan& plan;
  Buffer workspace;
};

/// What a block works on for one micro-batch: what its backward pass reads, wherever that is, and scratch.
/// Shapes as in plan.hpp. Each half's backward towards the input leaves what its backward towards the weights
/// reads, so the two may be apart if these views stay, as they do in saved and deferred.
template <class E>
struct BlockState {
  /// Kept places come first, then those of the deferred; all others are in the workspace.
  BlockState(const Shape& shape, std::int64_t ffn, const BlockPlaces& places);

  Matrix<E> input, qkv, attention, middle, gate_up;
  Vector<float> rstd1, lse, rstd2;
  /// normed1 and normed2, and gain_partial1 and gain_partial2, are one place each unless deferred.
  Matrix<E> normed1, normed2, middle_gradient, product, attention_gradient, qkv_gradient;
  Vector<float> delta;
  Matrix<float> gain_partial1, gain_partial2, rope;
  Vector<E> norm1, norm2;  ///< the gains' copies in the deferred; none without it
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
  /// Copies the gains that the backward pass towards the weights reads into the deferred.
  void deferred_gains() const;

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

/// The backward pass of a block towards its input: dy [T, H] -> dx. What it leaves in saved and deferred is
/// for block_backward_weight, together with dy.
template <class E>
void block_backward_input(const Block<E>& block, Matrix<E> dx, Matrix<E> dy) {
  block.deferred_gains();
  block.rebuild();
  block.feed_forward_backward_input(dy);
  block.attention_backward_input(dx);
}

template <class E, class G>
void block_backward_weight(const Block<E>& block, Matrix<E> dy, const BlockTensors<G>& gradient,
                           bool accumulate) {
  block.feed_forward_backward_weight(dy, gradient, accumulate);
  block.attention_backward_weight(gradient, accumulate);
}

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
