// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <numbers>
#include "harness/check.hpp"

/// Limits for rounding. docs/verify.md, "Limits", derives each formula and measures each constant;
/// letters in comments are those of its table.
namespace minitaw::harness {
namespace {
/// Relative rounding of a value, at most.
constexpr double fp32_rounding = 0x1p-24, bf16_rounding = 0x1p-8;

/// One model in so many may have a tensor that is smaller by chance than is allowed for.
constexpr double models = 1000;

/// Limits of a gradient and of a loss, as multiples of the noise n.
constexpr double gradient_room = 4, loss_room = 2;

/// Losses of tokens are rounded independently, but the rounding of their mean was not found to
/// shrink beyond so many.
constexpr double most_averaged = 128;

/// Share of itself that a weight whose gradient is rounding loses at most, before training finds it
/// again (measured).
constexpr double most_lost = 0.3;

/// A training that changes its weights by x amplifies differences by exp(10 x) (measured).
constexpr double amplification = 10;

/// Larger x count as this, so that no limit is infinite or not-a-number.
constexpr double most_change = 10;

/// Limit of the weights before the first step, and what a step adds: AdamW rounds a weight by at
/// most 2^-24 of it in each.
constexpr double weights_at_first = 1e-6, weights_per_step = 1e-7;

/// How much smaller than usual the norm of `numbers` random numbers is at the worst of `places`, in
/// all but one of so many models.
double smaller(double places, double numbers) {
  return std::pow(models * places, 1 / numbers);
}

/// g: growth of rounding by hidden states that are small at a norm: the more, the fewer elements
/// they have.
double growth_at_norms(const Case& c) {
  const double tokens = tokens_of_step(c);
  // Two numbers may differ in one direction only.
  const double directions = c.shape.hidden > 2 ? static_cast<double>(c.shape.hidden) : 1;
  const double rare = smaller((2.0 * c.shape.layers + 1) * tokens, directions);
  return 1 + rare * std::min(1.0, rare / std::sqrt(tokens));
}

/// u: rounding of a value in the case's type, and of the longest sum in fp32.
double rounding(const Case& c) {
  const model::Shape& s = c.shape;
  const std::int64_t longest =
      std::max({s.hidden, s.attention_width(), s.ffn, s.vocab, s.seq * s.micro_batch});
  return (s.dtype == model::Dtype::bf16 ? bf16_rounding : 0) +
         fp32_rounding * std::sqrt(static_cast<double>(longest + c.micro_batches));
}

/// n: noise of two builds that round independently of each other, once in each half of a block and
/// back.
double independent_noise(const Case& c) {
  return rounding(c) * std::sqrt(c.shape.layers + 1.0) * growth_at_norms(c);
}

/// The factor of the noise of later steps: weights that noise has changed, and a training
/// that amplifies differences. `gradient`: limit of the gradient without both (G).
double growth_by_training(const Case& c, double gradient) {
  // x: what a step changes of the smallest weights, as a share of them
  const std::int64_t width = std::max(c.shape.hidden, c.shape.attention_width());
  const double change =
      std::min(most_change, c.learning_rate * std::sqrt(2.0 * c.shape.layers * width));
  const double lost = std::min(most_lost, 2 * change * (c.steps - 1)) / std::sqrt(gradient);
  return (1 + lost) * std::exp(amplification * change * std::sqrt(growth_at_norms(c)));
}

/// `first` and `later`: relative difference of the gradients of correct builds, as a rule.
Tolerance tolerance(const Case& c, std::string_view reference, double first, double later) {
  const auto vocab = static_cast<double>(c.shape.vocab);
  const double cancels = vocab > 1 ? smaller(1, vocab * (vocab - 1)) : 1;
  const double averages = std::sqrt(std::min({tokens_of_step(c), vocab, most_averaged}));
  const auto step = [&](double noise) {
    return Tolerance::Step{
        .loss = loss_room * noise / averages, .gradient = gradient_room * noise * cancels};
  };
  return {.reference = std::string(reference),
      .first = step(first),
      .later = step(later * growth_by_training(c, gradient_room * later * cancels)),
      .weights = weights_at_first + weights_per_step * c.steps};
}
}  // namespace

Tolerance serial_tolerance(const Case& c) {
  const bool narrow = c.shape.dtype == model::Dtype::bf16;
  // Each rank rounds the sum that it passes on.
  const double passed = narrow ? rounding(c) * std::sqrt(c.ranks) : 0;
  const double both = std::hypot(passed, std::numbers::sqrt2 * independent_noise(c));
  // In the first step the same kernels have the same weights and micro-batches.
  const bool alike = narrow && kernels::on_host && !c.shape.shares_sequences();
  return tolerance(c, serial_name, alike ? passed : both, both);
}

Tolerance float64_tolerance(const Case& c) {
  const double noise = independent_noise(c);
  return tolerance(c, float64_name, noise, noise);
}

double Tolerance::largest(int steps) const {
  return std::max(first.gradient, steps > 1 ? later.gradient / 2 : 0);
}
}  // namespace minitaw::harness
