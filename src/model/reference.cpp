// SPDX-License-Identifier: BSD-3-Clause
#include "model/reference.hpp"
#include "kernels/reference.hpp"
#include "model/data.hpp"

namespace minitaw::model {
namespace {
namespace plain = kernels::reference;
using plain::Doubles;

/// The elements of a tensor, writable where the buffer is.
auto view(auto& buffer, const Tensor& t) {
  return std::span(buffer).subspan(t.offset, t.size());
}

Doubles sum(Doubles a, const Doubles& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] += b[i];
  return a;
}

/// One block: its weights in the shard's, and every intermediate of one micro-batch.
class Block {
public:
  Block(const Shape& shape, const Shard& shard, int index, const Doubles& weights)
      : shard_(shard),
        index_(index),
        weights_(weights),
        sizes_{static_cast<int>(shape.micro_batch),
            static_cast<int>(shape.seq),
            shape.heads,
            shape.kv_heads,
            static_cast<int>(shape.head_dim())} {}

  Doubles forward(const Doubles& x) {
    input_ = x;
    normed1_ = norm(input_, Role::norm1);
    qkv_ = linear(normed1_, Role::wqkv);
    plain::rope(qkv_, sizes_, 1);
    attention_ = plain::attention_forward(qkv_, sizes_);
    middle_ = sum(linear(attention_, Role::wo), input_);
    normed2_ = norm(middle_, Role::norm2);
    gate_up_ = linear(normed2_, Role::w13);
    product_ = plain::swiglu_forward(gate_up_, tensor(Role::w2).cols);
    return sum(linear(product_, Role::w2), middle_);
  }

  /// dy: gradient of the output; returns that of the input and adds to `gradient`.
  Doubles backward(const Doubles& dy, Doubles& gradient) const {
    const Doubles dproduct = linear_back(dy, product_, gradient, Role::w2);
    const Doubles dgate_up = plain::swiglu_backward(dproduct, gate_up_, tensor(Role::w2).cols);
    const Doubles dnormed2 = linear_back(dgate_up, normed2_, gradient, Role::w13);
    const Doubles dmiddle = sum(norm_back(dnormed2, middle_, gradient, Role::norm2), dy);
    const Doubles dattention = linear_back(dmiddle, attention_, gradient, Role::wo);
    Doubles dqkv = plain::attention_backward(dattention, qkv_, sizes_);
    plain::rope(dqkv, sizes_, -1);
    const Doubles dnormed1 = linear_back(dqkv, normed1_, gradient, Role::wqkv);
    return sum(norm_back(dnormed1, input_, gradient, Role::norm1), dmiddle);
  }

private:
  const Tensor& tensor(Role role) const { return shard_.tensor(index_, role); }

  plain::In weight(Role role) const { return view(weights_, tensor(role)); }

  Doubles norm(const Doubles& x, Role role) const {
    return plain::rmsnorm_forward(x, weight(role));
  }

  Doubles norm_back(const Doubles& dy, const Doubles& x, Doubles& gradient, Role role) const {
    return plain::rmsnorm_backward(view(gradient, tensor(role)), dy, x, weight(role));
  }

  Doubles linear(const Doubles& x, Role role) const {
    return plain::linear_forward(x, weight(role), tensor(role).cols);
  }

  Doubles linear_back(const Doubles& dy, const Doubles& x, Doubles& gradient, Role role) const {
    return plain::linear_backward(
        view(gradient, tensor(role)), dy, x, weight(role), tensor(role).cols);
  }

