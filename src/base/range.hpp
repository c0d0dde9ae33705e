// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace minitaw {
/// Elements [begin, begin + count) of a buffer.
struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  friend bool operator==(const Range&, const Range&) = default;
};

/// Part `index` of `count` equal ones.
struct Part {
  int index = 0;
  int count = 1;

  friend bool operator==(const Part&, const Part&) = default;
};

/// Returns the elements of `part` of a buffer that is divided into equal parts.
[[nodiscard]] constexpr Range range_of(std::int64_t elements, Part part) {
  const std::int64_t each = elements / part.count;
  return {part.index * each, each};
}

/// Slice of member `index` when `elements` are shared by `members`: ceil(elements / members) each, the last
/// ones cut to what remains, so shorter or empty. `index` is taken modulo members, also below 0.
[[nodiscard]] constexpr Range slice(std::int64_t elements, int members, int index) {
  const std::int64_t member = ((index % members) + members) % members;
  const std::int64_t each = elements / members + (elements % members != 0);
  const std::int64_t begin = std::min(member * each, elements);
  return {begin, std::min(each, elements - begin)};
}

/// The quantile `q`, 0 .. 1, of samples in rising order: linear interpolation between the two nearest, as
/// numpy does by default. NaN without samples.
[[nodiscard]] inline double quantile(std::span<const double> sorted, double q) {
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// Returns the median of samples in any order.
[[nodiscard]] inline double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return quantile(samples, 0.5);
}
}  // namespace minitaw
