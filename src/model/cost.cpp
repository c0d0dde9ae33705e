// SPDX-License-Identifier: BSD-3-Clause
#include "model/cost.hpp"
#include <algorithm>
#include <cmath>

namespace minitaw::model {
namespace {
/// Sizes of the kernels of one micro-batch, in elements.
struct Sizes {
  double tokens, hidden, width, rotated, vocab;
  double keys;     ///< twice those that a query attends to in the mean
  double element;  ///< bytes of one

  explicit Sizes(const Shape& shape)
      : tokens(shape.tokens()),
        hidden(shape.hidden),
        width(shape.attention_width()),
        rotated(width + shape.kv_heads * shape.head_dim()),
        vocab(shape.vocab),
        keys(2 * shape.span.begin + shape.span_seq()),
        element(bytes_of(shape.dtype)) {}
};

}  // namespace

double Curve::at(double flops) const {
  const auto above = std::ranges::lower_bound(points, flops, {}, &std::pair<double, double>::first);
  if (above == points.begin())
    return points.front().second;
  if (above == points.end())
    return points.back().second;
  const auto& [x0, y0] = *std::prev(above);
  const auto& [x1, y1] = *above;
  return y0 + (y1 - y0) * std::log(flops / x0) / std::log(x1 / x0);
}

Price in_seconds(const Speed& speed, double memory_rate) {
  const auto at_rate_of = [](const Curve& curve) {
    return [&curve](double flops) { return flops / curve.at(flops); };
  };
  return {.product = at_rate_of(speed.products),
      .attention = at_rate_of(speed.attention),
      .attention_backward = at_rate_of(speed.attention_backward),
      .memory = [=](double bytes) { return bytes / memory_rate; }};
}

Price in_flops() {
  const auto all = [](double flops) { return flops; };
  return {.product = all, .attention = all, .attention_backward = all, .memory = [](double) {
            return 0.0;
          }};
}

BlockCost cost_of_block(const Shape& shape, const Price& price) {
  const Sizes n(shape);
  const double ffn = shape.ffn;
  const auto product = [&](double in, double out) {
    return price.product(2 * n.tokens * in * out);
  };
  const auto memory = [&](double elements) { return price.memory(elements * n.element); };
  const double of_qkv = product(n.hidden, shape.qkv());
  const double last = product(ffn, n.hidden);
  const double others = product(n.width, n.hidden) + product(n.hidden, 2 * ffn) + last;
  const double scores = 2 * n.tokens * n.keys * n.width;  // causal
  const double attention = price.attention(scores);

  BlockCost cost;
  cost.forward_keys = of_qkv + memory(n.tokens * 2 * (n.hidden + n.rotated));
  cost.forward_attend = others + attention + memory(n.tokens * 3 * (n.hidden + ffn));
  cost.forward_attention = attention;
  cost.backward_attend =
      others + price.attention_backward(2 * scores) + memory(n.tokens * (5 * n.hidden + 6 * ffn));
  if (shape.recompute != Recompute::none) {
    cost.backward_keys = cost.forward_keys;
    cost.backward_attend += cost.forward_attend - last;
  }
  if (shape.recompute == Recompute::keep_attention)
    cost.backward_attend -= attention;
  cost.backward_finish = of_qkv + memory(n.tokens * (3 * n.hidden + 2 * n.rotated));
  cost.backward_attend_weights = others;
  cost.backward_finish_weights = of_qkv;
  return cost;
}

double cost_of_loss(const Shape& shape, const Price& price) {
  const Sizes n(shape);
  return 3 * price.product(2 * n.tokens * n.hidden * n.vocab) +
         price.memory(n.tokens * (2 * n.vocab + 6 * n.hidden) * n.element);
}
}  // namespace minitaw::model
