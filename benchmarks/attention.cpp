// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "base/error.hpp"
#include "kernels/kernels.hpp"
#include "layers.hpp"
#include "values.hpp"

namespace minitaw::bench {
namespace {
using kernels::Attention;
using kernels::AttentionSizes;
using Row = std::vector<double>;

double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

void add_times(Row& sum, double factor, const Row& more) {
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] += factor * more[i];
}

/// Memory of attention at one shape, and single rows of it in double precision: what a sampled
/// token and head must come to. A row costs time in proportion to the sequence, so long ones can be
/// checked as well.
template <class E>
struct Buffers {
  Buffers(const AttentionSizes& sizes, Attention chosen)
      : z(sizes),
        kernel(chosen),
        qkv(tokens(), (z.heads + 2 * z.kv_heads) * z.head_dim, {.scale = 4}),
        dqkv(tokens(), qkv.cols()),
        y(tokens(), z.heads * z.head_dim),
        dy(tokens(), y.cols()),
        lse(std::int64_t{z.batch} * z.heads, z.seq),
        delta(lse.rows(), z.seq) {
    kernels::attention_prepare<E>(ExecutionSpace(), z, kernel);
  }

  void forward() const {
    kernels::attention_forward<E>(
        ExecutionSpace(), {y.matrix(), lse.vector(), qkv.matrix(), z}, kernel);
  }

  void backward() const {
    kernels::attention_backward<E>(ExecutionSpace(),
        {.dqkv = dqkv.matrix(),
            .delta = delta.vector(),
            .dy = dy.matrix(),
            .qkv = qkv.matrix(),
            .y = y.matrix(),
            .lse = lse.vector(),
            .sizes = z},
        kernel);
  }

  [[nodiscard]] std::int64_t tokens() const { return std::int64_t{z.batch} * z.seq; }

  /// Where heads are in a row of qkv; a query head reads key/value head head / group.
  [[nodiscard]] std::int64_t key_column(int kv_head) const {
    return std::int64_t{z.heads + kv_head} * z.head_dim;
  }

  [[nodiscard]] std::int64_t value_column(int kv_head) const {
    return key_column(z.kv_heads + kv_head);
  }

  /// d values of a row, from a column on.
  [[nodiscard]] Row given(const Values<E>& values, std::int64_t row, std::int64_t column) const {
    Row found;
    for (int i = 0; i < z.head_dim; ++i)
      found.push_back(values.given(row, column + i));
    return found;
  }

  [[nodiscard]] Row part(const Row& row, std::int64_t column) const {
    return {row.begin() + column, row.begin() + column + z.head_dim};
  }

  [[nodiscard]] Row query(std::int64_t t, int head) const {
    return given(qkv, t, std::int64_t{head} * z.head_dim);
  }

  [[nodiscard]] Row slope(std::int64_t t, int head) const {
    return given(dy, t, std::int64_t{head} * z.head_dim);
  }

  [[nodiscard]] Row key(std::int64_t t, int head) const {
    return given(qkv, t, key_column(head / z.group()));
  }

  [[nodiscard]] Row value(std::int64_t t, int head) const {
    return given(qkv, t, value_column(head / z.group()));
  }

  [[nodiscard]] double score(std::int64_t q, std::int64_t k, int head) const {
    return dot(query(q, head), key(k, head)) / std::sqrt(double(z.head_dim));
  }

  [[nodiscard]] std::int64_t begin(std::int64_t token) const {
    return token - token % z.seq;
  }  ///< of its sequence

  [[nodiscard]] double error_of_forward() const {
    Comparison of_y, of_lse;
    for (const std::int64_t token : samples(tokens(), 8))
      for (const std::int64_t sampled : samples(z.heads, 2)) {
        const int head = static_cast<int>(sampled);
        Row scores, sum(static_cast<std::size_t>(z.head_dim));
        for (std::int64_t k = begin(token); k <= token; ++k)
          scores.push_back(score(token, k, head));
        const double largest = std::ranges::max(scores);
        double weights = 0;
        for (std::int64_t k = begin(token); k <= token; ++k) {
          const double weight =
              std::exp(scores[static_cast<std::size_t>(k - begin(token))] - largest);
          weights += weight;
          add_times(sum, weight, value(k, head));
        }
        for (double& element : sum)
          element /= weights;
        of_y.add(part(y.row(token), std::int64_t{head} * z.head_dim), sum);
        of_lse.add(lse.row(token / z.seq * z.heads + head)[static_cast<std::size_t>(token % z.seq)],
            largest + std::log(weights));
      }
    return std::max(of_y.error(), of_lse.error());
  }

