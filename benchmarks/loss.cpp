#include <fmt/format.h>

#include <utility>

#include "families.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"
#include "model/layout.hpp"
#include "model/plan.hpp"
#include "values.hpp"

namespace minitaw::bench {

namespace {

namespace reference = kernels::reference;

template <class E>
struct Loss {
  Loss(std::int64_t rows, std::int64_t vocab)
      : logits(rows, vocab, {.scale = 8}), losses(1, rows),
        targets(1, rows, {.scale = static_cast<float>(vocab)}) {}

  void run() const {
    kernels::cross_entropy<E>(exec, losses.vector(), logits.matrix(), targets.vector(), scale);
  }
  [[nodiscard]] std::int32_t target(std::int64_t row) const {
    return static_cast<std::int32_t>(targets.given(0, row));
  }
  [[nodiscard]] std::vector<double> expected_gradient(std::int64_t row) const {
    const std::int32_t wanted[] = {target(row)};
    std::vector<double> gradient(static_cast<std::size_t>(logits.cols()));
    reference::cross_entropy_backward(gradient, logits.given_row(row), wanted, double{scale}, logits.cols());
    return gradient;
  }
  [[nodiscard]] double expected_loss(std::int64_t row) const {
    const std::int32_t wanted[] = {target(row)};
    return reference::cross_entropy_forward(logits.given_row(row), wanted, logits.cols());
  }

  static constexpr float scale = 1e-3F;
  ExecutionSpace exec;
  Values<E> logits;
  Values<double> losses;
  Values<std::int32_t> targets;
};

/// The one gradient of a row that is near -1 would hide all others: it is compared apart from them.
template <class E>
double error_of_gradient(const Loss<E>& loss) {
  Comparison at_targets, elsewhere;
  for (const std::int64_t row : samples(loss.logits.rows(), 8)) {
    const std::vector<double> found = loss.logits.row(row), expected = loss.expected_gradient(row);
    for (std::size_t i = 0; i < found.size(); ++i)
      (std::cmp_equal(i, loss.target(row)) ? at_targets : elsewhere).add(found[i], expected[i]);
  }
  return std::max(at_targets.error(), loss.logits.cols() > 1 ? elsewhere.error() : 0);
}

template <class E>
Problem cross_entropy(std::int64_t rows, std::int64_t vocab) {
  const Loss<E> loss(rows, vocab);
  const auto error = [=] {
    const auto value = [&](std::int64_t, std::int64_t row) { return loss.expected_loss(row); };
    return std::max(error_of_gradient(loss), error_of_elements(loss.losses, value));
  };
  return {.reset = [=] { loss.logits.reset(), loss.losses.poison(); },
          .run = [=] { loss.run(); },
          .error = error};
}

Problem sum_losses(std::int64_t rows) {
  const ExecutionSpace exec;
  const Values<double> losses(1, rows), total(1, 1);
  return {.reset = [=] { total.reset(); },
          .run = [=] { kernels::sum_losses(exec, total.vector().data(), losses.vector(), 0.5); },
          .error =
              [=] {
                double sum = 0;
                for (const double loss : losses.given_row(0)) sum += loss;
                return error_of_elements(
                    total, [&](std::int64_t, std::int64_t) { return total.given(0) + 0.5 * sum; });
              }};
}

}  // namespace

/// The step takes the loss in slices of tokens, so that not all logits exist at a time.
void add_loss(Kernels& kernels, const Shape& s) {
  const std::int64_t rows = model::loss_slice(s), vocab = s.vocab;
  const auto t = static_cast<double>(rows), cells = static_cast<double>(rows * vocab);
  model::with_element(s.dtype, [&]<class E>(E) {
    kernels.push_back({"cross_entropy/" + model::name_of(s.dtype),
                       fmt::format("T={} V={}", rows, vocab),
                       s.dtype,
                       {5 * cells, bytes_of<E> * 2 * cells + (8 + 4) * t},
                       tolerance<E>,
                       [=] { return cross_entropy<E>(rows, vocab); }});
  });
  kernels.push_back({"sum_losses", fmt::format("T={}", rows), s.dtype, {t, 8 * t}, 1e-12, [=] {
                       return sum_losses(rows);
                     }});
}

}  // namespace minitaw::bench
