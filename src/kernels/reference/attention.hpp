#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/types.hpp"

namespace minitaw::kernels::reference {

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

}  // namespace minitaw::kernels::reference
