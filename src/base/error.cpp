// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.hpp"
#include <algorithm>
#include <numeric>
#include <utility>

namespace minitaw {
namespace {
/// Levenshtein distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replace}));
    }
  }
  return row.back();
}
}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const auto best = std::ranges::min_element(candidates, {}, [&](const auto& c) { return edit_distance(word, c); });
  return best == candidates.end() ? std::string() : *best;
}

std::string counted(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + ' ' + std::string(noun) + (count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}
}  // namespace minitaw
