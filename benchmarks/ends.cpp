// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"
#include "layers.hpp"
#include "model/data.hpp"
#include "model/plan.hpp"
#include "values.hpp"

/// What a step does before and after the blocks: embedding, loss and updates.
namespace minitaw::bench {
namespace {
namespace reference = kernels::reference;

template <class E>
struct Loss {
  Loss(std::int64_t rows, std::int64_t vocab)
      : logits(rows, vocab, {.scale = 8}),
        losses(1, rows),
        targets(1, rows, {.scale = static_cast<float>(vocab)}) {}

  void run() const {
    kernels::cross_entropy<E>(
        ExecutionSpace(), losses.vector(), logits.matrix(), targets.vector(), scale);
  }

  /// The one gradient of a row that is near -1 would hide all others: it is compared apart from
  /// them.
  [[nodiscard]] double error() const {
    Comparison of_losses, at_targets, elsewhere;
    const Row found_losses = losses.row(0);
    for (const std::int64_t row : samples(logits.rows(), 8)) {
      const std::int32_t target[] = {static_cast<std::int32_t>(targets.given(0, row))};
      Row expected = logits.given_row(row);
      const Row found = logits.row(row);
      const double loss = reference::cross_entropy(expected, target, double{scale});
      for (std::size_t i = 0; i < found.size(); ++i)
        (std::cmp_equal(i, target[0]) ? at_targets : elsewhere).add(found[i], expected[i]);
      of_losses.add(found_losses[row], loss);
    }
    return std::max(
        {of_losses.error(), at_targets.error(), logits.cols() > 1 ? elsewhere.error() : 0});
  }

  static constexpr float scale = 1e-3F;
  Values<E> logits;
  Values<double> losses;
  Values<std::int32_t> targets;
};

/// The step takes the loss in slices of tokens, so that not all logits exist at a time.
template <class E>
void add_loss_of(Kernels& kernels, const Shape& s) {
  const std::int64_t rows = model::loss_tile(s), vocab = s.vocab;
  const double t = rows, cells = rows * vocab;
  const Layer entropy{kernels,
      "cross_entropy/" + model::name_of(s.dtype),
      fmt::format("T={} V={}", rows, vocab),
      s.dtype};
  entropy.add("", {5 * cells, bytes_of<E> * 2 * cells + (8 + 4) * t}, tolerance<E>, [=] {
    const Loss<E> loss(rows, vocab);
    return Problem{[=] { loss.logits.reset(), loss.losses.poison(); },
        [=] { loss.run(); },
        [=] { return loss.error(); }};
  });
  const Layer sums{kernels, "sum_losses", fmt::format("T={}", rows), s.dtype};
  sums.add("", {t, 8 * t}, 1e-12, [=] {
    const Values<double> losses(1, rows), total(1, 1);
    const auto run = [=] {
      kernels::sum_losses(ExecutionSpace(), total.vector().data(), losses.vector(), 0.5);
    };
    const auto expected = [=](std::int64_t, std::int64_t) {
      return total.given(0) + 0.5 * sum_over(rows, [&](auto row) { return losses.given(0, row); });
    };
    return Problem{[=] { total.reset(); }, run, [=] { return error_of_elements(total, expected); }};
  });
}

/// Tokens of a micro-batch, and their positions by token, as the step prepares them.
struct Tokens {
  using View = Kokkos::View<std::int32_t*, kernels::MemorySpace>;

  explicit Tokens(const Shape& s) : values(1, s.tokens(), {.scale = static_cast<float>(s.vocab)}) {
    std::vector<std::int32_t> given, by_token(count()),
        begins(model::most_starts(s.vocab, count()));
    for (std::int64_t t = 0; t < count(); ++t)
      given.push_back(static_cast<std::int32_t>(at(t)));
    begins.resize(model::sort_positions(by_token, begins, given, s.vocab));
    positions = on_device(by_token);
    starts = on_device(begins);
  }

  static View on_device(const std::vector<std::int32_t>& list) {
    const Kokkos::View<const std::int32_t*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> host(
        list.data(), list.size());
    const View device(
        Kokkos::view_alloc("benchmark order", Kokkos::WithoutInitializing), list.size());
    Kokkos::deep_copy(device, host);
    return device;
  }

  [[nodiscard]] std::int64_t at(std::int64_t t) const {
    return static_cast<std::int64_t>(values.given(0, t));
  }

  [[nodiscard]] std::int64_t count() const { return values.cols(); }

