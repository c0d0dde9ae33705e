#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace minitaw::schedule {

/// What one micro-batch adds to a gradient: that of a shard, of the embedding or of the head.
struct Contribution {
  static constexpr std::int32_t embedding = -1;
  static constexpr std::int32_t head = -2;

  std::int32_t part = 0;  ///< shard, embedding or head
  std::int32_t micro_batch = 0;
  friend auto operator<=>(const Contribution&, const Contribution&) = default;
};

/// A gradient as the multiset of contributions that were added up in it. Ranks that hold the same values
/// share it.
class Sum {
public:
  void add(Contribution c);
  void add(const Sum& other);
  [[nodiscard]] std::size_t size() const { return items_.size(); }

  /// The first contribution of another part than `part`, or nothing.
  [[nodiscard]] const Contribution* foreign(std::int32_t part) const;
  /// Empty if every micro-batch 0 .. micro_batches-1 of every part is there exactly once; else what is wrong.
  [[nodiscard]] std::string defect(const std::vector<std::int32_t>& parts, int micro_batches) const;

private:
  std::vector<Contribution> items_;
  mutable bool complete_ = false;  // remembered for `parts_`: a sum that many ranks share is sorted once
  mutable std::vector<std::int32_t> parts_;
};

[[nodiscard]] std::string part_name(std::int32_t part);

}  // namespace minitaw::schedule
