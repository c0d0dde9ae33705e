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

/// What is measured: sequences of `sizes`, and the queries from `begin` on. From 0 on, all is in
/// the fused projection; later ones have keys and values, and float sums of their gradients, in
/// buffers of their own, as ranks that share a sequence do.
struct Form {
  AttentionSizes sizes;
  int begin = 0;

  [[nodiscard]] bool own_rows() const { return begin > 0; }

  [[nodiscard]] int queries() const { return sizes.seq - begin; }

  [[nodiscard]] std::int64_t kv_width() const {
    return std::int64_t{sizes.kv_heads} * sizes.head_dim;
  }

  /// Rows that a rank has.
  [[nodiscard]] AttentionSizes local() const {
    AttentionSizes z = sizes;
    z.seq = queries();
    return z;
  }

  [[nodiscard]] kernels::AttentionPart part() const {
    if (!own_rows())
      return sizes;
    return {local(), {0, queries(), begin}, {}, 2 * kv_width(), sizes.seq};
  }
};

/// Memory of attention of one form, and single rows of it in double precision: what a sampled
/// query or key and head must come to. A row costs time in proportion to the sequence, so long ones
/// can be checked as well.
template <class E>
struct Buffers {
  Buffers(const Form& wanted, Attention chosen)
      : form(wanted),
        z(form.local()),
        kernel(chosen),
        qkv(tokens(), (z.heads + 2 * z.kv_heads) * z.head_dim, {.scale = 4}),
        dqkv(tokens(), qkv.cols()),
        key_values(own_rows_of_keys(), 2 * form.kv_width(), {.scale = 4}),
        y(tokens(), z.heads * z.head_dim),
        dy(tokens(), y.cols()),
        lse(std::int64_t{z.batch} * z.heads, z.seq),
        delta(lse.rows(), z.seq),
        sums(own_rows_of_keys(), key_values.cols()) {
    kernels::attention_prepare<E>(ExecutionSpace(), form.part(), kernel);
  }

  void forward() const {
    kernels::attention_forward<E>(ExecutionSpace(),
        {y.matrix(), lse.vector(), qkv.matrix(), form.part(), pair_of<const E>(key_values)},
        kernel);
  }

  void backward() const {
    if (form.own_rows())
      kernels::attention_backward<E, float>(
          ExecutionSpace(), backward_into(pair_of<float>(sums)), kernel);
    else
      kernels::attention_backward<E>(
          ExecutionSpace(), backward_into(kernels::KeyValues<E>()), kernel);
  }

  template <class G>
  [[nodiscard]] kernels::AttentionBackward<E, G> backward_into(
      const kernels::KeyValues<G>& gradients) const {
    return {.dqkv = dqkv.matrix(),
        .delta = delta.vector(),
        .dy = dy.matrix(),
        .qkv = qkv.matrix(),
        .y = y.matrix(),
        .lse = lse.vector(),
        .part = form.part(),
        .key_values = pair_of<const E>(key_values),
        .gradient_sums = gradients};
  }

  template <class T>
  [[nodiscard]] kernels::KeyValues<T> pair_of(const auto& values) const {
    if (!form.own_rows())
      return {};
    T* const keys = values.vector().data();
    return {keys, keys + form.kv_width()};
  }

  void poison() const { dqkv.poison(), delta.poison(), sums.poison(); }

  [[nodiscard]] std::int64_t tokens() const { return std::int64_t{z.batch} * z.seq; }

  /// Of buffers of their own; one that is not used, for none.
  [[nodiscard]] std::int64_t own_rows_of_keys() const {
    return form.own_rows() ? std::int64_t{z.batch} * form.sizes.seq : 1;
  }

