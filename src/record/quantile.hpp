#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace minitaw::record {

/// The quantile `q`, 0 .. 1, of samples in rising order: linear interpolation between the two nearest, as
/// numpy does by default. NaN without samples.
[[nodiscard]] inline double quantile(std::span<const double> sorted, double q) {
  if (sorted.empty()) return std::nan("");
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// Of samples in any order.
[[nodiscard]] inline double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return quantile(samples, 0.5);
}

}  // namespace minitaw::record
