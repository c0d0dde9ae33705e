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
  return Vector<T>(reinterpret_cast<T*>(buffer.data + region.offset), elements);
}

template <class T>
Matrix<T> matrix_at(const Buffer& buffer, const Region& region, std::int64_t rows, std::int64_t cols) {
  return Matrix<T>(reinterpret_cast<T*>(buffer.data + region.offset), rows, cols);
}

template <class T>
Vector<T> vector_of(const Buffer& buffer, const Tensor& tensor) {
  return Vector<T>(buffer.as<T>() + tensor.offset, tensor.rows);
}

template <class T>
Matrix<T> matrix_of(const Buffer& buffer, const Tensor& tensor) {
  return Matrix<T>(buffer.as<T>() + tensor.offset, tensor.rows, tensor.cols);
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

/// What a block works on for one micro-batch: what its backward pass reads, wherever that is, and scratch.
/// Shapes as in plan.hpp. Each half's backward towards the input leaves what its backward towards the weights
/// reads, so the two may be apart if these views stay, as they do in saved and deferred.
template <class E>
struct BlockState {
  /// A buffer and where a block's places are in it.
  struct Source {
    const BlockRegions& regions;
    Buffer buffer;
  };
  /// Each place is in the first of the sources that has it. Leaves normed1 and rope open.
  BlockState(const Shape& shape, std::int64_t ffn, std::initializer_list<Source> sources);

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

  /// x is the gradient [T, H] of the output, then of the input. Gradients of weights are written or added to.
  template <class G>
  void backward(Matrix<E> x, const BlockTensors<G>& gradient, bool accumulate) const;
  /// The same in two halves, dy [T, H] -> dx first. What it leaves in saved and deferred, and dy, the second
  /// half reads.
  void backward_input(Matrix<E> dx, Matrix<E> dy) const;
  template <class G>
  void backward_weight(Matrix<E> dy, const BlockTensors<G>& gradient, bool accumulate) const;

private:
  [[nodiscard]] int turned_heads() const { return shape_.heads + shape_.kv_heads; }
  /// Computes again what the forward pass did not keep.
  void rebuild() const;
  // The parts of the backward pass. Between the first two and the last two there is the gradient at `middle`.
  void feed_forward_input(Matrix<E> dy) const;
  template <class G>
  void feed_forward_weight(Matrix<E> dy, const BlockTensors<G>& gradient, bool accumulate) const;
  void attention_input(Matrix<E> dx) const;
  template <class G>
  void attention_weight(const BlockTensors<G>& gradient, bool accumulate) const;

  kernels::ExecutionSpace exec_;
  const Shape& shape_;
  BlockTensors<const E> weights_;
  BlockState<E> state_;
  kernels::Attention attention_;
};

}  // namespace minitaw::model
