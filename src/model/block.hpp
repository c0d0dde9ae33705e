#pragma once

#include "kernels/kernels.hpp"
#include "model/model.hpp"
#include "model/plan.hpp"

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
  BlockState(const Shape& shape, std::int64_t ffn, std::initializer_list<Source> sources) {
    const auto place = [&](Part part) -> std::byte* {
      for (const Source& source : sources)
        if (source.regions[part].bytes > 0) return source.buffer.data + source.regions[part].offset;
      return nullptr;
    };
    static_assert(most_gain_chunks == kernels::most_rmsnorm_chunks);
    auto part = Part::input;
    const auto next = [&](auto& view) {
      using View = std::remove_reference_t<decltype(view)>;
      auto [rows, cols] = extents_of(part, shape, ffn);
      if (part >= Part::gain_partial1) rows = kernels::rmsnorm_chunks(rows);
      const auto data = reinterpret_cast<typename View::pointer_type>(place(part));
      if constexpr (View::rank() == 2) view = View(data, rows, cols);
      else view = View(data, rows * cols);
      part = static_cast<Part>(static_cast<int>(part) + 1);
    };
    const auto in_order_of_part = [&](auto&... views) { (next(views), ...); };
    in_order_of_part(input, qkv, attention, middle, gate_up, normed2, product, output_gradient,
                     middle_gradient, attention_gradient, qkv_gradient, norm1, norm2, rstd1, rstd2, lse,
                     delta, gain_partial1, gain_partial2);
  }

  /// normed1 and normed2, and gain_partial1 and gain_partial2, are one place each unless deferred.
  Matrix<E> input, qkv, attention, middle, gate_up, normed1, normed2, product, output_gradient,
      middle_gradient, attention_gradient, qkv_gradient;
  Vector<E> norm1, norm2;  ///< the gains' copies in the deferred; none without it
  Vector<float> rstd1, rstd2, lse, delta;
  Matrix<float> gain_partial1, gain_partial2, rope;
};

/// One block of the model: x -> x + Wo attention(rope(Wqkv norm1(x))) -> ... + W2 swiglu(W13 norm2(.)).
template <class E>
class Block {
public:
  Block(const kernels::ExecutionSpace& exec, const Shape& shape, const BlockTensors<const E>& weights,
        const BlockState<E>& state, kernels::Attention attention)
      : exec_(exec), shape_(shape), weights_(weights), state_(state), attention_(attention) {}

  /// x [T, H] becomes the output.
  void forward(Matrix<E> x) const {
    const BlockState<E>& s = state_;
    const Matrix<E> saved_middle = shape_.recompute == Recompute::none ? s.middle : Matrix<E>();
    kernels::rmsnorm_forward(exec_, s.normed1, s.rstd1, s.input, x, weights_.norm1);
    kernels::linear_forward(exec_, s.qkv, s.normed1, weights_.wqkv);
    kernels::rope_forward(exec_, s.qkv, s.rope, turned_heads());
    kernels::attention_forward(exec_, s.attention, s.lse, s.qkv, attention_sizes(shape_), attention_);
    kernels::linear_forward(exec_, x, s.attention, weights_.wo, 1);
    kernels::rmsnorm_forward(exec_, s.normed2, s.rstd2, saved_middle, x, weights_.norm2);
    kernels::linear_forward(exec_, s.gate_up, s.normed2, weights_.w13);
    kernels::swiglu_forward(exec_, s.product, s.gate_up);
    kernels::linear_forward(exec_, x, s.product, weights_.w2, 1);
  }

  /// x is the gradient [T, H] of the output, then of the input. Gradients of weights are written or added to.
  template <class G>
  void backward(Matrix<E> x, const BlockTensors<G>& gradient, bool accumulate) const {
    rebuild();
    feed_forward_input(x);
    feed_forward_weight(x, gradient, accumulate);
    attention_input(x);
    attention_weight(gradient, accumulate);
  }

  /// The same in two halves, output_gradient() [T, H] -> dx first. What it leaves in saved and deferred, the
  /// second half reads.
  void backward_input(Matrix<E> dx) const {
    if (state_.norm1.data() != nullptr) Kokkos::deep_copy(exec_, state_.norm1, weights_.norm1);
    if (state_.norm2.data() != nullptr) Kokkos::deep_copy(exec_, state_.norm2, weights_.norm2);
    rebuild();
    feed_forward_input(state_.output_gradient);
    attention_input(dx);
  }

