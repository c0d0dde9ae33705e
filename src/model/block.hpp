// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <ranges>
#include <utility>
#include "model/intermediates.hpp"
#include "model/shard_pass.hpp"
#include "model/shared_keys.hpp"

namespace minitaw::model {
/// The weights of one block (T = const E), or their gradients. A pass that needs none has empty
/// views.
template <class T>
struct BlockTensors {
  BlockTensors() = default;

  BlockTensors(const Buffer& buffer, const Shard& shard, int block)
      : norm1(vector_of<T>(buffer, shard.tensor(block, Role::norm1))),
        wqkv(matrix_of<T>(buffer, shard.tensor(block, Role::wqkv))),
        wo(matrix_of<T>(buffer, shard.tensor(block, Role::wo))),
        norm2(vector_of<T>(buffer, shard.tensor(block, Role::norm2))),
        w13(matrix_of<T>(buffer, shard.tensor(block, Role::w13))),
        w2(matrix_of<T>(buffer, shard.tensor(block, Role::w2))) {}

  Vector<T> norm1;  ///< [H]
  Matrix<T> wqkv;   ///< [(h + 2 h_kv) d, H]
  Matrix<T> wo;     ///< [H, h d]
  Vector<T> norm2;  ///< [H]
  Matrix<T> w13;    ///< [2 F, H]
  Matrix<T> w2;     ///< [H, F]
};

/// One transformer block, on the rank's T tokens of a micro-batch:
///   x += Wo attention(rope(Wqkv norm1(x)))
///   x += W2 swiglu(W13 norm2(x))
/// Each intermediate result is named by Intermediate. One half of a backward pass leaves there what
/// the other half reads. `key_part` is ShardPass::heads.index.
template <class E>
class Block {
  using enum Intermediate;

public:
  Block(const ExecutionSpace& exec,
      const Shape& shape,
      const BlockTensors<const E>& weights,
      const Intermediates<E>& at,
      const SharedKeys<E>& keys,
      Matrix<const float> rope,
      kernels::Attention kernel)
      : exec_(exec),
        shape_(shape),
        weights_(weights),
        at_(at),
        keys_(keys),
        rope_(rope),
        attention_(kernel) {}

  /// x [T, H] becomes the output.
  void forward(Matrix<E> x, Segment segment, int key_part) const {
    if (includes(segment, Segment::keys)) {
      project(x, at_[input]);
      keys_.put(at_[qkv]);
    }
    if (segment == Segment::extend)
      keys_.extend(key_part);
    if (includes(segment, Segment::attend)) {
      attend(key_part);
      if (key_part + 1 == shape_.key_parts) {
        project_gate_up(x, shape_.recompute == Recompute::none ? at_[middle] : Matrix<E>());
        kernels::swiglu_forward(exec_, at_[product], at_[ffn]);           // [T, F]
        kernels::linear_forward(exec_, x, at_[product], weights_.w2, 1);  // [T, H], added to x
      }
    }
  }

  /// Turns dy [T, H], the gradient at the output, into dx [T, H], that at the input; dx may be dy.
  /// Writes gradients of weights, or adds to them if `accumulate`. Where ranks share sequences,
  /// these are computed while gradients of keys travel. Elsewhere they come first, because
  /// attention's backward pass reuses the scratch of the feed-forward.
  template <class G>
  void backward(const ShardPass& pass,
      Matrix<E> dy,
      Matrix<E> dx,
      const BlockTensors<G>& gradient,
      bool accumulate) const {
    const bool inputs = pass.towards_input(), weights = pass.towards_weights(),
               overlaps = shape_.shares_sequences();
    if (inputs && includes(pass.segment, Segment::keys))
      recompute_keys(pass.is_half());
    if (includes(pass.segment, Segment::attend)) {
      if (inputs)
        feed_forward_input(dy);
      if (weights && !overlaps)
        feed_forward_weights(dy, gradient, accumulate);
      if (inputs)
        attention_input();
    }
    if (pass.segment == Segment::share)
      keys_.share_gradients();
    if (weights && includes(pass.segment, Segment::weights)) {
      if (overlaps)
        feed_forward_weights(dy, gradient, accumulate);
      kernels::linear_backward_weight(
          exec_, gradient.wo, read(middle_gradient), at_[attention], accumulate);
    }
    if (includes(pass.segment, Segment::finish)) {
      if (inputs)
        keys_.take_gradients(at_[qkv_gradient]);
      if (weights)
        normalise_input();  // another norm or block has used the scratch
      if (inputs)
        projection_input(dx);
      if (weights)
        projection_weights(gradient, accumulate);
    }
  }

private:
  Matrix<const E> read(Intermediate which) const { return at_[which]; }

  // ---- Forward, and again in the backward pass ----

  /// x [T, H] -> rotated queries, keys and values [T, (h + 2 h_kv) d]; `copy` receives x.
  void project(Matrix<E> x, Matrix<E> copy) const {
    kernels::rmsnorm_forward(
        exec_, at_.normed1(), at_.floats(rstd1), copy, x, weights_.norm1);   // [T, H]
    kernels::linear_forward(exec_, at_[qkv], at_.normed1(), weights_.wqkv);  // [T, (h + 2 h_kv) d]
    kernels::rope(exec_, at_[qkv], rope_, turned_heads(), 1);
  }

  /// Computes attention [T, h d] of a part of the heads.
  void attend(int key_part) const {
    for (const kernels::AttentionPart& part : attention_parts(shape_, key_part))
      kernels::attention_forward<E>(exec_,
          {at_[attention], at_.floats(lse), at_[qkv], part, keys_.seen(key_part)},
          attention_);
  }

