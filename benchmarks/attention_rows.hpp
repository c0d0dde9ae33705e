#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernels.hpp"
#include "values.hpp"

/// Single rows of attention in double precision: what a sampled token and head must come to. A row costs time
/// in proportion to the sequence, so long ones can be checked as well.
namespace minitaw::bench {

using kernels::AttentionSizes;

/// Where heads are in a row of qkv.
struct HeadPlaces {
  explicit HeadPlaces(const AttentionSizes& sizes) : z(sizes), scale(1 / std::sqrt(double(z.head_dim))) {}

  [[nodiscard]] std::int64_t query(int head) const { return std::int64_t{head} * z.head_dim; }
  [[nodiscard]] std::int64_t key(int kv_head) const { return query(z.heads + kv_head); }
  [[nodiscard]] std::int64_t value(int kv_head) const { return query(z.heads + z.kv_heads + kv_head); }
  [[nodiscard]] int kv_head(int head) const { return head / z.group(); }

  AttentionSizes z;
  double scale;
};

/// d values of a row, from a column on.
template <class E>
std::vector<double> part(const Values<E>& values, std::int64_t row, std::int64_t col, int count) {
  std::vector<double> found;
  for (int i = 0; i < count; ++i) found.push_back(values.given(row, col + i));
  return found;
}
inline std::vector<double> part(const std::vector<double>& row, std::int64_t col, int count) {
  return {row.begin() + col, row.begin() + col + count};
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
inline void add_times(std::vector<double>& sum, double factor, const std::vector<double>& more) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * more[i];
}

/// A few heads of all.
inline std::vector<int> sampled_heads(int count) {
  std::vector<int> heads;
  for (const std::int64_t head : samples(count, 2)) heads.push_back(static_cast<int>(head));
  return heads;
}

/// y of one token and head, and the log-sum-exp of its scores.
template <class E>
std::pair<std::vector<double>, double> attention_row(const HeadPlaces& at, const Values<E>& qkv,
                                                     std::int64_t token, int head) {
  const int d = at.z.head_dim, kv = at.kv_head(head);
  const std::int64_t first = token - token % at.z.seq;  // of its sequence
  const std::vector<double> query = part(qkv, token, at.query(head), d);
  std::vector<double> scores;
  for (std::int64_t k = first; k <= token; ++k)
    scores.push_back(at.scale * dot(query, part(qkv, k, at.key(kv), d)));
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> y(static_cast<std::size_t>(d));
  double sum = 0;
  for (std::int64_t k = first; k <= token; ++k) {
    const double weight = std::exp(scores[static_cast<std::size_t>(k - first)] - largest);
    sum += weight;
    add_times(y, weight, part(qkv, k, at.value(kv), d));
  }
  for (double& value : y) value /= sum;
  return {y, largest + std::log(sum)};
}

template <class E>
double error_of_forward(const AttentionSizes& z, const Values<E>& y, const Values<float>& lse,
                        const Values<E>& qkv) {
  const HeadPlaces at(z);
  Comparison of_y, of_lse;
  for (const std::int64_t token : samples(y.rows(), 8))
    for (const int head : sampled_heads(z.heads)) {
      const auto [expected, expected_lse] = attention_row(at, qkv, token, head);
      of_y.add(part(y.row(token), at.query(head), z.head_dim), expected);
      const std::vector<double> found = lse.row(token / z.seq * z.heads + head);
      of_lse.add(found[static_cast<std::size_t>(token % z.seq)], expected_lse);
    }
  return std::max(of_y.error(), of_lse.error());
}

/// The backward kernel's inputs, y and lse as the forward kernel left them, and its formula for one score.
template <class E>
class AttentionSlopes {
public:
  AttentionSlopes(const AttentionSizes& z, const Values<E>& dy, const Values<E>& qkv, const Values<E>& y,
                  const Values<float>& lse)
      : at_(z), dy_(dy), qkv_(qkv), y_(y.all()), lse_(lse.all()) {}

  [[nodiscard]] std::vector<double> of_query(std::int64_t token, int head) const {
    std::vector<double> dq(static_cast<std::size_t>(at_.z.head_dim));
    for (std::int64_t k = token - token % at_.z.seq; k <= token; ++k)
      add_times(dq, score(token, k, head).slope, key(k, head));
    return dq;
  }
  /// Gradients of a key and its value: all later queries of the heads that read it have a share.
  [[nodiscard]] std::pair<std::vector<double>, std::vector<double>> of_key(std::int64_t token,
                                                                           int kv_head) const {
    std::vector<double> dk(static_cast<std::size_t>(at_.z.head_dim)), dv(dk);
    const std::int64_t end = token - token % at_.z.seq + at_.z.seq;
    for (int head = kv_head * at_.z.group(); head < (kv_head + 1) * at_.z.group(); ++head)
      for (std::int64_t q = token; q < end; ++q) {
        const Score s = score(q, token, head);
        add_times(dk, s.slope, query(q, head));
        add_times(dv, s.probability, part(dy_, q, at_.query(head), at_.z.head_dim));
      }
    return {dk, dv};
  }

private:
  struct Score {
    double probability, slope;
  };
  [[nodiscard]] std::vector<double> query(std::int64_t token, int head) const {
    return part(qkv_, token, at_.query(head), at_.z.head_dim);
  }
  [[nodiscard]] std::vector<double> key(std::int64_t token, int head) const {
    return part(qkv_, token, at_.key(at_.kv_head(head)), at_.z.head_dim);
  }
  [[nodiscard]] Score score(std::int64_t q, std::int64_t k, int head) const {
    const int d = at_.z.head_dim;
    const std::vector<double> dy = part(dy_, q, at_.query(head), d);
    const E* const y = y_.data() + q * at_.query(at_.z.heads) + at_.query(head);
    double mean = 0;
    for (int i = 0; i < d; ++i) mean += dy[static_cast<std::size_t>(i)] * to_double(y[i]);
    const std::int64_t row = q / at_.z.seq * at_.z.heads + head;
    const double lse = double{lse_[static_cast<std::size_t>(row * at_.z.seq + q % at_.z.seq)]};
    const double probability = std::exp(at_.scale * dot(query(q, head), key(k, head)) - lse);
    const double change = dot(dy, part(qkv_, k, at_.value(at_.kv_head(head)), d));
    return {probability, at_.scale * probability * (change - mean)};
  }

  HeadPlaces at_;
  const Values<E>&dy_, &qkv_;
  std::vector<E> y_;        ///< [T, h d]
  std::vector<float> lse_;  ///< [B h, S]
};

template <class E>
double error_of_backward(const AttentionSizes& z, const Values<E>& dqkv, const Values<E>& dy,
                         const Values<E>& qkv, const Values<E>& y, const Values<float>& lse) {
  const HeadPlaces at(z);
  const AttentionSlopes<E> slopes(z, dy, qkv, y, lse);
  Comparison of_queries, of_keys, of_values;
  for (const std::int64_t token : samples(dqkv.rows(), 6)) {
    const std::vector<double> row = dqkv.row(token);
    for (const int head : sampled_heads(z.heads))
      of_queries.add(part(row, at.query(head), z.head_dim), slopes.of_query(token, head));
    for (const int head : sampled_heads(z.kv_heads)) {
      const auto [dk, dv] = slopes.of_key(token, head);
      of_keys.add(part(row, at.key(head), z.head_dim), dk);
      of_values.add(part(row, at.value(head), z.head_dim), dv);
    }
  }
  return std::max({of_queries.error(), of_keys.error(), of_values.error()});
}

}  // namespace minitaw::bench
