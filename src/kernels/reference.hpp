#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

/// Plain serial double-precision versions of every layer: the simplest loops that compute the formula. They
/// check the fast kernels and share no code with them. Matrices are row-major; outputs first, then inputs,
/// then sizes. Outputs of backward functions that are summed over calls say "adds to"; all others are
/// overwritten.

namespace minitaw::kernels::reference {

using Out = std::span<double>;
using In = std::span<const double>;
using Tokens = std::span<const std::int32_t>;

/// y [rows, out] = x [rows, in] w [out, in]^T.
inline void linear_forward(Out y, In x, In w, std::int64_t rows, std::int64_t out, std::int64_t in) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
      y[r * out + o] = sum;
    }
}

/// dx [rows, in] = dy [rows, out] w [out, in]; dw [out, in] adds to dy^T x.
inline void linear_backward(Out dx, Out dw, In dy, In x, In w, std::int64_t rows, std::int64_t out,
                            std::int64_t in) {
  for (std::int64_t i = 0; i < rows * in; ++i) dx[i] = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) {
        dx[r * in + i] += dy[r * out + o] * w[o * in + i];
        dw[o * in + i] += dy[r * out + o] * x[r * in + i];
      }
}

/// x [rows, width] = table [vocab, width] at tokens [rows].
inline void embedding_forward(Out x, In table, Tokens tokens, std::int64_t width) {
  for (std::size_t r = 0; r < tokens.size(); ++r)
    for (std::int64_t i = 0; i < width; ++i) x[r * width + i] = table[tokens[r] * width + i];
}

/// dtable adds to.
inline void embedding_backward(Out dtable, In dx, Tokens tokens, std::int64_t width) {
  for (std::size_t r = 0; r < tokens.size(); ++r)
    for (std::int64_t i = 0; i < width; ++i) dtable[tokens[r] * width + i] += dx[r * width + i];
}

/// 1 / sqrt(mean(x^2) + 1e-5) of one row (Zhang & Sennrich 2019).
inline double reciprocal_rms(In row) {
  double sum = 0;
  for (const double value : row) sum += value * value;
  return 1 / std::sqrt(sum / static_cast<double>(row.size()) + 1e-5);
}

/// y [rows, width] = x reciprocal_rms(x) gain [width].
inline void rmsnorm_forward(Out y, In x, In gain, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const double scale = reciprocal_rms(x.subspan(r * width, width));
    for (std::int64_t i = 0; i < width; ++i) y[r * width + i] = x[r * width + i] * scale * gain[i];
  }
}

/// dx [rows, width] is overwritten; dgain [width] adds to.
inline void rmsnorm_backward(Out dx, Out dgain, In dy, In x, In gain, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const double scale = reciprocal_rms(x.subspan(r * width, width));
    double dot = 0;
    for (std::int64_t i = 0; i < width; ++i) dot += dy[r * width + i] * gain[i] * x[r * width + i];
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t at = r * width + i;
      dgain[i] += dy[at] * x[at] * scale;
      dx[at] = scale * (dy[at] * gain[i] - x[at] * scale * scale * dot / static_cast<double>(width));
    }
  }
}

/// Turns the pairs (2i, 2i+1) of every head of x [heads, head_dim] in place by the angle
/// position 10000^(-2i / head_dim) (Su et al. 2021).
inline void rope_token(Out x, std::int64_t heads, std::int64_t head_dim, double position) {
  for (std::int64_t pair = 0; pair < heads * head_dim / 2; ++pair) {
    const std::int64_t i = pair % (head_dim / 2);
    const double angle =
        position * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    double &even = x[2 * pair], &odd = x[2 * pair + 1];
    const double turned = even * std::cos(angle) - odd * std::sin(angle);
    odd = even * std::sin(angle) + odd * std::cos(angle);
    even = turned;
  }
}

/// The same for every token of x [batch, seq, heads, head_dim]. direction 1: forward; -1: backward, because
/// the transpose of a rotation is its inverse. `stride`: elements from one token to the next, at least heads
/// head_dim.
inline void rope(Out x, std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim,
                 std::int64_t stride, double direction) {
  for (std::int64_t token = 0; token < batch * seq; ++token)
    rope_token(x.subspan(token * stride, heads * head_dim), heads, head_dim,
               direction * static_cast<double>(token % seq));
}

/// Sizes of causal attention with grouped query heads: query head i reads key/value head i kv_heads / heads.
/// qkv is [batch, seq, (heads + 2 kv_heads) head_dim]: queries, keys, values of a token one behind another.
struct AttentionSizes {
  std::int64_t batch, seq, heads, kv_heads, head_dim;

  [[nodiscard]] std::int64_t stride() const { return (heads + 2 * kv_heads) * head_dim; }
  [[nodiscard]] std::int64_t token(std::int64_t b, std::int64_t s) const { return (b * seq + s) * stride(); }
  [[nodiscard]] std::int64_t query(std::int64_t b, std::int64_t s, std::int64_t head) const {
    return token(b, s) + head * head_dim;
  }
  [[nodiscard]] std::int64_t key(std::int64_t b, std::int64_t s, std::int64_t head) const {
    return token(b, s) + (heads + head * kv_heads / heads) * head_dim;
  }
  [[nodiscard]] std::int64_t value(std::int64_t b, std::int64_t s, std::int64_t head) const {
    return key(b, s, head) + kv_heads * head_dim;
  }
  [[nodiscard]] std::int64_t output(std::int64_t b, std::int64_t s, std::int64_t head) const {
    return ((b * seq + s) * heads + head) * head_dim;
  }
};

