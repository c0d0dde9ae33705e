// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "model/model.hpp"

namespace minitaw::model {
using kernels::Matrix, kernels::Vector;

template <class T>
Vector<T> vector_at(const Buffer& buffer, const Region& region, std::int64_t elements) {
  return Vector<T>(buffer.at<T>(region.offset, elements), elements);
}

template <class T>
Matrix<T> matrix_at(
    const Buffer& buffer, const Region& region, std::int64_t rows, std::int64_t cols) {
  return Matrix<T>(buffer.at<T>(region.offset, rows * cols), rows, cols);
}

template <class T>
Matrix<T> matrix_of(const Buffer& buffer, const Tensor& tensor) {
  return matrix_at<T>(buffer, {tensor.offset * sizeof(T)}, tensor.rows, tensor.cols);
}

template <class T>
Vector<T> vector_of(const Buffer& buffer, const Tensor& tensor) {
  return vector_at<T>(buffer, {tensor.offset * sizeof(T)}, tensor.rows);
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

/// One block of the model: x -> x + Wo attention(rope(Wqkv norm1(x))) -> ... + W2 swiglu(W13
/// norm2(.)). Each half's backward towards the input leaves what that towards the weights reads:
/// the two may be apart if it stays.
template <class E>
class Block {
  using enum Intermediate;

public:
  struct Source {
    const BlockRegions& regions;
    Buffer buffer;
  };

  /// Sources of the intermediates for one micro-batch: each is in the first that has it; scratch
  /// comes last.
  Block(const kernels::ExecutionSpace& exec,
      const Shape& shape,
      std::int64_t ffn_width,
      const BlockTensors<const E>& weights,
      const std::array<Source, 3>& sources,
      Matrix<const float> rope,
      kernels::Attention kernel)
      : exec_(exec),
        shape_(shape),
        ffn_(ffn_width),
        weights_(weights),
        sources_(sources),
        rope_(rope),
        attention_(kernel) {}

  /// x [T, H] becomes the output.
  void forward(Matrix<E> x) const {
    up_to_gate(
        x, at(input), x, shape_.recompute == Recompute::none ? at(middle) : Matrix<E>(), true);
    kernels::swiglu_forward(exec_, at(product), at(ffn));
    kernels::linear_forward(exec_, x, at(product), weights_.w2, 1);
  }

  /// x is the gradient [T, H] of the output, then of the input. Gradients of weights are written or
  /// added to.
  template <class G>
  void backward(Matrix<E> x, const BlockTensors<G>& gradient, bool accumulate) const {
    rebuild();
    feed_forward_input(x);
    feed_forward_weight(x, gradient, accumulate);
    attention_input(x);
    attention_weight(gradient, accumulate);
  }

  /// backward() in two halves, first gradient_at_output() [T, H] -> dx. Saved and deferred pass on
  /// the rest.
  void backward_input(Matrix<E> dx) const {
    const auto keep = [this](auto copy, auto gain) {
      if (E* const deferred = place<E>(copy))
        Kokkos::deep_copy(exec_, Vector<E>(deferred, shape_.hidden), gain);
    };
    keep(norm1, weights_.norm1);
    keep(norm2, weights_.norm2);
    rebuild();
    feed_forward_input(at(output_gradient));
    attention_input(dx);
  }

  template <class G>
  void backward_weight(const BlockTensors<G>& gradient, bool accumulate) const {
    feed_forward_weight(at(output_gradient), gradient, accumulate);
    attention_weight(gradient, accumulate);
  }

  [[nodiscard]] Matrix<E> gradient_at_output() const { return at(output_gradient); }

private:
  [[nodiscard]] int turned_heads() const { return shape_.heads + shape_.kv_heads; }

  /// The forward pass up to the gate: input x and its copy, to one of which (`stream`) attention is
  /// added; its copy.
  void up_to_gate(
      Matrix<E> x, Matrix<E> copy, Matrix<E> stream, Matrix<E> copy_of_stream, bool attends) const {
    kernels::rmsnorm_forward(exec_, normed1(), floats(rstd1), copy, x, weights_.norm1);
    kernels::linear_forward(exec_, at(qkv), normed1(), weights_.wqkv);
    kernels::rope(exec_, at(qkv), rope_, turned_heads(), 1);
    if (attends)
      kernels::attention_forward<E>(
          exec_, {at(attention), floats(lse), at(qkv), attention_sizes(shape_)}, attention_);
    kernels::linear_forward(exec_, stream, at(attention), weights_.wo, 1);
    kernels::rmsnorm_forward(
        exec_, at(normed), floats(rstd2), copy_of_stream, stream, weights_.norm2);
    kernels::linear_forward(exec_, at(ffn), at(normed), weights_.w13);
  }

  void rebuild() const {
    if (shape_.recompute != Recompute::none)
      up_to_gate(at(input), at(middle), at(middle), {}, shape_.recompute == Recompute::block);
  }

  // The parts of the backward pass. Between the first two and the last two there is the gradient at
  // `middle`.
  void feed_forward_input(Matrix<E> dy) const {
    kernels::linear_backward_input(exec_, at(product), dy, weights_.w2);
    kernels::swiglu_backward(exec_, at(ffn), at(product), at(product), at(ffn));
    kernels::linear_backward_input(exec_, at(middle_gradient), at(ffn), weights_.w13);
    kernels::rmsnorm_backward(exec_,
        at(middle_gradient),
        partial(gain_partial2),
        at(middle_gradient),
        dy,
        at(middle),
        floats(rstd2),
        weights_.norm2);
  }

  template <class G>
  void feed_forward_weight(Matrix<E> dy, const BlockTensors<G>& gradient, bool accumulate) const {
    const Matrix<const E> slope = dy, of_gate_up = at(ffn);
    if (shape_.recompute == Recompute::none)
      kernels::rmsnorm_forward(exec_, at(normed), floats(rstd2), {}, at(middle), weights_.norm2);
    kernels::linear_backward_weight(exec_, gradient.w2, slope, at(product), accumulate);
    kernels::linear_backward_weight(exec_, gradient.w13, of_gate_up, at(normed), accumulate);
    kernels::rmsnorm_backward_gain(exec_, gradient.norm2, partial(gain_partial2), accumulate);
  }

  void attention_input(Matrix<E> dx) const {
    kernels::linear_backward_input(exec_, at(attention_gradient), at(middle_gradient), weights_.wo);
    kernels::attention_backward<E>(exec_,
        {.dqkv = at(qkv_gradient),
            .delta = floats(delta),
            .dy = at(attention_gradient),
            .qkv = at(qkv),
            .y = at(attention),
            .lse = floats(lse),
            .sizes = attention_sizes(shape_)},
        attention_);
    kernels::rope(exec_, at(qkv_gradient), rope_, turned_heads(), -1);
    kernels::linear_backward_input(exec_, dx, at(qkv_gradient), weights_.wqkv);
    kernels::rmsnorm_backward(exec_,
        dx,
        partial(gain_partial1),
        dx,
        at(middle_gradient),
        at(input),
        floats(rstd1),
        weights_.norm1);
  }

  template <class G>
  void attention_weight(const BlockTensors<G>& gradient, bool accumulate) const {
    const Matrix<const E> slope = at(middle_gradient), of_qkv = at(qkv_gradient);
    kernels::rmsnorm_forward(exec_, normed1(), floats(rstd1), {}, at(input), weights_.norm1);
    kernels::linear_backward_weight(exec_, gradient.wo, slope, at(attention), accumulate);
    kernels::linear_backward_weight(exec_, gradient.wqkv, of_qkv, normed1(), accumulate);
    kernels::rmsnorm_backward_gain(exec_, gradient.norm1, partial(gain_partial1), accumulate);
  }

  template <class T>
  [[nodiscard]] T* place(Intermediate part) const {
    for (const auto& [regions, buffer] : sources_)
      if (regions[part].bytes > 0)
        return vector_at<T>(buffer, regions[part], regions[part].bytes / sizeof(T)).data();
    return nullptr;
  }

  [[nodiscard]] Matrix<E> at(Intermediate part) const {
    const auto [rows, cols] = extents_of(part, shape_, ffn_);
    return Matrix<E>(place<E>(part), rows, cols);
  }

  /// norm1's output is scratch; what is deferred as `normed` is norm2's.
  [[nodiscard]] Matrix<E> normed1() const {
    const auto& [regions, buffer] = sources_.back();
    return matrix_at<E>(buffer, regions[normed], shape_.tokens(), shape_.hidden);
  }

  [[nodiscard]] Vector<float> floats(Intermediate part) const {
    const auto [rows, cols] = extents_of(part, shape_, ffn_);
    return Vector<float>(place<float>(part), rows * cols);
  }

  [[nodiscard]] Matrix<float> partial(Intermediate part) const {
    static_assert(most_gain_chunks == kernels::most_rmsnorm_chunks);
    return Matrix<float>(
        place<float>(part), kernels::rmsnorm_chunks(shape_.tokens()), shape_.hidden);
  }

  kernels::ExecutionSpace exec_;
  const Shape& shape_;
  std::int64_t ffn_;
  BlockTensors<const E> weights_;
  std::array<Source, 3> sources_;
  Matrix<const float> rope_;
  kernels::Attention attention_;
};
}  // namespace minitaw::model
