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
  friend bool operator==(const Contribution&, const Contribution&) = default;  // nvcc 13 does not derive it
};

/// A gradient as the multiset of contributions that were added up in it, known by its size and by the sum of
/// 128-bit hashes of its members: two different multisets of the sizes that programs have agree in both with
/// a probability below 1e-30. Listed, it also names its members, for messages; that takes memory.
class Sum {
public:
  explicit Sum(bool listed = false) : listed_(listed) {}

  void add(Contribution c);
  void add(const Sum& other);
  [[nodiscard]] std::size_t size() const { return size_; }

  /// Whether all contributions are of `part`.
  [[nodiscard]] bool only(std::int32_t part) const { return size_ == 0 || (!mixed_ && part_ == part); }
  /// The first contribution of another part than `part`, or nothing; of a listed sum.
  [[nodiscard]] const Contribution* foreign(std::int32_t part) const;
  /// Every micro-batch 0 .. micro_batches-1 of every part exactly once.
  static Sum complete(const std::vector<std::int32_t>& parts, int micro_batches, bool listed);
  /// What keeps it from being `wanted`; empty if nothing does.
  [[nodiscard]] std::string defect(const Sum& wanted) const;

  friend bool operator==(const Sum& a, const Sum& b) {
    return a.size_ == b.size_ && a.low_ == b.low_ && a.high_ == b.high_;
  }

private:
  std::size_t size_ = 0;
  std::uint64_t low_ = 0, high_ = 0;  ///< sums of hashes
  std::int32_t part_ = 0;             ///< of the first contribution
  bool mixed_ = false;                ///< others are of another part
  bool listed_;
  std::vector<Contribution> items_;
};

[[nodiscard]] std::string part_name(std::int32_t part);

}  // namespace minitaw::schedule
