#include "engine/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "deck/sequences.hpp"

namespace minitaw::engine {
namespace {

double sum_of_squares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return sum;
}

double sum_of_squared_differences(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

double root_mean_square(double sum, std::size_t count) {
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(1, count)));
}

double of_all(const std::vector<NamedTensor>& tensors) {
  double sum = 0;
  std::size_t count = 0;
  for (const NamedTensor& t : tensors) {
    sum += sum_of_squares(t.values);
    count += t.values.size();
  }
  return root_mean_square(sum, count);
}

float rounded(double value) { return to_float(to_bf16(static_cast<float>(value))); }

/// Written so that not-a-number is out.
bool within(double error, double limit) { return error <= limit; }

Tolerance tolerance(const deck::Case& c, const std::string& reference, Tolerance::Step first,
                    Tolerance::Step later) {
  // What tokens contribute is rounded independently of each other, so its sum is the more exact the more
  // there are.
  const double few = std::sqrt(std::max(1.0, 128 / deck::tokens_of_step(c)));
  for (Tolerance::Step* step : {&first, &later}) *step = {few * step->loss, few * step->gradient};
  // AdamW rounds a weight by at most 2^-24 of it in each step.
  return {reference, first, later, 1e-6 + 1e-7 * c.steps};
}

}  // namespace

double loss_error(double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1.0); }

Difference compare_gradients(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) throw LogicError("engine: models with different tensors cannot be compared");
  const double least = std::max(1e-2 * of_all(b), 1e-9);
  Difference result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::size_t count = b[i].values.size();
    if (a[i].values.size() != count) throw LogicError("engine: a tensor of another size cannot be compared");
    const double apart = root_mean_square(sum_of_squared_differences(a[i].values, b[i].values), count);
    const double relative = apart / std::max(root_mean_square(sum_of_squares(b[i].values), count), least);
    // Not-a-number is the worst of all and must not compare as small.
    if (!within(relative, result.worst)) result = {relative, a[i].name};
    if (std::isnan(relative)) break;
  }
  return result;
}

double weight_error(const NamedTensor& tensor, std::span<const double> wanted, model::Dtype dtype,
                    double slack) {
  if (tensor.values.size() != wanted.size())
    throw LogicError("engine: a tensor of another size cannot be compared");
  double norm = 0, apart = 0;
  for (const double w : wanted) norm += w * w;
  const double size = root_mean_square(norm, wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double value = tensor.values[i];
    double right = wanted[i];
    if (dtype == model::Dtype::bf16) {
      const double either = slack * std::max(std::abs(right), size);
      right = std::clamp<double>(value, rounded(right - either), rounded(right + either));
    }
    apart += (value - right) * (value - right);
  }
  return root_mean_square(apart, wanted.size()) / std::max(size, 1e-9);
}

Tolerance serial_tolerance(const deck::Case& c) {
  if (c.shape.dtype == model::Dtype::fp32)
    return tolerance(c, "serial reference", {1e-6, 1e-5}, {1e-6, 1e-4});
  return tolerance(c, "serial reference", {1e-3, 2e-2}, {5e-3, 2e-1});
}

Tolerance float64_tolerance(const deck::Case& c) {
  if (c.shape.dtype == model::Dtype::fp32)
    return tolerance(c, "float64 reference", {1e-5, 1e-4}, {1e-5, 1e-3});
  return tolerance(c, "float64 reference", {4e-3, 5e-2}, {5e-3, 2e-1});
}

bool Check::passes(const Tolerance& t) const {
  const auto step = [](const Step& found, const Tolerance::Step& allowed) {
    return within(found.loss, allowed.loss) && within(found.gradient.worst, allowed.gradient);
  };
  return step(first, t.first) && step(later, t.later) && within(weights.worst, t.weights);
}

std::string Check::failure(const Tolerance& t) const {
  std::string text;
  const auto look = [&](const std::string& what, double error, double allowed, const std::string& from) {
    if (text.empty() && !within(error, allowed))
      text = fmt::format("{} differs from {} by {:.1e} (allowed {:.1e})", what, from, error, allowed);
  };
  look("the first loss", first.loss, t.first.loss, "the " + t.reference);
  look("the gradient of " + first.gradient.tensor, first.gradient.worst, t.first.gradient,
       "the " + t.reference);
  look("a later loss", later.loss, t.later.loss, "the " + t.reference);
  look("the last gradient of " + later.gradient.tensor, later.gradient.worst, t.later.gradient,
       "the " + t.reference);
  look(weights.tensor, weights.worst, t.weights, "AdamW on the same gradients in double precision");
  return text;
}

}  // namespace minitaw::engine
