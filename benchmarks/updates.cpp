#include <fmt/format.h>

#include "families.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"
#include "model/layout.hpp"
#include "values.hpp"

namespace minitaw::bench {

namespace {

namespace reference = kernels::reference;

/// The state of rows x cols weights, a first step of a large learning rate ahead. In fp32 the weights are
/// their own master, as in training.
template <class E>
struct AdamW {
  AdamW(std::int64_t rows, std::int64_t cols)
      : weights(own_master ? 1 : rows, own_master ? 1 : cols), master(rows, cols), m1(rows, cols),
        m2(rows, cols, {.scale = 1, .offset = 0.25F}), gradient(rows, cols) {}

  void reset() const { weights.poison(), master.reset(), m1.reset(), m2.reset(); }
  void run() const {
    kernels::adamw<E>(exec, rounded(), master.vector(), m1.vector(), m2.vector(), gradient.vector(), step);
  }
  [[nodiscard]] kernels::Vector<E> rounded() const {
    if constexpr (own_master) return master.vector();
    else return weights.vector();
  }
  [[nodiscard]] double error() const {
    using Rows = std::vector<double>;
    const auto errors_of = [this](const auto& values, const auto& pick) {
      return error_of_rows(values, [&](std::int64_t row) {
        Rows w = master.given_row(row), first = m1.given_row(row), second = m2.given_row(row);
        reference::adamw(w, first, second, gradient.given_row(row), settings, 1);
        return pick(w, first, second);
      });
    };
    const auto weight = [](const Rows& w, const Rows&, const Rows&) { return w; };
    return std::max({errors_of(master, weight), own_master ? 0 : errors_of(weights, weight),
                     errors_of(m1, [](const Rows&, const Rows& first, const Rows&) { return first; }),
                     errors_of(m2, [](const Rows&, const Rows&, const Rows& second) { return second; })});
  }

  static constexpr bool own_master = std::is_same_v<E, float>;
  static constexpr kernels::AdamWStep step{0.1F, 0.9F, 0.95F, 1e-8F, 0.1F, 1 / (1 - 0.9F), 1 / (1 - 0.95F)};
  static constexpr reference::AdamWSettings settings{step.learning_rate, step.beta1, step.beta2, step.epsilon,
                                                     step.decay};
  ExecutionSpace exec;
  Values<E> weights;
  Values<float> master, m1, m2, gradient;
};

template <class E>
Problem adamw(std::int64_t rows, std::int64_t cols) {
  const AdamW<E> a(rows, cols);
  return {.reset = [=] { a.reset(); }, .run = [=] { a.run(); }, .error = [=] { return a.error(); }};
}

template <class E>
Problem add(std::int64_t rows, std::int64_t cols) {
  const ExecutionSpace exec;
  const Values<float> total(rows, cols);
  const Values<E> contribution(rows, cols);
  const auto error = [=] {
    return error_of_rows(total, [&](std::int64_t row) {
      std::vector<double> sum = total.given_row(row);
      for (std::int64_t col = 0; col < cols; ++col)
        sum[static_cast<std::size_t>(col)] += contribution.given(row, col);
      return sum;
    });
  };
  return {.reset = [=] { total.reset(); },
          .run = [=] { kernels::add<E>(exec, total.vector(), contribution.vector(), true); },
          .error = error};
}

}  // namespace

/// Over the weights of the four linear layers of a block.
void add_updates(Kernels& kernels, const Shape& s) {
  const std::int64_t cols = s.hidden, rows = model::block_matmul_parameters(s, 0) / cols;
  const auto n = static_cast<double>(rows * cols);
  const std::string shape = fmt::format("n={}", rows * cols), type = model::name_of(s.dtype);
  model::with_element(s.dtype, [&]<class E>(E) {
    const double rounded = AdamW<E>::own_master ? 0 : bytes_of<E>;
    kernels.push_back({"adamw/" + type,
                       shape,
                       s.dtype,
                       {16 * n, (7 * 4 + rounded) * n},
                       std::max(tolerance<float>, rounded > 0 ? tolerance<E> : 0),
                       [=] { return adamw<E>(rows, cols); }});
    kernels.push_back({"add/" + type, shape, s.dtype, {n, (8 + bytes_of<E>)*n}, tolerance<float>, [=] {
                         return add<E>(rows, cols);
                       }});
  });
}

}  // namespace minitaw::bench
