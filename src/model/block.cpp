#include "model/block.hpp"

#include "base/bf16.hpp"
#include "kernels/kernels.hpp"

namespace minitaw::model {

kernels::AttentionSizes attention_sizes(const Shape& shape) {
  return {static_cast<int>(shape.micro_batch), static_cast<int>(shape.seq), shape.heads, shape.kv_heads,
          static_cast<int>(shape.head_dim())};
}

template <class E>
BlockState<E>::BlockState(const Shape& shape, std::int64_t ffn, std::initializer_list<Source> sources) {
  const std::int64_t rows = shape.tokens(), hidden = shape.hidden, qkv_width = shape.qkv(),
                     width = shape.heads * shape.head_dim(), chunks = kernels::rmsnorm_chunks(rows);
  static_assert(most_gain_chunks == kernels::most_rmsnorm_chunks);
  using R = BlockRegions;
  const auto place = [&](Region R::* region) -> std::byte* {
    for (const Source& source : sources)
      if ((source.regions.*region).bytes > 0) return source.buffer.data + (source.regions.*region).offset;
    return nullptr;
  };
  const auto matrix = [&](Region R::* region, std::int64_t cols) {
    return Matrix<E>(reinterpret_cast<E*>(place(region)), rows, cols);
  };
  const auto floats = [&](Region R::* region, std::int64_t count) {
    return Vector<float>(reinterpret_cast<float*>(place(region)), count);
  };
  const auto partial = [&](Region R::* region) {
    return Matrix<float>(reinterpret_cast<float*>(place(region)), chunks, hidden);
  };
  const auto gain = [&](Region R::* region) {
    return place(region) ? Vector<E>(reinterpret_cast<E*>(place(region)), hidden) : Vector<E>();
  };
  input = matrix(&R::input, hidden);
  rstd1 = floats(&R::rstd1, rows);
  qkv = matrix(&R::qkv, qkv_width);
  attention = matrix(&R::attention, width);
  lse = floats(&R::lse, rows * shape.heads);
  middle = matrix(&R::middle, hidden);
  rstd2 = floats(&R::rstd2, rows);
  gate_up = matrix(&R::ffn, 2 * ffn);
  normed2 = matrix(&R::normed, hidden);
  product = matrix(&R::product, ffn);
  middle_gradient = matrix(&R::middle_gradient, hidden);
  attention_gradient = matrix(&R::attention_gradient, width);
  qkv_gradient = matrix(&R::qkv_gradient, qkv_width);
  delta = floats(&R::delta, rows * shape.heads);
  gain_partial1 = partial(&R::gain_partial1);
  gain_partial2 = partial(&R::gain_partial2);
  norm1 = gain(&R::norm1);
  norm2 = gain(&R::norm2);
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
template <class G>
void Block<E>::backward(Matrix<E> x, const BlockTensors<G>& gradient, bool accumulate) const {
  rebuild();
  feed_forward_input(x);
  feed_forward_weight(x, gradient, accumulate);
  attention_input(x);
  attention_weight(gradient, accumulate);
}

template <class E>
void Block<E>::backward_input(Matrix<E> dx, Matrix<E> dy) const {
  if (state_.norm1.data() != nullptr) Kokkos::deep_copy(exec_, state_.norm1, weights_.norm1);
  if (state_.norm2.data() != nullptr) Kokkos::deep_copy(exec_, state_.norm2, weights_.norm2);
  rebuild();
  feed_forward_input(dy);
  attention_input(dx);
}

template <class E>
template <class G>
void Block<E>::backward_weight(Matrix<E> dy, const BlockTensors<G>& gradient, bool accumulate) const {
  feed_forward_weight(dy, gradient, accumulate);
  attention_weight(gradient, accumulate);
}

template <class E>
void Block<E>::feed_forward_input(Matrix<E> dy) const {
  const BlockState<E>& s = state_;
  kernels::linear_backward_input(exec_, s.product, dy, weights_.w2);
  kernels::swiglu_backward(exec_, s.gate_up, s.product, s.product, s.gate_up);
  kernels::linear_backward_input(exec_, s.middle_gradient, s.gate_up, weights_.w13);
  kernels::rmsnorm_backward(exec_, s.middle_gradient, s.gain_partial2, s.middle_gradient, dy, s.middle,
                            s.rstd2, weights_.norm2);
}

template <class E>
template <class G>
void Block<E>::feed_forward_weight(Matrix<E> dy, const BlockTensors<G>& gradient, bool accumulate) const {
  const BlockState<E>& s = state_;
  const Matrix<const E> slope = dy, gate_up_gradient = s.gate_up;
  if (shape_.recompute == Recompute::none)
    kernels::rmsnorm_rebuild(exec_, s.normed2, s.middle, s.rstd2, weights_.norm2);
  kernels::linear_backward_weight(exec_, gradient.w2, slope, s.product, accumulate);
  kernels::linear_backward_weight(exec_, gradient.w13, gate_up_gradient, s.normed2, accumulate);
  kernels::rmsnorm_backward_gain(exec_, gradient.norm2, s.gain_partial2, accumulate);
}

template <class E>
void Block<E>::attention_input(Matrix<E> dx) const {
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
void Block<E>::attention_weight(const BlockTensors<G>& gradient, bool accumulate) const {
  const BlockState<E>& s = state_;
  const Matrix<const E> slope = s.middle_gradient, qkv_gradient = s.qkv_gradient;
  kernels::rmsnorm_rebuild(exec_, s.normed1, s.input, s.rstd1, weights_.norm1);
  kernels::linear_backward_weight(exec_, gradient.wo, slope, s.attention, accumulate);
  kernels::linear_backward_weight(exec_, gradient.wqkv, qkv_gradient, s.normed1, accumulate);
  kernels::rmsnorm_backward_gain(exec_, gradient.norm1, s.gain_partial1, accumulate);
}

#define MINITAW_INSTANTIATE_GRADIENT(E, G)                                                                   \
  template void Block<E>::backward<G>(Matrix<E>, const BlockTensors<G>&, bool) const;                        \
  template void Block<E>::backward_weight<G>(Matrix<E>, const BlockTensors<G>&, bool) const;

template struct BlockState<float>;
template class Block<float>;
MINITAW_INSTANTIATE_GRADIENT(float, float)

template struct BlockState<Bf16>;
template class Block<Bf16>;
MINITAW_INSTANTIATE_GRADIENT(Bf16, float)
MINITAW_INSTANTIATE_GRADIENT(Bf16, Bf16)

}  // namespace minitaw::model