  Values<std::int32_t> values;
  View positions, starts;
};

/// How many different ones there are among T random tokens of V.
double expected_distinct(double tokens, double vocab) {
  return vocab * -std::expm1(tokens * std::log1p(-1 / std::max(vocab, 1 + 1e-9)));
}

/// Rows of the gradient of tokens that occur, and some of any.
template <class E>
double error_of_table(const Tokens& tokens, const Values<float>& dtable, const Values<E>& dx) {
  Comparison found;
  const auto compare = [&](std::int64_t token) {
    Row sum = dtable.given_row(token);
    for (std::int64_t t = 0; t < tokens.count(); ++t)
      if (tokens.at(t) == token)
        sum = sum_of(std::move(sum), dx.given_row(t));
    found.add(dtable.row(token), sum);
  };
  for (const std::int64_t t : samples(tokens.count(), 8))
    compare(tokens.at(t));
  for (const std::int64_t token : samples(dtable.rows(), 4))
    compare(token);
  return found.error();
}

template <class E>
void add_embedding_of(Kernels& kernels, const Shape& s) {
  const double t = s.tokens(), h = s.hidden, distinct = expected_distinct(t, s.vocab),
               e = bytes_of<E>;
  const Layer layer{kernels,
      "embedding/" + model::name_of(s.dtype),
      fmt::format("T={} H={} V={}", s.tokens(), s.hidden, s.vocab),
      s.dtype};
  layer.add("/forward", {0, e * h * (t + distinct) + 4 * t}, tolerance<E>, [=] {
    const Tokens tokens(s);
    const Values<E> table(s.vocab, s.hidden), x(s.tokens(), s.hidden);
    const auto run = [=] {
      kernels::embedding_forward<E>(
          ExecutionSpace(), x.matrix(), table.matrix(), tokens.values.vector());
    };
    const auto expected = [=](std::int64_t row) { return table.given_row(tokens.at(row)); };
    return Problem{[=] { x.poison(); }, run, [=] { return error_of_rows(x, expected); }};
  });
  layer.add("/backward",
      {t * h, e * h * t + 8 * h * distinct + 4 * (t + 2 * distinct)},
      tolerance<float>,
      [=] {
        const Tokens tokens(s);
        const Values<E> dx(s.tokens(), s.hidden);
        const Values<float> dtable(s.vocab, s.hidden);
        const auto run = [=] {
          kernels::embedding_backward<E>(ExecutionSpace(),
              dtable.matrix(),
              dx.matrix(),
              tokens.values.vector(),
              tokens.positions,
              tokens.starts);
        };
        return Problem{
            [=] { dtable.reset(); }, run, [=] { return error_of_table(tokens, dtable, dx); }};
      });
}

/// The state of rows x cols weights, a first step of a large learning rate ahead. In fp32 the
/// weights are their own master, as in training.
template <class E>
struct AdamW {
  AdamW(std::int64_t rows, std::int64_t cols)
      : weights(own_master ? 1 : rows, own_master ? 1 : cols),
        master(rows, cols),
        m1(rows, cols),
        m2(rows, cols, {.scale = 1, .offset = 0.25F}),
        gradient(rows, cols) {}

  void reset() const { weights.poison(), master.reset(), m1.reset(), m2.reset(); }

  void run() const {
    kernels::Vector<E> rounded;
    if constexpr (own_master)
      rounded = master.vector();
    else
      rounded = weights.vector();
    kernels::adamw<E>(ExecutionSpace(),
        rounded,
        master.vector(),
        m1.vector(),
        m2.vector(),
        gradient.vector(),
        settings,
        1);
  }

  /// Of w, m1 and m2 (0, 1, 2).
  [[nodiscard]] double error_of(const auto& values, int which) const {
    return error_of_rows(values, [&](std::int64_t row) {
      Row state[] = {master.given_row(row), m1.given_row(row), m2.given_row(row)};
      reference::adamw(state[0], state[1], state[2], gradient.given_row(row), 1, settings, 1);
      return state[which];
    });
  }

  [[nodiscard]] double error() const {
    return std::max({error_of(master, 0),
        own_master ? 0 : error_of(weights, 0),
        error_of(m1, 1),
        error_of(m2, 2)});
  }

  static constexpr bool own_master = std::is_same_v<E, float>;
  static constexpr kernels::AdamW settings{.learning_rate = 0.1F};
  Values<E> weights;
  Values<float> master, m1, m2, gradient;
};

/// Over the weights of the four linear layers of a block.
template <class E>
void add_updates_of(Kernels& kernels, const Shape& s) {
  const std::int64_t cols = s.hidden, rows = model::block_matmul_parameters(s) / cols;
  const double n = rows * cols, rounded = AdamW<E>::own_master ? 0 : bytes_of<E>;
  const std::string shape = fmt::format("n={}", rows * cols), type = model::name_of(s.dtype);
  const Layer adamw{kernels, "adamw/" + type, shape, s.dtype};
  const Layer sum{kernels, "add/" + type, shape, s.dtype};
  adamw.add("",
      {16 * n, (7 * 4 + rounded) * n},
      std::max(tolerance<float>, rounded > 0 ? tolerance<E> : 0),
      [=] {
        const AdamW<E> a(rows, cols);
        return Problem{[=] { a.reset(); }, [=] { a.run(); }, [=] { return a.error(); }};
      });
  sum.add("", {n, (8 + bytes_of<E>)*n}, tolerance<float>, [=] {
    const Values<float> total(rows, cols);
    const Values<E> more(rows, cols);
    const auto expected = [=](std::int64_t row) {
      return sum_of(total.given_row(row), more.given_row(row));
    };
    return Problem{[=] { total.reset(); },
        [=] { kernels::add<E>(ExecutionSpace(), total.vector(), more.vector(), true); },
        [=] { return error_of_rows(total, expected); }};
  });
}
}  // namespace

void add_loss(Kernels& kernels, const Shape& s) {
  model::with_element(s.dtype, [&]<class E>(E) { add_loss_of<E>(kernels, s); });
}

void add_embedding(Kernels& kernels, const Shape& s) {
  model::with_element(s.dtype, [&]<class E>(E) { add_embedding_of<E>(kernels, s); });
}

void add_updates(Kernels& kernels, const Shape& s) {
  model::with_element(s.dtype, [&]<class E>(E) { add_updates_of<E>(kernels, s); });
}
}  // namespace minitaw::bench
