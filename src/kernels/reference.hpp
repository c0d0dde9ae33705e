// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>
#include "kernels/settings.hpp"

/// Plain serial double-precision versions of every layer: the simplest loops that compute the
/// formula. They check the fast kernels and share no code with them. Matrices are row-major;
/// functions return their result, and rows are as many as the inputs have. Gradients of weights are
/// summed over calls: "adds to".

namespace minitaw::kernels::reference {
using Doubles = std::vector<double>;
using Out = std::span<double>;
using In = std::span<const double>;
using Tokens = std::span<const std::int32_t>;

inline double dot(In a, In b, std::int64_t at_a, std::int64_t at_b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i)
    sum += a[at_a + i] * b[at_b + i];
  return sum;
}

/// y [rows, out] = x [rows, in] w [out, in]^T.
inline Doubles linear_forward(In x, In w, std::int64_t in) {
  const std::int64_t out = std::ssize(w) / in;
  Doubles y(std::ssize(x) / in * out);
  for (std::int64_t at = 0; at < std::ssize(y); ++at)
    y[at] = dot(x, w, at / out * in, at % out * in, in);
  return y;
}

/// dx [rows, in] = dy [rows, out] w [out, in]; dw [out, in] adds to dy^T x.
inline Doubles linear_backward(Out dw, In dy, In x, In w, std::int64_t in) {
  const std::int64_t rows = std::ssize(x) / in, out = std::ssize(w) / in;
  Doubles dx(x.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) {
        dx[r * in + i] += dy[r * out + o] * w[o * in + i];
        dw[o * in + i] += dy[r * out + o] * x[r * in + i];
      }
  return dx;
}

/// x [rows, width] = table [vocab, width] at tokens [rows].
inline Doubles embedding_forward(In table, Tokens tokens, std::int64_t width) {
  Doubles x(tokens.size() * width);
  for (std::int64_t at = 0; at < std::ssize(x); ++at)
    x[at] = table[tokens[at / width] * width + at % width];
  return x;
}

/// dtable adds to.
inline void embedding_backward(Out dtable, In dx, Tokens tokens, std::int64_t width) {
  for (std::size_t r = 0; r < tokens.size(); ++r)
    for (std::int64_t i = 0; i < width; ++i)
      dtable[tokens[r] * width + i] += dx[r * width + i];
}

/// 1 / sqrt(mean(x^2) + 1e-5) of one row (Zhang & Sennrich 2019).
inline double reciprocal_rms(In row) {
  return 1 /
         std::sqrt(dot(row, row, 0, 0, std::ssize(row)) / static_cast<double>(row.size()) + 1e-5);
}

/// y [rows, width] = x reciprocal_rms(x) gain [width].
inline Doubles rmsnorm_forward(In x, In gain) {
  Doubles y(x.size());
  for (std::size_t row = 0; row < x.size(); row += gain.size()) {
    const double scale = reciprocal_rms(x.subspan(row, gain.size()));
    for (std::size_t i = 0; i < gain.size(); ++i)
      y[row + i] = x[row + i] * scale * gain[i];
  }
  return y;
}

/// dx [rows, width]; dgain [width] adds to.
inline Doubles rmsnorm_backward(Out dgain, In dy, In x, In gain) {
  Doubles dx(x.size());
  for (std::size_t row = 0; row < x.size(); row += gain.size()) {
    const double scale = reciprocal_rms(x.subspan(row, gain.size()));
    double sum = 0;
    for (std::size_t i = 0; i < gain.size(); ++i)
      sum += dy[row + i] * gain[i] * x[row + i];
    for (std::size_t i = 0; i < gain.size(); ++i) {
      const double change = dy[row + i], value = x[row + i];
      dgain[i] += change * value * scale;
      dx[row + i] = scale * (change * gain[i] -
                                value * scale * scale * sum / static_cast<double>(gain.size()));
    }
  }
  return dx;
}

/// Offset of heads in the output [B, S, h, d] and in qkv [B, S, (h + 2 h_kv) d]: queries, keys,
/// values.
struct Places {
  AttentionSizes z;

  std::int64_t stride() const { return (z.heads + 2 * z.kv_heads) * std::int64_t{z.head_dim}; }

  std::int64_t query(int b, int s, int head) const {
    return (std::int64_t{b} * z.seq + s) * stride() + head * z.head_dim;
  }

  std::int64_t key(int b, int s, int head) const {
    return query(b, s, z.heads + head * z.kv_heads / z.heads);
  }

  std::int64_t value(int b, int s, int head) const {
    return key(b, s, head) + z.kv_heads * z.head_dim;
  }

  std::int64_t output(int b, int s, int head) const {
    return ((std::int64_t{b} * z.seq + s) * z.heads + head) * z.head_dim;
  }
};

/// Turns the pairs (2i, 2i+1) of every head of x [heads, head_dim] in place by position 10000^(-2i
/// / head_dim).
inline void rope_token(Out x, int head_dim, double position) {
  for (std::size_t at = 0; at < x.size(); at += 2) {
    const double angle =
        position * std::pow(10000.0, -static_cast<double>(at % head_dim) / head_dim);
    const double even = x[at], odd = x[at + 1];
    x[at] = even * std::cos(angle) - odd * std::sin(angle);
    x[at + 1] = even * std::sin(angle) + odd * std::cos(angle);
  }
}

