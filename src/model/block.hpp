// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <ranges>
#include <utility>
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

/// Keys and values, in parts by heads, and their gradients: of ranks that share sequences, for all
/// of a sequence or a slice [parts, 2 n, B, chunk, 2 h_kv d / parts], which others gather and add
/// up; of slices, for whole sequences [parts, B, S, 2 h_kv d / parts]. Empty: none are shared so.
struct SharedKeys {
  Buffer key_values, gradient;
};

/// One block of the model: x -> x + Wo attention(rope(Wqkv norm1(x))) -> ... + W2 swiglu(W13
/// norm2(.)). Its passes are runs of segments, between which keys and values, or their gradients,
/// may pass between ranks: forward_keys, attend and forward_rest; backward_keys, backward_attend,
/// backward_finish. Each half's backward towards the input leaves what that towards the weights
/// reads: the two may be apart if it stays.
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
      const BlockTensors<const E>& weights,
      const std::array<Source, 3>& sources,
      Matrix<const float> rope,
      kernels::Attention kernel,
      const SharedKeys& of_ranks = {},
      const SharedKeys& of_slices = {})
      : exec_(exec),
        shape_(shape),
        weights_(weights),
        sources_(sources),
        rope_(rope),
        attention_(kernel),
        of_ranks_(of_ranks),
        of_slices_(of_slices) {}

  // ---- Whole passes: nothing is between their segments ----

  /// x [T, H] becomes the output.
  void forward(Matrix<E> x) const {
    forward_keys(x);
    attend();
    forward_rest(x);
  }

  /// x is the gradient [T, H] of the output, then of the input. Gradients of weights are written or
  /// added to. Attention's part comes last: it has the scratch of the feed-forward.
  template <class G>
  void backward(Matrix<E> x, const BlockTensors<G>& gradient, bool accumulate) const {
    backward_keys();
    feed_forward_input(x);
    feed_forward_weights(x, gradient, accumulate);
    attention_input();
    output_weights(gradient, accumulate);
    backward_finish(x, gradient, accumulate);
  }

  /// backward() in two halves, first dy -> dx, with dy at gradient_at_output(). Saved and deferred
  /// pass on the rest.
  void backward_input(Matrix<E> dy, Matrix<E> dx) const {
    backward_keys();
    backward_attend(dy);
    take_key_gradients();
    finish_input(dx);
  }

  template <class G>
  void backward_weight(const BlockTensors<G>& gradient, bool accumulate) const {
    backward_attend_weights(at(output_gradient), gradient, accumulate);
    normalise_input();
    finish_weights(gradient, accumulate);
  }

  Matrix<E> gradient_at_output() const { return at(output_gradient); }

  // ---- Segments: keys and values, then their gradients, pass between ranks before the next ----

  /// Projects x [T, H] to queries, keys and values.
  void forward_keys(Matrix<E> x) const {
    project(x, at(input));
    share_keys();
  }

  /// Puts gathered keys and values of a slice, of a part of the heads, behind those of slices
  /// before.
  void extend(int key_part) const { move_slice<E>(&SharedKeys::key_values, key_part, true); }

  /// Takes out the gradient of a slice's keys and values, which no later slice adds to any more.
  void share_key_gradients() const {
    with_key_gradient([&]<class G>(G) {
      for (int p = 0; p < shape_.key_parts; ++p)
        move_slice<G>(&SharedKeys::gradient, p, false);
    });
  }

  /// Attention, of a part of the heads where the keys of sequences come in parts.
  void attend(int key_part = 0) const {
    for (const kernels::AttentionPart& part : attention_parts(shape_, key_part))
      kernels::attention_forward<E>(
          exec_, {at(attention), floats(lse), at(qkv), part, keys_seen(key_part)}, attention_);
  }

  /// x becomes the output.
  void forward_rest(Matrix<E> x) const {
    up_to_gate(x, shape_.recompute == Recompute::none ? at(middle) : Matrix<E>());
    kernels::swiglu_forward(exec_, at(product), at(ffn));
    kernels::linear_forward(exec_, x, at(product), weights_.w2, 1);
  }

  /// Has the keys and values of the saved input again, and for the half of the weights the gains.
  /// Those of slices have stayed.
  void backward_keys() const {
    defer(norm1, weights_.norm1);
    defer(norm2, weights_.norm2);
    if (shape_.recompute != Recompute::none)
      project(at(input), at(middle));
    if (!shape_.has_slices())
      share_keys();
  }

  /// dy is the gradient [T, H] of the output, and stays. Leaves the gradients of `middle`, and of
  /// queries, keys and values as attention sees them.
  void backward_attend(Matrix<E> dy) const {
    feed_forward_input(dy);
    attention_input();
  }

  /// Gradients of all matrices but that of queries, keys and values.
  template <class G>
  void backward_attend_weights(
      Matrix<E> dy, const BlockTensors<G>& gradient, bool accumulate) const {
    feed_forward_weights(dy, gradient, accumulate);
    output_weights(gradient, accumulate);
  }

  /// dx becomes the gradient [T, H] of the input; with `gradient`, what is left of the weights too.
  void backward_finish(Matrix<E> dx) const {
    take_key_gradients();
    normalise_input();  // another block's backward_keys() may have come between
    finish_input(dx);
  }

  template <class G>
  void backward_finish(Matrix<E> dx, const BlockTensors<G>& gradient, bool accumulate) const {
    backward_finish(dx);
    finish_weights(gradient, accumulate);
  }

