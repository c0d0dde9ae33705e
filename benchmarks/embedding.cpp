#include "kernels/kernels.hpp"

#include <fmt/format.h>

#include <cmath>

#include "families.hpp"
#include "model/data.hpp"
#include "model/layout.hpp"
#include "values.hpp"

namespace minitaw::bench {

namespace {

struct Tokens {
  explicit Tokens(const Shape& s) : values(1, s.tokens(), {.scale = static_cast<float>(s.vocab)}) {}
  [[nodiscard]] std::int64_t at(std::int64_t t) const {
    return static_cast<std::int64_t>(values.given(0, t));
  }
  [[nodiscard]] kernels::TokensIn vector() const { return values.vector(); }
  [[nodiscard]] std::int64_t count() const { return values.cols(); }

  Values<std::int32_t> values;
};

template <class E>
Problem forward(const Shape& s) {
  const ExecutionSpace exec;
  const Tokens tokens(s);
  const Values<E> table(s.vocab, s.hidden), x(s.tokens(), s.hidden);
  return {.reset = [=] { x.poison(); },
          .run = [=] { kernels::embedding_forward<E>(exec, x.matrix(), table.matrix(), tokens.vector()); },
          .error =
              [=] {
                return error_of_rows(x, [&](std::int64_t row) { return table.given_row(tokens.at(row)); });
              }};
}

/// Positions by token, as the step prepares them.
struct Order {
  using View = Kokkos::View<std::int32_t*, kernels::MemorySpace>;

  Order(const Tokens& tokens, std::int64_t vocab) {
    std::vector<std::int32_t> given, by_token(static_cast<std::size_t>(tokens.count())),
        begins(static_cast<std::size_t>(model::most_segments(vocab, tokens.count())));
    for (std::int64_t t = 0; t < tokens.count(); ++t)
      given.push_back(static_cast<std::int32_t>(tokens.at(t)));
    begins.resize(model::sort_positions(by_token, begins, given, vocab));
    positions = on_device(by_token);
    segments = on_device(begins);
  }
  static View on_device(const std::vector<std::int32_t>& values) {
    const Kokkos::View<const std::int32_t*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(
        values.data(), values.size());
    const View device(Kokkos::view_alloc("benchmark order", Kokkos::WithoutInitializing), values.size());
    Kokkos::deep_copy(device, host);
    return device;
  }
  static kernels::TokensIn in(const View& view) { return kernels::TokensIn(view.data(), view.extent(0)); }

  View positions, segments;
};

template <class E>
struct Backward {
  explicit Backward(const Shape& s)
      : tokens(s), order(tokens, s.vocab), dx(s.tokens(), s.hidden), dtable(s.vocab, s.hidden) {}

  void run() const {
    kernels::embedding_backward<E>(exec, dtable.matrix(), dx.matrix(), tokens.vector(),
                                   Order::in(order.positions), Order::in(order.segments));
  }
  [[nodiscard]] std::vector<double> expected(std::int64_t token) const {
    std::vector<double> sum = dtable.given_row(token);
    for (std::int64_t t = 0; t < tokens.count(); ++t) {
      if (tokens.at(t) != token) continue;
      const std::vector<double> slope = dx.given_row(t);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += slope[i];
    }
    return sum;
  }
  /// Rows of tokens that occur, and some of any.
  [[nodiscard]] double error() const {
    Comparison found;
    for (const std::int64_t t : samples(tokens.count(), 8))
      found.add(dtable.row(tokens.at(t)), expected(tokens.at(t)));
    for (const std::int64_t token : samples(dtable.rows(), 4)) found.add(dtable.row(token), expected(token));
    return found.error();
  }

  ExecutionSpace exec;
  Tokens tokens;
  Order order;
  Values<E> dx;
  Values<float> dtable;
};

template <class E>
Problem backward(const Shape& s) {
  const Backward<E> b(s);
  return {.reset = [=] { b.dtable.reset(); }, .run = [=] { b.run(); }, .error = [=] { return b.error(); }};
}

/// How many different ones there are among T random tokens of V.
double expected_distinct(double tokens, double vocab) {
  return vocab * -std::expm1(tokens * std::log1p(-1 / std::max(vocab, 1 + 1e-9)));
}

}  // namespace

void add_embedding(Kernels& kernels, const Shape& s) {
  const auto t = static_cast<double>(s.tokens()), h = static_cast<double>(s.hidden);
  const double distinct = expected_distinct(t, static_cast<double>(s.vocab));
  const std::string name = "embedding/" + model::name_of(s.dtype);
  const std::string shape = fmt::format("T={} H={} V={}", s.tokens(), s.hidden, s.vocab);
  model::with_element(s.dtype, [&]<class E>(E) {
    const double e = bytes_of<E>;
    kernels.push_back(
        {name + "/forward", shape, s.dtype, {0, e * h * (t + distinct) + 4 * t}, tolerance<E>, [=] {
           return forward<E>(s);
         }});
    kernels.push_back({name + "/backward",
                       shape,
                       s.dtype,
                       {t * h, e * h * t + 8 * h * distinct + 4 * (t + 2 * distinct)},
                       tolerance<float>,
                       [=] { return backward<E>(s); }});
  });
}

}  // namespace minitaw::bench
