#include "model/reference.hpp"

#include <algorithm>

#include "kernels/reference.hpp"
#include "model/data.hpp"

namespace minitaw::model {

namespace {

namespace plain = kernels::reference;
using Doubles = std::vector<double>;

plain::In view(const Doubles& buffer, const Tensor& tensor) {
  return plain::In(buffer).subspan(tensor.offset, tensor.size());
}
plain::Out view(Doubles& buffer, const Tensor& tensor) {
  return plain::Out(buffer).subspan(tensor.offset, tensor.size());
}
void add(Doubles& sum, const Doubles& other) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
}

/// One layer with its weights, which are a tensor of a flat buffer. The backward functions return the
/// gradient of the input and add that of the weights to their place in `gradient`.
Doubles norm(const Doubles& x, const Doubles& weights, const Tensor& gain) {
  Doubles y(x.size());
  plain::rmsnorm_forward(y, x, view(weights, gain), std::ssize(x) / gain.rows, gain.rows);
  return y;
}
Doubles norm_back(const Doubles& dy, const Doubles& x, Doubles& gradient, const Doubles& weights,
                  const Tensor& gain) {
  Doubles dx(x.size());
  plain::rmsnorm_backward(dx, view(gradient, gain), dy, x, view(weights, gain), std::ssize(x) / gain.rows,
                          gain.rows);
  return dx;
}
Doubles linear(const Doubles& x, const Doubles& weights, const Tensor& w) {
  const std::int64_t rows = std::ssize(x) / w.cols;
  Doubles y(rows * w.rows);
  plain::linear_forward(y, x, view(weights, w), rows, w.rows, w.cols);
  return y;
}
Doubles linear_back(const Doubles& dy, const Doubles& x, Doubles& gradient, const Doubles& weights,
                    const Tensor& w) {
  Doubles dx(x.size());
  plain::linear_backward(dx, view(gradient, w), dy, x, view(weights, w), std::ssize(x) / w.cols, w.rows,
                         w.cols);
  return dx;
}

/// One block: its weights in the shard's, and every intermediate of one micro-batch.
class Block {
public:
  Block(const Shape& shape, const Shard& shard, int index, const Doubles& weights)
      : shard_(shard), index_(index), weights_(weights), rows_(shape.tokens()), hidden_(shape.hidden),
        sizes_{shape.micro_batch, shape.seq, shape.heads, shape.kv_heads, shape.head_dim()} {}

  Doubles forward(const Doubles& x) {
    input_ = x;
    normed1_ = norm(x, weights_, tensor(Role::norm1));
    qkv_ = linear(normed1_, weights_, tensor(Role::wqkv));
    turn(qkv_, 1);
    attention_.resize(rows_ * hidden_);
    plain::attention_forward(attention_, qkv_, sizes_);
    middle_ = linear(attention_, weights_, tensor(Role::wo));
    add(middle_, input_);
    normed2_ = norm(middle_, weights_, tensor(Role::norm2));
    gate_up_ = linear(normed2_, weights_, tensor(Role::w13));
    product_.resize(gate_up_.size() / 2);
    plain::swiglu_forward(product_, gate_up_, rows_, tensor(Role::w2).cols);
    Doubles output = linear(product_, weights_, tensor(Role::w2));
    add(output, middle_);
    return output;
  }

  /// dy: gradient of the output; returns that of the input and adds to `gradient`.
  Doubles backward(const Doubles& dy, Doubles& gradient) const {
    const Doubles dproduct = linear_back(dy, product_, gradient, weights_, tensor(Role::w2));
    Doubles dgate_up(gate_up_.size());
    plain::swiglu_backward(dgate_up, dproduct, gate_up_, rows_, tensor(Role::w2).cols);
    const Doubles dnormed2 = linear_back(dgate_up, normed2_, gradient, weights_, tensor(Role::w13));
    Doubles dmiddle = norm_back(dnormed2, middle_, gradient, weights_, tensor(Role::norm2));
    add(dmiddle, dy);
    const Doubles dattention = linear_back(dmiddle, attention_, gradient, weights_, tensor(Role::wo));
    Doubles dqkv(qkv_.size());
    plain::attention_backward(dqkv, dattention, qkv_, sizes_);
    turn(dqkv, -1);
    const Doubles dnormed1 = linear_back(dqkv, normed1_, gradient, weights_, tensor(Role::wqkv));
    Doubles dx = norm_back(dnormed1, input_, gradient, weights_, tensor(Role::norm1));
    add(dx, dmiddle);
    return dx;
  }

private:
  const Tensor& tensor(Role role) const { return shard_.tensor(index_, role); }

