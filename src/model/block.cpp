#include "model/block.hpp"

#include "base/bf16.hpp"
#include "kernels/linear.hpp"
#include "kernels/rmsnorm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"

namespace minitaw::model {

namespace {

/// A place in one of two buffers: kept from the forward pass, or scratch.
class Places {
public:
  Places(const Buffer& kept, const Buffer& workspace) : kept_(kept), workspace_(workspace) {}

  template <class T>
  Matrix<T> matrix(const Region& kept, const Region& scratch, std::int64_t rows, std::int64_t cols) const {
    return kept.bytes > 0 ? matrix_at<T>(kept_, kept, rows, cols)
                          : matrix_at<T>(workspace_, scratch, rows, cols);
  }
  [[nodiscard]] Vector<float> vector(const Region& kept, const Region& scratch, std::int64_t elements) const {
    return kept.bytes > 0 ? vector_at<float>(kept_, kept, elements)
                          : vector_at<float>(workspace_, scratch, elements);
  }

private:
  const Buffer& kept_;
  const Buffer& workspace_;
};

}  // namespace

kernels::AttentionSizes attention_sizes(const Shape& shape) {
  return {static_cast<int>(shape.micro_batch), static_cast<int>(shape.seq), shape.heads, shape.kv_heads,
          static_cast<int>(shape.head_dim())};
}

template <class E>
BlockState<E>::BlockState(const Shape& shape, std::int64_t ffn, const BlockRegions& kept,
                          const Buffer& kept_buffer, const WorkspacePlan& plan, const Buffer& workspace) {
  const Places at(kept_buffer, workspace);
  const BlockRegions& scratch = plan.recomputed;
  const std::int64_t rows = shape.tokens(), hidden = shape.hidden, width = shape.heads * shape.head_dim();
  input = at.template matrix<E>(kept.input, {}, rows, hidden);
  rstd1 = at.vector(kept.rstd1, scratch.rstd1, rows);
  qkv = at.template matrix<E>(kept.qkv, scratch.qkv, rows, shape.qkv());
  attention = at.template matrix<E>(kept.attention, scratch.attention, rows, width);
  lse = at.vector(kept.lse, scratch.lse, rows * shape.heads);
  middle = at.template matrix<E>(kept.middle, scratch.middle, rows, hidden);
  rstd2 = at.vector(kept.rstd2, scratch.rstd2, rows);
  gate_up = at.template matrix<E>(kept.ffn, scratch.ffn, rows, 2 * ffn);
  normed = matrix_at<E>(workspace, plan.normed, rows, hidden);
  middle_gradient = matrix_at<E>(workspace, plan.middle_gradient, rows, hidden);
  product = matrix_at<E>(workspace, plan.product, rows, ffn);
  attention_gradient = matrix_at<E>(workspace, plan.attention_gradient, rows, width);
  qkv_gradient = matrix_at<E>(workspace, plan.qkv_gradient, rows, shape.qkv());
  delta = vector_at<float>(workspace, plan.delta, rows * shape.heads);
  gain_partial = matrix_at<float>(workspace, plan.gain_partial, gain_chunks(rows), hidden);
  rope = matrix_at<float>(workspace, plan.rope, shape.seq, shape.head_dim());
}

template <class E>
void Block<E>::forward(Matrix<E> x) const {
  const BlockState<E>& s = state_;
  const Matrix<E> kept_middle = shape_.recompute == Recompute::none ? s.middle : Matrix<E>();
  kernels::rmsnorm_forward(exec_, s.normed, s.rstd1, s.input, x, weights_.norm1);
  kernels::linear_forward(exec_, s.qkv, s.normed, weights_.wqkv);
  kernels::rope_forward(exec_, s.qkv, s.rope, turned_heads());
  kernels::attention_forward(exec_, s.attention, s.lse, s.qkv, attention_sizes(shape_), attention_);
  kernels::linear_forward(exec_, x, s.attention, weights_.wo, 1);
  kernels::rmsnorm_forward(exec_, s.normed, s.rstd2, kept_middle, x, weights_.norm2);
  kernels::linear_forward(exec_, s.gate_up, s.normed, weights_.w13);
  kernels::swiglu_forward(exec_, s.product, s.gate_up);
  kernels::linear_forward(exec_, x, s.product, weights_.w2, 1);
}

template <class E>
void Block<E>::rebuild() const {
  const BlockState<E>& s = state_;
  if (shape_.recompute == Recompute::none)
    return kernels::rmsnorm_rebuild(exec_, s.normed, s.middle, s.rstd2, weights_.norm2);
  kernels::rmsnorm_forward(exec_, s.normed, s.rstd1, s.middle, s.input, weights_.norm1);
  kernels::linear_forward(exec_, s.qkv, s.normed, weights_.wqkv);
  kernels::rope_forward(exec_, s.qkv, s.rope, turned_heads());
  if (shape_.recompute == Recompute::block)
    kernels::attention_forward(exec_, s.attention, s.lse, s.qkv, attention_sizes(shape_), attention_);
  kernels::linear_forward(exec_, s.middle, s.attention, weights_.wo, 1);
  kernels::rmsnorm_forward(exec_, s.normed, s.rstd2, {}, s.middle, weights_.norm2);
  kernels::linear_forward(exec_, s.gate_up, s.normed, weights_.w13);
}

template <class E>
void Block<E>::feed_forward_backward_input(Matrix<E> dy) const {
  const BlockState<E>& s = state_;
  kernels::linear_backward_input(exec_, s.product, dy, weights_.w2);
  kernels::swiglu_backward(exec_, s.gate_up, s.product, s.product, s.gate_up);
  kernels::linear_backward_input(exec_, s.middle_gradient, s.gate_up, weights_.w13);
  kernels::rmsnorm_backward(exec_, s.middle_gradient, s.gain_partial, s.middle_gradient, dy, s.middle,
                            s.rstd2, weights_.norm2);
}

template <class E>
template <class G>
void Block<E>::feed_forward_backward_weight(Matrix<E> dy, const BlockTensors<G>& gradient,
                                            bool accumulate) const {
  const BlockState<E>& s = state_;
  const Matrix<const E> slope = dy, gate_up_gradient = s.gate_up;
  kernels::linear_backward_weight(exec_, gradient.w2, slope, s.product, accumulate);
  kernels::linear_backward_weight(exec_, gradient.w13, gate_up_gradient, s.normed, accumulate);
  kernels::rmsnorm_backward_gain(exec_, gradient.norm2, s.gain_partial, accumulate);
}

template <class E>
void Block<E>::attention_backward_input(Matrix<E> dx) const {
  const BlockState<E>& s = state_;
  kernels::linear_backward_input(exec_, s.attention_gradient, s.middle_gradient, weights_.wo);
  kernels::attention_backward(exec_, s.qkv_gradient, s.delta, s.attention_gradient, s.qkv, s.attention, s.lse,
                              attention_sizes(shape_), attention_);
  kernels::rope_backward(exec_, s.qkv_gradient, s.rope, turned_heads());
  kernels::linear_backward_input(exec_, dx, s.qkv_gradient, weights_.wqkv);
  kernels::rmsnorm_backward(exec_, dx, s.gain_partial, dx, s.middle_gradient, s.input, s.rstd1,
                            weights_.norm1);
}

template <class E>
template <class G>
void Block<E>::attention_backward_weight(const BlockTensors<G>& gradient, bool accumulate) const {
  const BlockState<E>& s = state_;
  const Matrix<const E> slope = s.middle_gradient, qkv_gradient = s.qkv_gradient;
  kernels::rmsnorm_rebuild(exec_, s.normed, s.input, s.rstd1, weights_.norm1);
  kernels::linear_backward_weight(exec_, gradient.wo, slope, s.attention, accumulate);
  kernels::linear_backward_weight(exec_, gradient.wqkv, qkv_gradient, s.normed, accumulate);
  kernels::rmsnorm_backward_gain(exec_, gradient.norm1, s.gain_partial, accumulate);
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