  /// Where the key or value of a head is in a row of qkv, or of the buffer of its own.
  [[nodiscard]] std::int64_t column(int kv_head, bool value) const {
    const int head = kv_head + (form.own_rows() ? 0 : z.heads) + (value ? z.kv_heads : 0);
    return std::int64_t{head} * z.head_dim;
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

  /// `k`: a row of keys, those of the sequences one after the other.
  [[nodiscard]] Row key(std::int64_t k, int head, bool value = false) const {
    return given(form.own_rows() ? key_values : qkv, k, column(head / z.group(), value));
  }

  [[nodiscard]] Row value(std::int64_t k, int head) const { return key(k, head, true); }

  [[nodiscard]] double score(std::int64_t q, std::int64_t k, int head) const {
    return dot(query(q, head), key(k, head)) / std::sqrt(double(z.head_dim));
  }

  /// The first key of a query's sequence, and its own, the last one that it sees.
  [[nodiscard]] std::int64_t first_key(std::int64_t q) const { return q / z.seq * form.sizes.seq; }

  [[nodiscard]] std::int64_t last_key(std::int64_t q) const {
    return first_key(q) + form.begin + q % z.seq;
  }

  [[nodiscard]] double error_of_forward() const {
    Comparison of_y, of_lse;
    for (const std::int64_t token : samples(tokens(), 8))
      for (const std::int64_t sampled : samples(z.heads, 2)) {
        const int head = static_cast<int>(sampled);
        const std::int64_t first = first_key(token);
        Row scores, sum(static_cast<std::size_t>(z.head_dim));
        for (std::int64_t k = first; k <= last_key(token); ++k)
          scores.push_back(score(token, k, head));
        const double largest = std::ranges::max(scores);
        double weights = 0;
        for (std::int64_t k = first; k <= last_key(token); ++k) {
          const double weight = std::exp(scores[static_cast<std::size_t>(k - first)] - largest);
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
    return std::max(error_of_queries(slopes), error_of_keys(slopes));
  }

  [[nodiscard]] double error_of_queries(const auto& slopes) const {
    Comparison of_queries;
    for (const std::int64_t token : samples(tokens(), 6)) {
      const Row row = dqkv.row(token);
      for (const std::int64_t sampled : samples(z.heads, 2)) {
        const int head = static_cast<int>(sampled);
        Row dq(static_cast<std::size_t>(z.head_dim));
        for (std::int64_t k = first_key(token); k <= last_key(token); ++k)
          add_times(dq, slopes(token, k, head).second, key(k, head));
        of_queries.add(part(row, sampled * z.head_dim), dq);
      }
    }
    return of_queries.error();
  }

  /// All later queries of the heads that read it have a share in the gradients of a key and its
  /// value.
  [[nodiscard]] double error_of_keys(const auto& slopes) const {
    Comparison of_keys, of_values;
    for (const std::int64_t k : samples(std::int64_t{z.batch} * form.sizes.seq, 6)) {
      const Row row = form.own_rows() ? sums.row(k) : dqkv.row(k);
      const std::int64_t first = k / form.sizes.seq * z.seq;  // query of its sequence
      for (const std::int64_t sampled : samples(z.kv_heads, 2)) {
        const int kv_head = static_cast<int>(sampled);
        Row dk(static_cast<std::size_t>(z.head_dim)), dv = dk;
        for (int head = kv_head * z.group(); head < (kv_head + 1) * z.group(); ++head)
          for (std::int64_t q = first; q < first + z.seq; ++q) {
            if (last_key(q) < k)
              continue;
            const auto [probability, change] = slopes(q, k, head);
            add_times(dk, change, query(q, head));
            add_times(dv, probability, slope(q, head));
          }
        of_keys.add(part(row, column(kv_head, false)), dk);
        of_values.add(part(row, column(kv_head, true)), dv);
      }
    }
    return std::max(of_keys.error(), of_values.error());
  }

  Form form;
  AttentionSizes z;  ///< of the rows here
  Attention kernel;
  Values<E> qkv, dqkv, key_values, y, dy;
  Values<float> lse, delta, sums;
};

/// Pairs of a query and a key that it sees, times their products with d: forward 2, backward 5.
double flops(const Form& form, int products) {
  const AttentionSizes& z = form.sizes;
  const double queries = form.queries();
  const double pairs = queries * (z.seq + form.begin + 1.0) / 2;
  return products * 2.0 * pairs * z.head_dim * z.heads * z.batch;
}

template <class E>
void add_version(Kernels& kernels, const Form& form, Attention kernel) {
  const AttentionSizes& z = form.sizes;
  const Layer layer{kernels,
      fmt::format("attention/{}/{}{}",
          kernels::name_of(kernel),
          model::name_of(dtype_of<E>),
          form.own_rows() ? "/prefix" : ""),
      fmt::format("B={} S={} heads={}/{} d={}{}",
          z.batch,
          z.seq,
          z.heads,
          z.kv_heads,
          z.head_dim,
          form.own_rows() ? fmt::format(" queries={}", form.queries()) : ""),
      dtype_of<E>};
  const double t = static_cast<double>(z.batch) * form.queries(), y = t * z.heads * z.head_dim,
               kv = 2.0 * z.batch * z.seq * static_cast<double>(form.kv_width()),
               lse = 4 * t * z.heads, e = bytes_of<E>, g = form.own_rows() ? 4 : e;
  // vendors round probabilities to bf16 before they multiply with them
  const double near = std::is_same_v<E, Bf16> ? 3e-2 : tolerance<E>;
  layer.add("/forward", {flops(form, 2), e * (2 * y + kv) + lse}, near, [=] {
    const Buffers<E> b(form, kernel);
    return Problem{[=] { b.y.poison(), b.lse.poison(); },
        [=] { b.forward(); },
        [=] { return b.error_of_forward(); }};
  });
  layer.add("/backward", {flops(form, 5), e * (4 * y + kv) + g * kv + lse}, near, [=] {
    const Buffers<E> b(form, kernel);
    b.forward();
    return Problem{
        [=] { b.poison(); }, [=] { b.backward(); }, [=] { return b.error_of_backward(); }};
  });
}

/// Whether this build has it, for this form.
template <class E>
bool possible(Attention kernel, const Form& form) {
  try {
    return kernels::resolve_attention<E>(kernel, {form.part()}).kernel == kernel;
  } catch (const InputError&) {
    return false;
  }
}
}  // namespace

/// The portable kernel is a reference, so slow that long sequences would take all the time. Whole
/// sequences, and the last quarter of them: the tail chunk of a rank of two.
void add_attention(Kernels& kernels, const Shape& s) {
  for (const Attention kernel : {Attention::host, Attention::portable, Attention::cudnn}) {
    const std::int64_t longest = kernel == Attention::portable ? 2048 : s.seq;
    const AttentionSizes z{static_cast<int>(s.micro_batch),
        static_cast<int>(std::min(s.seq, longest)),
        s.heads,
        s.kv_heads,
        static_cast<int>(s.head_dim())};
    for (const Form& form : {Form{z}, Form{z, z.seq - z.seq / 4}})
      model::with_element(s.dtype, [&]<class E>(E) {
        if (form.queries() > 0 && possible<E>(kernel, form))
          add_version<E>(kernels, form, kernel);
      });
  }
}
}  // namespace minitaw::bench
