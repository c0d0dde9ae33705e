#pragma once

#include <algorithm>
#include <cstdint>

namespace minitaw::comm {

/// A run of elements of a buffer.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  friend bool operator==(const Slice&, const Slice&) = default;
};

/// Slice of member `index` when `elements` are shared by `members`: ceil(elements / members) each, the last
/// ones cut to what remains, so shorter or empty. `index` is taken modulo members, negative ones too: rings
/// count backwards.
[[nodiscard]] constexpr Slice slice(std::int64_t elements, int members, int index) {
  const std::int64_t member = ((index % members) + members) % members;
  const std::int64_t each = elements / members + (elements % members != 0);
  const std::int64_t begin = std::min(member * each, elements);
  return {begin, std::min(each, elements - begin)};
}

}  // namespace minitaw::comm