  void turn(Doubles& qkv, double direction) const {
    plain::rope(qkv, sizes_.batch, sizes_.seq, sizes_.heads + sizes_.kv_heads, sizes_.head_dim,
                sizes_.stride(), direction);
  }

  const Shard& shard_;
  int index_;
  const Doubles& weights_;
  std::int64_t rows_, hidden_;
  plain::AttentionSizes sizes_;
  Doubles input_, normed1_, qkv_, attention_, middle_, normed2_, gate_up_, product_;
};

/// Final norm, head and cross-entropy: x becomes its own gradient; returns the scaled loss.
double loss_and_gradient(Doubles& x, Doubles& gradient, const Doubles& weights, const Embeddings& embeddings,
                         plain::Tokens targets, double scale) {
  const Tensor& gain = embeddings.tensor(Role::norm);
  const Tensor& head = embeddings.tensor(Role::head);
  const Doubles normed = norm(x, weights, gain), logits = linear(normed, weights, head);
  Doubles dlogits(logits.size());
  const double loss = plain::cross_entropy(dlogits, logits, targets, scale, head.rows);
  x = norm_back(linear_back(dlogits, normed, gradient, weights, head), x, gradient, weights, gain);
  return scale * loss;
}

}  // namespace

std::uint64_t reference_state_bytes(const Layout& layout) {
  std::int64_t elements = 0;
  for (const Flat* part : layout.parts()) elements += part->elements;
  return 4 * sizeof(double) * static_cast<std::uint64_t>(elements);
}

std::uint64_t reference_activation_bytes(const Shape& shape) {
  const std::int64_t hidden = shape.hidden, qkv = shape.qkv();
  std::int64_t saved = 0, widest = 0;
  for (const std::int64_t ffn : shape.ffn) {
    saved += 5 * hidden + qkv + 3 * ffn;  // the members of Block
    widest = std::max(widest, 3 * ffn);
  }
  // Of the backward pass of a block, or of the loss; both with the hidden state that comes and goes.
  const std::int64_t passing = std::max(6 * hidden + qkv + widest, 4 * hidden + 2 * shape.vocab);
  return sizeof(double) * static_cast<std::uint64_t>(shape.tokens() * (saved + passing));
}

ReferenceTensors reference_zeros(const Layout& layout) {
  ReferenceTensors zeros;
  for (const Flat* part : layout.parts()) zeros.emplace_back(part->elements, 0.0);
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
    : layout_(std::move(layout)), weights_(std::move(weights)), moment1_(reference_zeros(layout_)),
      moment2_(reference_zeros(layout_)) {}

double Reference::accumulate(ReferenceTensors& gradient, std::span<const std::int32_t> tokens,
                             std::span<const std::int32_t> targets, double loss_scale) const {
  const Shape& shape = layout_.shape;
  const Tensor& embedding = layout_.embeddings.tensor(Role::embedding);
  Doubles x(tokens.size() * shape.hidden);
  plain::embedding_forward(x, view(weights_.back(), embedding), tokens, shape.hidden);

  std::vector<Block> blocks;
  for (std::size_t s = 0; s < layout_.shards.size(); ++s)
    for (int i = 0; i < layout_.shards[s].layers; ++i) {
      blocks.emplace_back(shape, layout_.shards[s], i, weights_[s]);
      x = blocks.back().forward(x);
    }
  const double loss =
      loss_and_gradient(x, gradient.back(), weights_.back(), layout_.embeddings, targets, loss_scale);
  for (std::size_t s = layout_.shards.size(); s-- > 0;)
    for (int i = layout_.shards[s].layers; i-- > 0; blocks.pop_back())
      x = blocks.back().backward(x, gradient[s]);

  plain::embedding_backward(view(gradient.back(), embedding), x, tokens, shape.hidden);
  return loss;
}

void Reference::update(const ReferenceTensors& gradient, const AdamW& adamw, int step) {
  const std::vector<const Flat*> parts = layout_.parts();
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (const Tensor& tensor : parts[p]->tensors)
      plain::adamw(view(weights_[p], tensor), view(moment1_[p], tensor), view(moment2_[p], tensor),
                   view(gradient[p], tensor),
                   {adamw.learning_rate, adamw.beta1, adamw.beta2, adamw.epsilon,
                    tensor.is_gain() ? 0.0 : adamw.decay},
                   step);
}

}  // namespace minitaw::model