private:
  int turned_heads() const { return shape_.heads + shape_.kv_heads; }

  void defer(Intermediate copy, Vector<const E> gain) const {
    if (E* const deferred = place<E>(copy))
      Kokkos::deep_copy(exec_, Vector<E>(deferred, shape_.hidden), gain);
  }

  /// x [T, H] -> rotated queries, keys and values; `copy` receives x.
  void project(Matrix<E> x, Matrix<E> copy) const {
    kernels::rmsnorm_forward(exec_, normed1(), floats(rstd1), copy, x, weights_.norm1);
    kernels::linear_forward(exec_, at(qkv), normed1(), weights_.wqkv);
    kernels::rope(exec_, at(qkv), rope_, turned_heads(), 1);
  }

  /// Attention's output is added to `stream`, of which `copy` receives the sum.
  void up_to_gate(Matrix<E> stream, Matrix<E> copy) const {
    kernels::linear_forward(exec_, stream, at(attention), weights_.wo, 1);
    kernels::rmsnorm_forward(exec_, at(normed), floats(rstd2), copy, stream, weights_.norm2);
    kernels::linear_forward(exec_, at(ffn), at(normed), weights_.w13);
  }

  // The parts of the backward pass. feed_forward_input() leaves the gradient at `middle`.

  void feed_forward_input(Matrix<E> dy) const {
    for (int p = 0; p < shape_.key_parts && shape_.recompute == Recompute::block; ++p)
      attend(p);
    if (shape_.recompute != Recompute::none)
      up_to_gate(at(middle), {});
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
  void feed_forward_weights(Matrix<E> dy, const BlockTensors<G>& gradient, bool accumulate) const {
    const Matrix<const E> slope = dy, of_gate_up = at(ffn);
    if (shape_.recompute == Recompute::none)
      kernels::rmsnorm_forward(exec_, at(normed), floats(rstd2), {}, at(middle), weights_.norm2);
    kernels::linear_backward_weight(exec_, gradient.w2, slope, at(product), accumulate);
    kernels::linear_backward_weight(exec_, gradient.w13, of_gate_up, at(normed), accumulate);
    kernels::rmsnorm_backward_gain(exec_, gradient.norm2, partial(gain_partial2), accumulate);
  }

  void attention_input() const {
    kernels::linear_backward_input(exec_, at(attention_gradient), at(middle_gradient), weights_.wo);
    attend_backward();
  }

  void finish_input(Matrix<E> dx) const {
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

  /// The gradient of wo.
  template <class G>
  void output_weights(const BlockTensors<G>& gradient, bool accumulate) const {
    const Matrix<const E> slope = at(middle_gradient);
    kernels::linear_backward_weight(exec_, gradient.wo, slope, at(attention), accumulate);
  }

  /// norm1's output again, and its row statistics.
  void normalise_input() const {
    kernels::rmsnorm_forward(exec_, normed1(), floats(rstd1), {}, at(input), weights_.norm1);
  }

  template <class G>
  void finish_weights(const BlockTensors<G>& gradient, bool accumulate) const {
    const Matrix<const E> of_qkv = at(qkv_gradient);
    kernels::linear_backward_weight(exec_, gradient.wqkv, of_qkv, normed1(), accumulate);
    kernels::rmsnorm_backward_gain(exec_, gradient.norm1, partial(gain_partial1), accumulate);
  }

  // Attention's backward pass: over the rank's own sequences, or of its runs of shared ones, or a
  // slice, over all their keys.

  void attend_backward() const {
    if (!shape_.keys_apart())
      return attend_backward<E>(0, {});
    with_key_gradient([&]<class G>(G) {
      for (int p = 0; p < shape_.key_parts; ++p)
        attend_backward<G>(p, in_whole<G>(&SharedKeys::gradient, p));
    });
  }

  /// The last run reaches the most keys: it writes what the others add to, and slices before. Sums
  /// of keys that it does not see begin as zeros.
  template <class G>
  void attend_backward(int key_part, kernels::KeyValues<G> sums) const {
    const std::vector<kernels::AttentionPart> parts = attention_parts(shape_, key_part);
    bool accumulate = shape_.has_slices() && shape_.span.begin + shape_.span.count < shape_.seq;
    if (!accumulate && shape_.keys_apart() && parts.back().run.end() < shape_.seq)
      Kokkos::deep_copy(exec_, Vector<G>(sums.keys, elements_of_part(shape_.seq)), G{});
    for (const kernels::AttentionPart& part : std::views::reverse(parts))
      kernels::attention_backward<E, G>(exec_,
          {.dqkv = at(qkv_gradient),
              .delta = floats(delta),
              .dy = at(attention_gradient),
              .qkv = at(qkv),
              .y = at(attention),
              .lse = floats(lse),
              .part = part,
              .key_values = keys_seen(key_part),
              .gradient_sums = sums,
              .accumulate = std::exchange(accumulate, true)},
          attention_);
  }

  /// This rank's part of the keys and values to where those of all ranks will be.
  void share_keys() const {
    for (int p = 0; p < shape_.key_parts && shape_.keys_apart(); ++p)
      for (const kernels::AttentionPart& part : exchanged_parts(p))
        kernels::move_key_values<E, E>(exec_,
            part,
            part.run,
            exchanged<E>(&SharedKeys::key_values, p),
            part.rows(),
            part.template in<const E>(at(qkv).data()),
            part.rows_in_qkv());
  }

  /// The way back, for gradients that have been summed over the ranks, and over later slices.
  void take_key_gradients() const {
    with_key_gradient([&]<class G>(G) {
      for (int p = 0; p < shape_.key_parts && shape_.keys_apart(); ++p)
        for (const kernels::AttentionPart& part : exchanged_parts(p))
          kernels::move_key_values<E, G>(exec_,
              part,
              part.run,
              part.in(at(qkv_gradient).data()),
              part.rows_in_qkv(),
              exchanged<const G>(&SharedKeys::gradient, p),
              part.rows());
    });
  }

  template <class Use>
  void with_key_gradient(const Use& use) const {
    if (shape_.fp32_key_gradients)
      use(float{});
    else
      use(E{});
  }

  // Keys and values, or their gradients, of a part of the heads: what attention sees of whole
  // sequences; and what this rank puts in and takes out, which is of its slice where ranks share
  // one.

  template <class T>
  kernels::KeyValues<T> in_whole(Buffer SharedKeys::* which, int key_part) const {
    const SharedKeys& all = shape_.has_slices() ? of_slices_ : of_ranks_;
    return rows_of<T>(all.*which, key_part, shape_.seq);
  }

  template <class T>
  kernels::KeyValues<T> exchanged(Buffer SharedKeys::* which, int key_part) const {
    return shape_.shares_sequences() ? rows_of<T>(of_ranks_.*which, key_part, shape_.span_seq())
                                     : in_whole<T>(which, key_part);
  }

  std::vector<kernels::AttentionPart> exchanged_parts(int key_part) const {
    std::vector<kernels::AttentionPart> parts = attention_parts(shape_, key_part);
    if (shape_.shares_sequences())
      for (kernels::AttentionPart& part : parts) {
        part.run.position -= static_cast<int>(shape_.span.begin);
        part.chunk = static_cast<int>(shape_.chunk());
      }
    return parts;
  }

  /// Positions of a slice between a buffer of it, for the ranks that share it, and one of whole
  /// sequences.
  template <class T>
  void move_slice(Buffer SharedKeys::* which, int key_part, bool to_whole) const {
    const kernels::AttentionPart part = attention_parts(shape_, key_part).front();
    const int begin = static_cast<int>(shape_.span.begin);
    const kernels::QueryRun run{0, static_cast<int>(shape_.span_seq()), begin};
    const kernels::KeyRows of_slice{part.kv_stride, static_cast<int>(shape_.chunk()), begin};
    const kernels::KeyValues<T> slice = exchanged<T>(which, key_part),
                                whole = in_whole<T>(which, key_part),
                                &to = to_whole ? whole : slice, &from = to_whole ? slice : whole;
    kernels::move_key_values<T, T>(exec_,
        part,
        run,
        to,
        to_whole ? part.rows() : of_slice,
        {from.keys, from.values},
        to_whole ? of_slice : part.rows());
  }

  /// One part after the other: rows of their keys, then of their values.
  template <class T>
  kernels::KeyValues<T> rows_of(const Buffer& buffer, int key_part, std::int64_t positions) const {
    const std::int64_t elements = elements_of_part(positions);
    T* const keys = buffer.at<T>(key_part * elements * sizeof(T), elements);
    return {keys, keys + shape_.key_values() / shape_.key_parts / 2};
  }

  std::int64_t elements_of_part(std::int64_t positions) const {
    return positions * shape_.micro_batch * shape_.key_values() / shape_.key_parts;
  }

  /// What queries of the rank and slice attend to, if it is not in their own projection.
  kernels::KeyValues<const E> keys_seen(int key_part) const {
    return shape_.keys_apart() ? in_whole<const E>(&SharedKeys::key_values, key_part)
                               : kernels::KeyValues<const E>();
  }

  template <class T>
  T* place(Intermediate part) const {
    for (const auto& [regions, buffer] : sources_)
      if (regions[part].bytes > 0)
        return vector_at<T>(buffer, regions[part], regions[part].bytes / sizeof(T)).data();
    return nullptr;
  }

  Matrix<E> at(Intermediate part) const {
    const auto [rows, cols] = extents_of(part, shape_);
    return Matrix<E>(place<E>(part), rows, cols);
  }

  /// norm1's output is scratch; what is deferred as `normed` is norm2's.
  Matrix<E> normed1() const {
    const auto& [regions, buffer] = sources_.back();
    return matrix_at<E>(buffer, regions[normed], shape_.tokens(), shape_.hidden);
  }

  Vector<float> floats(Intermediate part) const {
    const auto [rows, cols] = extents_of(part, shape_);
    return Vector<float>(place<float>(part), rows * cols);
  }

  Matrix<float> partial(Intermediate part) const {
    static_assert(most_gain_sums == kernels::most_rmsnorm_chunks);
    return Matrix<float>(
        place<float>(part), kernels::rmsnorm_chunks(shape_.tokens()), shape_.hidden);
  }

  kernels::ExecutionSpace exec_;
  const Shape& shape_;
  BlockTensors<const E> weights_;
  std::array<Source, 3> sources_;
  Matrix<const float> rope_;
  kernels::Attention attention_;
  SharedKeys of_ranks_, of_slices_;
};
}  // namespace minitaw::model