  template <class G>
  void backward_weight(const BlockTensors<G>& gradient, bool accumulate) const {
    feed_forward_weight(state_.output_gradient, gradient, accumulate);
    attention_weight(gradient, accumulate);
  }

  [[nodiscard]] Matrix<E> output_gradient() const { return state_.output_gradient; }

private:
  [[nodiscard]] int turned_heads() const { return shape_.heads + shape_.kv_heads; }

  /// Computes again what the forward pass did not keep.
  void rebuild() const {
    const BlockState<E>& s = state_;
    if (shape_.recompute == Recompute::none) return;
    kernels::rmsnorm_forward(exec_, s.normed1, s.rstd1, s.middle, s.input, weights_.norm1);
    kernels::linear_forward(exec_, s.qkv, s.normed1, weights_.wqkv);
    kernels::rope_forward(exec_, s.qkv, s.rope, turned_heads());
    if (shape_.recompute == Recompute::block)
      kernels::attention_forward(exec_, s.attention, s.lse, s.qkv, attention_sizes(shape_), attention_);
    kernels::linear_forward(exec_, s.middle, s.attention, weights_.wo, 1);
    kernels::rmsnorm_forward(exec_, s.normed2, s.rstd2, {}, s.middle, weights_.norm2);
    kernels::linear_forward(exec_, s.gate_up, s.normed2, weights_.w13);
  }

  // The parts of the backward pass. Between the first two and the last two there is the gradient at `middle`.
  void feed_forward_input(Matrix<E> dy) const {
    const BlockState<E>& s = state_;
    kernels::linear_backward_input(exec_, s.product, dy, weights_.w2);
    kernels::swiglu_backward(exec_, s.gate_up, s.product, s.product, s.gate_up);
    kernels::linear_backward_input(exec_, s.middle_gradient, s.gate_up, weights_.w13);
    kernels::rmsnorm_backward(exec_, s.middle_gradient, s.gain_partial2, s.middle_gradient, dy, s.middle,
                              s.rstd2, weights_.norm2);
  }

  template <class G>
  void feed_forward_weight(Matrix<E> dy, const BlockTensors<G>& gradient, bool accumulate) const {
    const BlockState<E>& s = state_;
    const Matrix<const E> slope = dy, gate_up_gradient = s.gate_up;
    if (shape_.recompute == Recompute::none)
      kernels::rmsnorm_rebuild(exec_, s.normed2, s.middle, s.rstd2, weights_.norm2);
    kernels::linear_backward_weight(exec_, gradient.w2, slope, s.product, accumulate);
    kernels::linear_backward_weight(exec_, gradient.w13, gate_up_gradient, s.normed2, accumulate);
    kernels::rmsnorm_backward_gain(exec_, gradient.norm2, s.gain_partial2, accumulate);
  }

  void attention_input(Matrix<E> dx) const {
    const BlockState<E>& s = state_;
    kernels::linear_backward_input(exec_, s.attention_gradient, s.middle_gradient, weights_.wo);
    kernels::attention_backward(exec_, s.qkv_gradient, s.delta, s.attention_gradient, s.qkv, s.attention,
                                s.lse, attention_sizes(shape_), attention_);
    kernels::rope_backward(exec_, s.qkv_gradient, s.rope, turned_heads());
    kernels::linear_backward_input(exec_, dx, s.qkv_gradient, weights_.wqkv);
    kernels::rmsnorm_backward(exec_, dx, s.gain_partial1, dx, s.middle_gradient, s.input, s.rstd1,
                              weights_.norm1);
  }

  template <class G>
  void attention_weight(const BlockTensors<G>& gradient, bool accumulate) const {
    const BlockState<E>& s = state_;
    const Matrix<const E> slope = s.middle_gradient, qkv_gradient = s.qkv_gradient;
    kernels::rmsnorm_rebuild(exec_, s.normed1, s.input, s.rstd1, weights_.norm1);
    kernels::linear_backward_weight(exec_, gradient.wo, slope, s.attention, accumulate);
    kernels::linear_backward_weight(exec_, gradient.wqkv, qkv_gradient, s.normed1, accumulate);
    kernels::rmsnorm_backward_gain(exec_, gradient.norm1, s.gain_partial1, accumulate);
  }

  kernels::ExecutionSpace exec_;
  const Shape& shape_;
  BlockTensors<const E> weights_;
  BlockState<E> state_;
  kernels::Attention attention_;
};

}  // namespace minitaw::model
