#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace minitaw::bench {

/// Up to `most` of the numbers 0 .. count - 1, ascending: the first, the last, and others anywhere between,
/// so that tiles and vectors are met at odd places.
inline std::vector<std::int64_t> samples(std::int64_t count, std::int64_t most) {
  std::vector<std::int64_t> chosen;
  if (count <= most) most = count;
  for (std::int64_t i = 0; i < most; ++i) {
    const std::int64_t begin = count * i / most, end = count * (i + 1) / most;  // one of each part
    const std::int64_t inside = begin + (7919 * (i + 1) + 104'729) % (end - begin);
    chosen.push_back(i == 0 ? 0 : (i == most - 1 ? count - 1 : inside));
  }
  return chosen;
}

}  // namespace minitaw::bench
