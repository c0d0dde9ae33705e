#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "operations.hpp"
#include "sizes.hpp"

namespace minitaw::bench {

/// What is in the buffers before an operation, and what must be there after it.
class Contents {
public:
  Contents(const Size& size, std::uint64_t seed) : size_(size), seed_(seed) {}

  /// Numbers of [-1, 1) in the size's type, different for every rank.
  [[nodiscard]] std::vector<std::byte> before(int rank) const;

  /// Where an operation leaves the slice of a reduce_scatter: ours in its place, MPI's at the beginning.
  enum class Slices { in_place, at_front };
  /// What is wrong with a buffer after the operation; empty if nothing. Moves must be equal to the bit, sums
  /// to rounding of what double gives.
  [[nodiscard]] std::string fault(Operation operation, const Member& member, int rank, Slices slices,
                                  const std::vector<std::byte>& after) const;

private:
  /// Element i of a rank's buffer.
  [[nodiscard]] float number(int rank, std::int64_t i) const;
  [[nodiscard]] std::string moved_wrong(const std::vector<float>& after, int from, std::int64_t begin,
                                        std::int64_t count) const;
  [[nodiscard]] std::string summed_wrong(const std::vector<float>& after, const Member& member, std::int64_t at,
                                         std::int64_t begin, std::int64_t count) const;

  Size size_;
  std::uint64_t seed_;
};

}  // namespace minitaw::bench