  /// With y and lse as the forward kernel left them.
  [[nodiscard]] double error_of_backward() const {
    const std::vector<E> outputs = y.all();           // [T, h d]
    const std::vector<float> statistics = lse.all();  // [B h, S]
    // probability of a score, and its gradient
    const auto slopes = [&](std::int64_t q, std::int64_t k, int head) {
      const Row change = slope(q, head);
      const E* const output = outputs.data() + (q * z.heads + head) * z.head_dim;
      double mean = 0;
      for (int i = 0; i < z.head_dim; ++i)
        mean += change[static_cast<std::size_t>(i)] * to_double(output[i]);
      const std::int64_t row = (q / z.seq * z.heads + head) * z.seq + q % z.seq;
      const double probability =
          std::exp(score(q, k, head) - double{statistics[static_cast<std::size_t>(row)]});
      return std::pair(probability,
          probability * (dot(change, value(k, head)) - mean) / std::sqrt(double(z.head_dim)));
    };
    Comparison of_queries, of_keys, of_values;
    for (const std::int64_t token : samples(tokens(), 6)) {
      const Row row = dqkv.row(token);
      const Row zeros(static_cast<std::size_t>(z.head_dim));
      for (const std::int64_t head : samples(z.heads, 2)) {
        Row dq = zeros;
        for (std::int64_t k = begin(token); k <= token; ++k)
          add_times(
              dq, slopes(token, k, static_cast<int>(head)).second, key(k, static_cast<int>(head)));
        of_queries.add(part(row, head * z.head_dim), dq);
      }
      // all later queries of the heads that read it have a share in the gradients of a key and its
      // value
      for (const std::int64_t kv_head : samples(z.kv_heads, 2)) {
        Row dk = zeros, dv = zeros;
        for (int head = static_cast<int>(kv_head) * z.group(); head < (kv_head + 1) * z.group();
            ++head)
          for (std::int64_t q = token; q < begin(token) + z.seq; ++q) {
            const auto [probability, change] = slopes(q, token, head);
            add_times(dk, change, query(q, head));
            add_times(dv, probability, slope(q, head));
          }
        of_keys.add(part(row, key_column(static_cast<int>(kv_head))), dk);
        of_values.add(part(row, value_column(static_cast<int>(kv_head))), dv);
      }
    }
    return std::max({of_queries.error(), of_keys.error(), of_values.error()});
  }

  AttentionSizes z;
  Attention kernel;
  Values<E> qkv, dqkv, y, dy;
  Values<float> lse, delta;
};

/// Causal: half of the square and the diagonal. Forward 2 products with the scores, backward 5.
double flops(const AttentionSizes& z, int products) {
  return products * static_cast<double>(z.seq) * (z.seq + 1.0) * z.head_dim * z.heads * z.batch;
}

template <class E>
void add_version(Kernels& kernels, const AttentionSizes& z, Attention kernel) {
  const std::string name =
                        "attention/" + kernels::name_of(kernel) + "/" + model::name_of(dtype_of<E>),
                    shape = fmt::format("B={} S={} heads={}/{} d={}",
                        z.batch,
                        z.seq,
                        z.heads,
                        z.kv_heads,
                        z.head_dim);
  const double t = static_cast<double>(z.batch) * z.seq, y = t * z.heads * z.head_dim,
               qkv = t * (z.heads + 2 * z.kv_heads) * z.head_dim, lse = 4 * t * z.heads,
               e = bytes_of<E>;
  // vendors round probabilities to bf16 before they multiply with them
  const double near = std::is_same_v<E, Bf16> ? 3e-2 : tolerance<E>;
  add_kernel(kernels,
      name + "/forward",
      shape,
      dtype_of<E>,
      {flops(z, 2), e * (qkv + y) + lse},
      near,
      [=] {
        const Buffers<E> b(z, kernel);
        return Problem{[=] { b.y.poison(), b.lse.poison(); },
            [=] { b.forward(); },
            [=] { return b.error_of_forward(); }};
      });
  add_kernel(kernels,
      name + "/backward",
      shape,
      dtype_of<E>,
      {flops(z, 5), e * (2 * qkv + 2 * y) + lse},
      near,
      [=] {
        const Buffers<E> b(z, kernel);
        b.forward();
        return Problem{[=] { b.dqkv.poison(), b.delta.poison(); },
            [=] { b.backward(); },
            [=] { return b.error_of_backward(); }};
      });
}

/// Whether this build has it, for this shape.
template <class E>
bool possible(Attention kernel, const AttentionSizes& z) {
  try {
    return kernels::resolve_attention<E>(kernel, z) == kernel;
  } catch (const InputError&) {
    return false;
  }
}
}  // namespace

/// The portable kernel is a reference, so slow that long sequences would take all the time.
void add_attention(Kernels& kernels, const Shape& s) {
  for (const Attention kernel : {Attention::host, Attention::portable, Attention::cudnn}) {
    const std::int64_t longest = kernel == Attention::portable ? 2048 : s.seq;
    const AttentionSizes z{static_cast<int>(s.micro_batch),
        static_cast<int>(std::min(s.seq, longest)),
        s.heads,
        s.kv_heads,
        static_cast<int>(s.head_dim())};
    model::with_element(s.dtype, [&]<class E>(E) {
      if (possible<E>(kernel, z))
        add_version<E>(kernels, z, kernel);
    });
  }
}
}  // namespace minitaw::bench
