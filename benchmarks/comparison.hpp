#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace minitaw::bench {

/// Largest deviation of any element, as a share of its own size and the root mean square of all together: one
/// wrong element among thousands counts in full, and the rounding of a large one does not count as more.
class Comparison {
public:
  void add(double found, double expected) { pairs_.push_back({found, expected}); }
  void add(std::span<const double> found, std::span<const double> expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) add(found[i], expected[i]);
  }

  /// Infinite if anything is not a number, or nothing was compared.
  [[nodiscard]] double error() const {
    double squares = 0, largest = pairs_.empty() ? infinite : 0;
    for (const Pair& pair : pairs_) squares += pair.expected * pair.expected;
    const double mean = std::sqrt(squares / static_cast<double>(pairs_.size()));
    for (const Pair& pair : pairs_) {
      const double off = std::abs(pair.found - pair.expected);
      if (off != 0)
        largest = std::max(largest, std::isfinite(off) ? off / (mean + std::abs(pair.expected)) : infinite);
    }
    return largest;
  }

private:
  struct Pair {
    double found, expected;
  };
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  std::vector<Pair> pairs_;
};

}  // namespace minitaw::bench