  /// Adds attention's output to `stream` [T, H], and projects the sum to gate and up. `copy`
  /// receives the sum.
  void project_gate_up(Matrix<E> stream, Matrix<E> copy) const {
    kernels::linear_forward(exec_, stream, at_[attention], weights_.wo, 1);  // [T, H]
    kernels::rmsnorm_forward(
        exec_, at_[normed], at_.floats(rstd2), copy, stream, weights_.norm2);  // [T, H]
    kernels::linear_forward(exec_, at_[ffn], at_[normed], weights_.w13);       // [T, 2 F]
  }

  /// The output of norm1 and its row statistics.
  void normalise_input() const {
    kernels::rmsnorm_forward(
        exec_, at_.normed1(), at_.floats(rstd1), {}, at_[input], weights_.norm1);
  }

  int turned_heads() const { return shape_.heads + shape_.kv_heads; }

  // ---- Backward, from the output to the input ----

  /// Provides keys and values again, unless slices have kept them. `defers`: saves the norms' gains
  /// for the half towards the weights.
  void recompute_keys(bool defers) const {
    if (defers) {
      defer(norm1, weights_.norm1);
      defer(norm2, weights_.norm2);
    }
    if (shape_.recompute != Recompute::none)
      project(at_[input], at_[middle]);
    if (!shape_.has_slices())
      keys_.put(at_[qkv]);
  }

  void defer(Intermediate copy, Vector<const E> gain) const {
    if (E* const deferred = at_[copy].data())
      Kokkos::deep_copy(exec_, Vector<E>(deferred, shape_.hidden), gain);
  }

  /// Writes `middle_gradient` [T, H].
  void feed_forward_input(Matrix<E> dy) const {
    for (int p = 0; p < shape_.key_parts && shape_.recompute == Recompute::block; ++p)
      attend(p);
    if (shape_.recompute != Recompute::none)
      project_gate_up(at_[middle], {});
    kernels::linear_backward_input(exec_, at_[product], dy, weights_.w2);             // [T, F]
    kernels::swiglu_backward(exec_, at_[ffn], at_[product], at_[product], at_[ffn]);  // [T, 2 F]
    kernels::linear_backward_input(exec_, at_[middle_gradient], at_[ffn], weights_.w13);
    kernels::rmsnorm_backward(exec_,
        at_[middle_gradient],
        at_.partial(gain_partial2),
        at_[middle_gradient],
        dy,
        at_[middle],
        at_.floats(rstd2),
        weights_.norm2);
  }

  template <class G>
  void feed_forward_weights(Matrix<E> dy, const BlockTensors<G>& gradient, bool accumulate) const {
    const Matrix<const E> slope = dy;
    if (shape_.recompute == Recompute::none)
      kernels::rmsnorm_forward(
          exec_, at_[normed], at_.floats(rstd2), {}, at_[middle], weights_.norm2);
    kernels::linear_backward_weight(exec_, gradient.w2, slope, at_[product], accumulate);
    kernels::linear_backward_weight(exec_, gradient.w13, read(ffn), at_[normed], accumulate);
    kernels::rmsnorm_backward_gain(exec_, gradient.norm2, at_.partial(gain_partial2), accumulate);
  }

  /// Writes the gradients of rotated queries, keys and values.
  void attention_input() const {
    kernels::linear_backward_input(
        exec_, at_[attention_gradient], at_[middle_gradient], weights_.wo);  // [T, h d]
    if (!shape_.keys_apart())
      return attention_backward<E>(0, {}, false);
    keys_.with_gradient_type([&]<class G>(G) {
      for (int p = 0; p < shape_.key_parts; ++p)
        attention_backward<G>(p, keys_.template sums<G>(p), keys_.has_later_slices());
    });
  }

  /// Visits runs from the last to the first: the last one reaches the most keys, so it writes
  /// gradients, and others add to them.
  template <class G>
  void attention_backward(int key_part, kernels::KeyValues<G> sums, bool accumulate) const {
    const std::vector<kernels::AttentionPart> parts = attention_parts(shape_, key_part);
    for (const kernels::AttentionPart& part : std::views::reverse(parts))
      kernels::attention_backward<E, G>(exec_,
          {.dqkv = at_[qkv_gradient],
              .delta = at_.floats(delta),
              .dy = at_[attention_gradient],
              .qkv = at_[qkv],
              .y = at_[attention],
              .lse = at_.floats(lse),
              .part = part,
              .key_values = keys_.seen(key_part),
              .gradient_sums = sums,
              .accumulate = std::exchange(accumulate, true)},
          attention_);
  }

  void projection_input(Matrix<E> dx) const {
    kernels::rope(exec_, at_[qkv_gradient], rope_, turned_heads(), -1);
    kernels::linear_backward_input(exec_, dx, at_[qkv_gradient], weights_.wqkv);  // [T, H]
    kernels::rmsnorm_backward(exec_,
        dx,
        at_.partial(gain_partial1),
        dx,
        at_[middle_gradient],
        at_[input],
        at_.floats(rstd1),
        weights_.norm1);
  }

  template <class G>
  void projection_weights(const BlockTensors<G>& gradient, bool accumulate) const {
    kernels::linear_backward_weight(
        exec_, gradient.wqkv, read(qkv_gradient), at_.normed1(), accumulate);
    kernels::rmsnorm_backward_gain(exec_, gradient.norm1, at_.partial(gain_partial1), accumulate);
  }

  const ExecutionSpace& exec_;
  const Shape& shape_;
  BlockTensors<const E> weights_;
  Intermediates<E> at_;
  SharedKeys<E> keys_;
  Matrix<const float> rope_;  ///< [S / n, d]
  kernels::Attention attention_;
};
}  // namespace minitaw::model