  const Shard& shard_;
  int index_;
  const Doubles& weights_;
  kernels::AttentionSizes sizes_;
  Doubles input_, normed1_, qkv_, attention_, middle_, normed2_, gate_up_, product_;
};

/// Final norm, head and cross-entropy: x becomes its own gradient; returns the scaled loss.
double loss_and_gradient(Doubles& x,
    Doubles& gradient,
    const Doubles& weights,
    const Embeddings& embeddings,
    plain::Tokens targets,
    double scale) {
  const Tensor &norm = embeddings.tensor(Role::norm), &head = embeddings.tensor(Role::head);
  const plain::In gain = view(weights, norm), weight = view(weights, head);
  const Doubles normed = plain::rmsnorm_forward(x, gain);
  Doubles logits = plain::linear_forward(normed, weight, head.cols);
  const double loss = plain::cross_entropy(logits, targets, scale);
  const Doubles dnormed =
      plain::linear_backward(view(gradient, head), logits, normed, weight, head.cols);
  x = plain::rmsnorm_backward(view(gradient, norm), dnormed, x, gain);
  return scale * loss;
}
}  // namespace

std::uint64_t reference_activation_bytes(const Shape& shape) {
  const std::int64_t hidden = shape.hidden,
                     of_block = shape.qkv() + shape.attention_width() + 3 * shape.ffn;
  const std::int64_t saved = shape.layers * (4 * hidden + of_block);  // all Blocks
  // The backward pass of a block, or the loss, with the hidden state that comes and goes.
  const std::int64_t passing = std::max(5 * hidden + of_block, 4 * hidden + shape.vocab);
  return sizeof(double) * shape.tokens() * (saved + passing);
}

ReferenceTensors reference_zeros(const Layout& layout) {
  ReferenceTensors zeros;
  for (const Flat* part : layout.parts())
    zeros.emplace_back(part->elements, 0.0);
  return zeros;
}

ReferenceTensors initial_weights(const Layout& layout, std::uint64_t seed) {
  ReferenceTensors weights;
  for (const Flat* part : layout.parts()) {
    std::vector<float> values(part->elements);
    initialise(values, *part, layout.shape, seed);
    weights.emplace_back(values.begin(), values.end());
  }
  return weights;
}

Reference::Reference(Layout layout, ReferenceTensors weights)
    : layout_(std::move(layout)),
      weights_(std::move(weights)),
      moment1_(reference_zeros(layout_)),
      moment2_(reference_zeros(layout_)) {}

double Reference::accumulate(ReferenceTensors& gradient,
    std::span<const std::int32_t> tokens,
    std::span<const std::int32_t> targets,
    double loss_scale) const {
  const Shape& shape = layout_.shape;
  const Tensor& embedding = layout_.embeddings.tensor(Role::embedding);
  Doubles x = plain::embedding_forward(view(weights_.back(), embedding), tokens, shape.hidden);
  std::vector<Block> blocks;
  for (const int s : indices(layout_.shards))
    for (int i = 0; i < layout_.shards[s].layers; ++i) {
      blocks.emplace_back(shape, layout_.shards[s], i, weights_[s]);
      x = blocks.back().forward(x);
    }
  const double loss = loss_and_gradient(
      x, gradient.back(), weights_.back(), layout_.embeddings, targets, loss_scale);
  for (std::size_t s = layout_.shards.size(); s-- > 0;)
    for (int i = layout_.shards[s].layers; i-- > 0; blocks.pop_back())
      x = blocks.back().backward(x, gradient[s]);
  plain::embedding_backward(view(gradient.back(), embedding), x, tokens, shape.hidden);
  return loss;
}

void Reference::update(const ReferenceTensors& gradient, const AdamW& adamw, int step) {
  const std::vector<const Flat*> parts = layout_.parts();
  double squares = 0;
  for (const Doubles& part : gradient)
    for (const double g : part)
      squares += g * g;
  const double factor =
      adamw.clip_norm > 0 ? kernels::clip_factor<double>(adamw.clip_norm, std::sqrt(squares)) : 1;
  AdamW of_gains = adamw;
  of_gains.decay = 0;
  for (const int p : indices(parts))
    for (const Tensor& tensor : parts[p]->tensors)
      plain::adamw(view(weights_[p], tensor),
          view(moment1_[p], tensor),
          view(moment2_[p], tensor),
          view(gradient[p], tensor),
          factor,
          tensor.is_gain() ? of_gains : adamw,
          step);
}
}  // namespace minitaw::model
