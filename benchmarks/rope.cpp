#include "kernels/kernels.hpp"

#include <fmt/format.h>

#include "families.hpp"
#include "model/layout.hpp"
#include "values.hpp"

namespace minitaw::bench {

namespace {

template <class E>
struct Rope {
  explicit Rope(const Shape& s)
      : heads(s.heads + s.kv_heads), head_dim(s.head_dim()), qkv(s.tokens(), s.qkv()),
        table(s.seq, head_dim) {
    kernels::rope_table(exec, table.matrix());
    Kokkos::fence();
  }
  /// Queries and keys of a row turned by its position, values as they were.
  [[nodiscard]] std::vector<double> expected(std::int64_t row, double direction) const {
    std::vector<double> x = qkv.given_row(row);
    for (std::int64_t pair = 0; pair < heads * head_dim / 2; ++pair) {
      const double exponent =
          -2.0 * static_cast<double>(pair % (head_dim / 2)) / static_cast<double>(head_dim);
      const double angle = direction * static_cast<double>(row % table.rows()) * std::pow(10000.0, exponent);
      double &even = x[static_cast<std::size_t>(2 * pair)], &odd = x[static_cast<std::size_t>(2 * pair + 1)];
      const double turned = even * std::cos(angle) - odd * std::sin(angle);
      odd = even * std::sin(angle) + odd * std::cos(angle);
      even = turned;
    }
    return x;
  }

  ExecutionSpace exec;
  int heads;
  std::int64_t head_dim;
  Values<E> qkv;
  Values<float> table;
};

template <class E>
Problem problem(const Shape& shape, bool forward) {
  const Rope<E> r(shape);
  const auto run = [=] {
    if (forward) kernels::rope_forward<E>(r.exec, r.qkv.matrix(), r.table.matrix(), r.heads);
    else kernels::rope_backward<E>(r.exec, r.qkv.matrix(), r.table.matrix(), r.heads);
  };
  const auto error = [=] {
    return error_of_rows(r.qkv, [&](std::int64_t row) { return r.expected(row, forward ? 1 : -1); });
  };
  return {.reset = [=] { r.qkv.reset(); }, .run = run, .error = error};
}

}  // namespace

void add_rope(Kernels& kernels, const Shape& s) {
  const auto turned = static_cast<double>(s.tokens() * (s.heads + s.kv_heads) * s.head_dim());
  const auto table = static_cast<double>(s.seq * s.head_dim());
  const std::string name = "rope/" + model::name_of(s.dtype);
  const std::string shape =
      fmt::format("B={} S={} heads={}+{} d={}", s.micro_batch, s.seq, s.heads, s.kv_heads, s.head_dim());
  model::with_element(s.dtype, [&]<class E>(E) {
    const Cost cost{3 * turned, bytes_of<E> * 2 * turned + 4 * table};
    for (const bool forward : {true, false})
      kernels.push_back({name + (forward ? "/forward" : "/backward"), shape, s.dtype, cost, tolerance<E>,
                         [=] { return problem<E>(s, forward); }});
  });
}

}  // namespace minitaw::bench
