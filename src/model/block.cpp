#include "model/block.hpp"

#include "base/bf16.hpp"
#include "kernels/kernels.hpp"

namespace minitaw::model {

namespace {

/// A place in one of three buffers: saved from the forward pass, deferred, or scratch.
class Place {
public:
  Place(const BlockPlaces& at, const Region& saved, const Region& deferred, const Region& scratch)
      : buffer_(saved.bytes > 0      ? at.saved_buffer
                : deferred.bytes > 0 ? at.deferred_buffer
                                     : at.workspace),
        region_(saved.bytes > 0      ? saved
                : deferred.bytes > 0 ? deferred
                                     : scratch) {}

  template <class T>
  [[nodiscard]] Matrix<T> matrix(std::int64_t rows, std::int64_t cols) const {
    return matrix_at<T>(buffer_, region_, rows, cols);
  }
  [[nodiscard]] Vector<float> vector(std::int64_t elements) const {
    return vector_at<float>(buffer_, region_, elements);
  }

private:
  const Buffer& buffer_;
  const Region& region_;
};

/// A copy of a gain in the deferred, if it has one.
template <class E>
Vector<E> gain_at(const BlockPlaces& at, const Region& deferred, std::int64_t hidden) {
  return deferred.bytes > 0 ? vector_at<E>(at.deferred_buffer, deferred, hidden) : Vector<E>();
}

}  // namespace

kernels::AttentionSizes attention_sizes(const Shape& shape) {
  return {static_cast<int>(shape.micro_batch), static_cast<int>(shape.seq), shape.heads, shape.kv_heads,
          static_cast<int>(shape.head_dim())};
}

template <class E>
BlockState<E>::BlockState(const Shape& shape, std::int64_t ffn, const BlockPlaces& places) {
  const auto& [saved, saved_buffer, deferred, deferred_buffer, plan, workspace] = places;
  const BlockRegions& scratch = plan.recomputed;
  const std::int64_t rows = shape.tokens(), hidden = shape.hidden, width = shape.heads * shape.head_dim();
  const auto at = [&places](const Region& k, const Region& s, const Region& w) {
    return Place(places, k, s, w);
  };
  const Region none;
  input = at(saved.input, none, none).template matrix<E>(rows, hidden);
  rstd1 = at(saved.rstd1, deferred.rstd1, scratch.rstd1).vector(rows);
  qkv = at(saved.qkv, none, scratch.qkv).template matrix<E>(rows, shape.qkv());
  attention = at(saved.attention, deferred.attention, scratch.attention).template matrix<E>(rows, width);
  lse = at(saved.lse, none, scratch.lse).vector(rows * shape.heads);
  middle = at(saved.middle, none, scratch.middle).template matrix<E>(rows, hidden);
  rstd2 = at(saved.rstd2, none, scratch.rstd2).vector(rows);
  gate_up = at(saved.ffn, deferred.ffn, scratch.ffn).template matrix<E>(rows, 2 * ffn);
  normed1 = matrix_at<E>(workspace, plan.normed, rows, hidden);
  normed2 = at(none, deferred.normed, plan.normed).template matrix<E>(rows, hidden);
  middle_gradient = at(none, deferred.middle_gradient, plan.middle_gradient).template matrix<E>(rows, hidden);
  product = at(none, deferred.product, plan.product).template matrix<E>(rows, ffn);
  attention_gradient = matrix_at<E>(workspace, plan.attention_gradient, rows, width);
  qkv_gradient = at(none, deferred.qkv_gradient, plan.qkv_gradient).template matrix<E>(rows, shape.qkv());
  delta = vector_at<float>(workspace, plan.delta, rows * shape.heads);
  const std::int64_t chunks = kernels::rmsnorm_chunks(rows);
  gain_partial1 = at(none, deferred.gain_partial1, plan.gain_partial).template matrix<float>(chunks, hidden);
  gain_partial2 = at(none, deferred.gain_partial2, plan.gain_partial).template matrix<float>(chunks, hidden);
  rope = matrix_at<float>(workspace, plan.rope, shape.seq, shape.head_dim());
  norm1 = gain_at<E>(places, deferred.norm1, hidden);
  norm2 = gain_at<E>(places, deferred.norm2, hidden);
}

template <class E>
void Block<E>::forward(Matrix<E> x) const {
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

template <class E>
void Block<E>::rebuild() const {
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

template <class E>
void Block<E>::deferred_gains() const {
  if (state_.norm1.data() != nullptr) Kokkos::deep_copy(exec_, state_.norm1, weights_.norm1);
  if (state_.norm2.data() != nullptr) Kokkos::deep_copy(exec_, state_.norm2, weights_.norm2);
}

template <class E>
void Block<E>::feed_forward_backward_input(Matrix<E> dy) const {
  const BlockState<E>& s = state_;
  kernels::linear_backward_input(exec_, s.product, dy, weights_.w2);
  kernels::swiglu_backward(exec_, s.gate_up, s.product, s.product, s.gate_up);
  kernels::linear_backward_input(exec_, s.middle_gradient, s.gate_up, weights_.w13);
  kernels::rmsnorm_backward(exec_, s.middle_gradient, s.gain_partial2, s.middle_gradient, dy, s.middle,
                            s.rstd2, weights_.norm2);
}

template <class E>
template <class G>
void Block<E>::feed_forward_backward_weight(Matrix<E> dy, const BlockTensors<G>& gradient,
                                            bool accumulate) const {
  const BlockState<E>& s = state_;
  const Matrix<const E> slope = dy, gate_up_gradient = s.gate_up;
  if (shape_.recompute == Recompute::none)
    kernels::rmsnorm_rebuild(exec_, s.normed2, s.middle, s.rstd2, weights_.norm2);
  kernels::linear_backward_weight(exec_, gradient.w2, slope, s.product, accumulate);
  kernels::linear_backward_weight(exec_, gradient.w13, gate_up_gradient, s.normed2, accumulate);
  kernels::rmsnorm_backward_gain(exec_, gradient.norm2, s.gain_partial2, accumulate);
}

template <class E>
void Block<E>::attention_backward_input(Matrix<E> dx) const {
  const BlockState<E>& s = state_;
  kernels::linear_backward_input(exec_, s.attention_gradient, s.middle_gradient, weights_.wo);
  kernels::attention_backward(exec_, s.qkv_gradient, s.delta, s.attention_gradient, s.qkv, s.attention, s.lse,
                              attention_sizes(shape_), attention_);
  kernels::rope_backward(exec_, s.qkv_gradient, s.rope, turned_heads());
  kernels::linear_backward_input(exec_, dx, s.qkv_gradient, weights_.wqkv);
  kernels::rmsnorm_backward(exec_, dx, s.gain_partial1, dx, s.middle_gradient, s.input, s.rstd1,
                            weights_.norm1);
}

template <class E>
template <class G>
void Block<E>::attention_backward_weight(const BlockTensors<G>& gradient, bool accumulate) const {
  const BlockState<E>& s = state_;
  const Matrix<const E> slope = s.middle_gradient, qkv_gradient = s.qkv_gradient;
  kernels::rmsnorm_rebuild(exec_, s.normed1, s.input, s.rstd1, weights_.norm1);
  kernels::linear_backward_weight(exec_, gradient.wo, slope, s.attention, accumulate);
  kernels::linear_backward_weight(exec_, gradient.wqkv, qkv_gradient, s.normed1, accumulate);
  kernels::rmsnorm_backward_gain(exec_, gradient.norm1, s.gain_partial1, accumulate);
}

#define MINITAW_INSTANTIATE_GRADIENT(E, G)                                                                   \
  template void Block<E>::feed_forward_backward_weight<G>(Matrix<E>, const BlockTensors<G>&, bool) const;    \
  template void Block<E>::attention_backward_weight<G>(const BlockTensors<G>&, bool) const;

template struct BlockState<float>;
template class Block<float>;
MINITAW_INSTANTIATE_GRADIENT(float, float)

template struct BlockState<Bf16>;
template class Block<Bf16>;
MINITAW_INSTANTIATE_GRADIENT(Bf16, float)
MINITAW_INSTANTIATE_GRADIENT(Bf16, Bf16)

}  // namespace minitaw::model
