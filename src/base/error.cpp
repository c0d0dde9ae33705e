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

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string_view begin = word.substr(0, 64);  // no name is as long
  const auto distance = [&](const std::string& c) { return edit_distance(begin, c); };
  const auto best = std::ranges::min_element(candidates, {}, distance);
  if (best == candidates.end() || 3 * distance(*best) > 2 * std::max(begin.size(), best->size()))
    return {};
  return "; did you mean \"" + *best + "\"?";
}

std::string printable(std::string_view text, std::size_t most) {
  std::size_t end = std::min(text.size(), most);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;
  std::string out(text.substr(0, end));
  std::ranges::replace_if(out, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return out + (end < text.size() ? "..." : "");
}

std::string counted(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + ' ' + std::string(noun) +
         (count == 1                ? ""
             : noun.ends_with("ch") ? "es"
                                    : "s");
}
}  // namespace minitaw
