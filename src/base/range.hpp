// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <ranges>
#include <vector>

namespace minitaw {
/// A part of each entry in a vector: list_of(rows, &Row::name). As std::ranges::to, which comes
/// with C++23.
template <class Entries, class Part = std::identity>
auto list_of(Entries&& entries, const Part& part = {}) {
  std::vector<std::decay_t<decltype(std::invoke(part, *entries.begin()))>> list;
  for (auto&& entry : entries)
    list.push_back(std::invoke(part, entry));
  return list;
}

/// 0, 1, ... of the entries in a list.
constexpr auto indices(const auto& list) {
  return std::views::iota(0, static_cast<int>(std::size(list)));
}

/// Elements [begin, begin + count) of a buffer.
struct Range {
  std::int64_t begin = 0, count = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

struct Part {
  int index = 0, count = 1;
  friend bool operator==(const Part&, const Part&) = default;
};

/// Returns the elements of `part` of a buffer that is divided into equal parts.
constexpr Range range_of(std::int64_t elements, Part part) {
  const std::int64_t each = elements / part.count;
  return {part.index * each, each};
}

/// Returns the share of member `index`: ceil(elements / members), the last ones cut to what
/// remains, so shorter or empty. `index` is taken modulo members, also
/// below 0.
constexpr Range share_of(std::int64_t elements, int members, int index) {
  const std::int64_t member = ((index % members) + members) % members;
  const std::int64_t each = elements / members + (elements % members != 0);
  const std::int64_t begin = std::min(member * each, elements);
  return {begin, std::min(each, elements - begin)};
}
}  // namespace minitaw
