#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace minitaw::model {

/// Sorts the positions of a micro-batch by token, so that the embedding's gradient needs no atomics. Memory
/// is taken once, for a vocabulary and a number of tokens.
class TokenIndex {
public:
  TokenIndex(std::int64_t vocab, std::int64_t tokens);

  void sort(std::span<const std::int32_t> tokens);

  /// Positions by token, ascending among equals.
  [[nodiscard]] std::span<const std::int32_t> order() const { return order_; }
  /// Where the positions of each distinct token begin in order(), then their number.
  [[nodiscard]] std::span<const std::int32_t> segments() const { return segments_; }

private:
  std::vector<std::int32_t> next_, order_, segments_;
};

}  // namespace minitaw::model