inline double dot(In a, In b, std::int64_t at_a, std::int64_t at_b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[at_a + i] * b[at_b + i];
  return sum;
}

/// Softmax of query s against keys 0..s: probabilities, one row of scores at a time.
inline std::vector<double> attention_row(In qkv, const AttentionSizes& z, std::int64_t b, std::int64_t s,
                                         std::int64_t head) {
  std::vector<double> row(s + 1);
  for (std::int64_t k = 0; k <= s; ++k)
    row[k] = dot(qkv, qkv, z.query(b, s, head), z.key(b, k, head), z.head_dim) /
             std::sqrt(static_cast<double>(z.head_dim));
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (double& value : row) sum += value = std::exp(value - largest);
  for (double& value : row) value /= sum;
  return row;
}

/// y [batch, seq, heads, head_dim].
inline void attention_forward(Out y, In qkv, const AttentionSizes& z) {
  for (std::int64_t b = 0; b < z.batch; ++b)
    for (std::int64_t head = 0; head < z.heads; ++head)
      for (std::int64_t s = 0; s < z.seq; ++s) {
        const std::vector<double> row = attention_row(qkv, z, b, s, head);
        for (std::int64_t i = 0; i < z.head_dim; ++i) {
          double sum = 0;
          for (std::int64_t k = 0; k <= s; ++k) sum += row[k] * qkv[z.value(b, k, head) + i];
          y[z.output(b, s, head) + i] = sum;
        }
      }
}

/// dqkv is overwritten.
inline void attention_backward(Out dqkv, In dy, In qkv, const AttentionSizes& z) {
  std::fill(dqkv.begin(), dqkv.end(), 0.0);
  const double scale = 1 / std::sqrt(static_cast<double>(z.head_dim));
  for (std::int64_t b = 0; b < z.batch; ++b)
    for (std::int64_t head = 0; head < z.heads; ++head)
      for (std::int64_t s = 0; s < z.seq; ++s) {
        const std::vector<double> row = attention_row(qkv, z, b, s, head);
        std::vector<double> drow(s + 1);
        double mean = 0;
        for (std::int64_t k = 0; k <= s; ++k) {
          drow[k] = dot(dy, qkv, z.output(b, s, head), z.value(b, k, head), z.head_dim);
          mean += row[k] * drow[k];
        }
        for (std::int64_t k = 0; k <= s; ++k)
          for (std::int64_t i = 0; i < z.head_dim; ++i) {
            const double dscore = row[k] * (drow[k] - mean) * scale;
            dqkv[z.query(b, s, head) + i] += dscore * qkv[z.key(b, k, head) + i];
            dqkv[z.key(b, k, head) + i] += dscore * qkv[z.query(b, s, head) + i];
            dqkv[z.value(b, k, head) + i] += row[k] * dy[z.output(b, s, head) + i];
          }
      }
}

/// y [rows, width] = silu(gate) up (Shazeer 2020); x [rows, 2 width]: gate columns, then up columns.
inline void swiglu_forward(Out y, In x, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < width; ++i) {
      const double gate = x[r * 2 * width + i], up = x[r * 2 * width + width + i];
      y[r * width + i] = gate / (1 + std::exp(-gate)) * up;
    }
}

/// dx [rows, 2 width] is overwritten.
inline void swiglu_backward(Out dx, In dy, In x, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t at = r * 2 * width + i;
      const double gate = x[at], up = x[at + width], sigmoid = 1 / (1 + std::exp(-gate));
      dx[at] = dy[r * width + i] * up * sigmoid * (1 + gate * (1 - sigmoid));
      dx[at + width] = dy[r * width + i] * gate * sigmoid;
    }
}

/// Returns the sum over the rows of -log softmax(logits [rows, vocab])[target]; dlogits [rows, vocab] = scale
/// (softmax - one at the target).
inline double cross_entropy(Out dlogits, In logits, Tokens targets, double scale, std::int64_t vocab) {
  double loss = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const In row = logits.subspan(r * vocab, vocab);
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double value : row) sum += std::exp(value - largest);
    loss += largest + std::log(sum) - row[targets[r]];
    for (std::int64_t i = 0; i < vocab; ++i)
      dlogits[r * vocab + i] = scale * (std::exp(row[i] - largest) / sum - (i == targets[r] ? 1 : 0));
  }
  return loss;
}

struct AdamWSettings {
  double learning_rate, beta1, beta2, epsilon, decay;
};

/// One step (counted from 1) of AdamW (Loshchilov & Hutter 2019, algorithm 2): weights and moments in place.
inline void adamw(Out weights, Out moment1, Out moment2, In gradient, const AdamWSettings& settings,
                  int step) {
  const double correction1 = 1 - std::pow(settings.beta1, step);
  const double correction2 = 1 - std::pow(settings.beta2, step);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    moment1[i] = settings.beta1 * moment1[i] + (1 - settings.beta1) * gradient[i];
    moment2[i] = settings.beta2 * moment2[i] + (1 - settings.beta2) * gradient[i] * gradient[i];
    const double direction =
        moment1[i] / correction1 / (std::sqrt(moment2[i] / correction2) + settings.epsilon);
    weights[i] -= settings.learning_rate * (direction + settings.decay * weights[i]);
  }
}

}  // namespace minitaw::kernels::reference
