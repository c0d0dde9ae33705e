// SPDX-License-Identifier: BSD-3-Clause
#include "base/statistics.hpp"
#include <algorithm>
#include <limits>

namespace minitaw {
double quantile(std::span<const double> sorted, double q) {
  if (sorted.empty())
    return std::numeric_limits<double>::quiet_NaN();
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return quantile(samples, 0.5);
}
}  // namespace minitaw