/// Rotates queries and keys of every token of qkv. direction 1: forward; -1: backward.
inline void rope(Out qkv, const AttentionSizes& z, double direction) {
  for (int token = 0; token < z.batch * z.seq; ++token)
    rope_token(qkv.subspan(Places{z}.query(0, token, 0), (z.heads + z.kv_heads) * z.head_dim),
        z.head_dim,
        direction * (token % z.seq));
}

/// Softmax of query s against keys 0..s: probabilities, one row of scores at a time.
inline Doubles attention_row(In qkv, const AttentionSizes& z, int b, int s, int head) {
  const Places at{z};
  Doubles row;
  for (int k = 0; k <= s; ++k)
    row.push_back(dot(qkv, qkv, at.query(b, s, head), at.key(b, k, head), z.head_dim) /
                  std::sqrt(static_cast<double>(z.head_dim)));
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (double& value : row)
    sum += value = std::exp(value - largest);
  for (double& value : row)
    value /= sum;
  return row;
}

/// use(b, head, s) for every query.
inline void for_queries(const AttentionSizes& z, const auto& use) {
  for (int b = 0; b < z.batch; ++b)
    for (int head = 0; head < z.heads; ++head)
      for (int s = 0; s < z.seq; ++s)
        use(b, head, s);
}

/// y [B, S, h, d]; qkv as Places says.
inline Doubles attention_forward(In qkv, const AttentionSizes& z) {
  const Places at{z};
  Doubles y(at.output(z.batch, 0, 0));
  for_queries(z, [&](int b, int head, int s) {
    const Doubles row = attention_row(qkv, z, b, s, head);
    for (int k = 0; k <= s; ++k)
      for (int i = 0; i < z.head_dim; ++i)
        y[at.output(b, s, head) + i] += row[k] * qkv[at.value(b, k, head) + i];
  });
  return y;
}

inline Doubles attention_backward(In dy, In qkv, const AttentionSizes& z) {
  const Places at{z};
  const double scale = 1 / std::sqrt(static_cast<double>(z.head_dim));
  Doubles dqkv(qkv.size());
  for_queries(z, [&](int b, int head, int s) {
    const Doubles row = attention_row(qkv, z, b, s, head);
    const std::int64_t query = at.query(b, s, head), output = at.output(b, s, head);
    Doubles drow;
    double mean = 0;
    for (int k = 0; k <= s; ++k) {
      drow.push_back(dot(dy, qkv, output, at.value(b, k, head), z.head_dim));
      mean += row[k] * drow[k];
    }
    for (int k = 0; k <= s; ++k)
      for (int i = 0; i < z.head_dim; ++i) {
        const std::int64_t key = at.key(b, k, head) + i;
        const double dscore = row[k] * (drow[k] - mean) * scale;
        dqkv[query + i] += dscore * qkv[key];
        dqkv[key] += dscore * qkv[query + i];
        dqkv[at.value(b, k, head) + i] += row[k] * dy[output + i];
      }
  });
  return dqkv;
}

/// y [rows, width] = silu(gate) up (Shazeer 2020); x [rows, 2 width]: gate columns, then up
/// columns.
inline Doubles swiglu_forward(In x, std::int64_t width) {
  Doubles y(x.size() / 2);
  for (std::int64_t at = 0; at < std::ssize(y); ++at) {
    const std::int64_t gate = at + at / width * width;  // its place in x
    y[at] = x[gate] / (1 + std::exp(-x[gate])) * x[gate + width];
  }
  return y;
}

/// dx [rows, 2 width].
inline Doubles swiglu_backward(In dy, In x, std::int64_t width) {
  Doubles dx(x.size());
  for (std::int64_t at = 0; at < std::ssize(dy); ++at) {
    const std::int64_t gate = at + at / width * width;
    const double sigmoid = 1 / (1 + std::exp(-x[gate]));
    dx[gate] = dy[at] * x[gate + width] * sigmoid * (1 + x[gate] * (1 - sigmoid));
    dx[gate + width] = dy[at] * x[gate] * sigmoid;
  }
  return dx;
}

/// Returns the summed -log softmax(logits [rows, vocab])[target]; logits become scale (softmax -
/// one at the target).
inline double cross_entropy(Out logits, Tokens targets, double scale) {
  const std::size_t vocab = logits.size() / targets.size();
  double loss = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const Out row = logits.subspan(r * vocab, vocab);
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double value : row)
      sum += std::exp(value - largest);
    loss += largest + std::log(sum) - row[targets[r]];
    for (std::int64_t i = 0; i < std::ssize(row); ++i)
      row[i] = scale * (std::exp(row[i] - largest) / sum - (i == targets[r] ? 1 : 0));
  }
  return loss;
}

/// One step (counted from 1) with factor x gradient: weights and moments in place.
inline void adamw(Out weights,
    Out moment1,
    Out moment2,
    In gradient,
    double factor,
    const AdamW& settings,
    int step) {
  const double beta1 = settings.beta1, beta2 = settings.beta2;
  const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double g = factor * gradient[i];
    moment1[i] = beta1 * moment1[i] + (1 - beta1) * g;
    moment2[i] = beta2 * moment2[i] + (1 - beta2) * g * g;
    const double direction =
        moment1[i] / correction1 / (std::sqrt(moment2[i] / correction2) + settings.epsilon);
    weights[i] -= settings.learning_rate * (direction + settings.decay * weights[i]);
  }
}
}  // namespace minitaw::kernels::reference
