#pragma once

// What slots hold while a program executes, by name instead of by numbers (contents.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/program.hpp"

namespace minitaw::schedule::detail {

/// What one micro-batch adds to a gradient: that of a shard, of the embedding or of the head.
struct Contribution {
  static constexpr std::int32_t embedding = -1;
  static constexpr std::int32_t head = -2;

  std::int32_t part = 0;  ///< shard, embedding or head
  std::int32_t micro_batch = 0;

  friend auto operator<=>(const Contribution&, const Contribution&) = default;
  friend bool operator==(const Contribution&, const Contribution&) = default;  // nvcc 13 does not derive it
};

inline std::string part_name(std::int32_t part) {
  if (part == Contribution::embedding) return "the embedding";
  return part == Contribution::head ? "the head" : fmt::format("shard {}", part);
}

/// A bijection of 64 bits that leaves nothing of its input to be seen (the finaliser of splitmix64; Steele,
/// Lea, Flood, OOPSLA 2014).
inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// A gradient as the multiset of contributions that were added up in it, known by its size and by the sum of
/// 128-bit hashes of its members: two different multisets of the sizes that programs have agree in both with
/// a probability below 1e-30. Listed, it also names its members, for messages; that takes memory.
class Sum {
public:
  explicit Sum(bool listed = false) : listed_(listed) {}

  /// Every micro-batch 0 .. micro_batches-1 of every part exactly once.
  static Sum complete(const std::vector<std::int32_t>& parts, int micro_batches, bool listed) {
    Sum sum(listed);
    for (const std::int32_t part : parts)
      for (int m = 0; m < micro_batches; ++m) sum.add({part, m});
    return sum;
  }

  void add(Contribution c) {
    const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(c.part)) << 32 |
                              static_cast<std::uint32_t>(c.micro_batch);
    if (size_ == 0) part_ = c.part;
    mixed_ = mixed_ || c.part != part_;
    ++size_;
    low_ += mixed(key);
    high_ += mixed(~key);
    if (listed_) items_.push_back(c);
  }

  void add(const Sum& other) {
    if (other.size_ == 0) return;
    if (size_ == 0) part_ = other.part_;
    mixed_ = mixed_ || other.mixed_ || other.part_ != part_;
    size_ += other.size_;
    low_ += other.low_;
    high_ += other.high_;
    // By index: a sum may be added to itself.
    const std::size_t count = other.items_.size();
    for (std::size_t i = 0; i < count; ++i) items_.push_back(other.items_[i]);
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  /// Whether all contributions are of `part`.
  [[nodiscard]] bool only(std::int32_t part) const { return size_ == 0 || (!mixed_ && part_ == part); }

  /// The first contribution of another part than `part`, or nothing; of a listed sum.
  [[nodiscard]] const Contribution* foreign(std::int32_t part) const {
    const auto at = std::ranges::find_if(items_, [&](const Contribution& c) { return c.part != part; });
    return at == items_.end() ? nullptr : &*at;
  }

  /// What keeps it from being `wanted`; empty if nothing does.
  [[nodiscard]] std::string defect(const Sum& wanted) const {
    if (*this == wanted) return "";
    if (!listed_ || !wanted.listed_) return "contributions are missing or counted twice";
    std::vector<Contribution> all = wanted.items_, held = items_;
    std::ranges::sort(all);
    std::ranges::sort(held);
    const auto [want, have] = std::ranges::mismatch(all, held);
    if (have == held.end() || (want != all.end() && *want < *have))
      return fmt::format("micro-batch {} of {} is missing", want->micro_batch, part_name(want->part));
    const bool twice = have != held.begin() && *(have - 1) == *have;
    return fmt::format("micro-batch {} of {} {}", have->micro_batch, part_name(have->part),
                       twice ? "is counted twice" : "does not belong there");
  }

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

/// Some of the equal parts that a shard or the embeddings are cut into: [begin, end).
struct Range {
  std::int32_t begin = 0, end = 0;

  [[nodiscard]] std::int32_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Parts of a slot that are known to be alike.
struct Piece {
  Range range;
  bool updated = false;  ///< weights: as the optimiser left them
  Sum sum;               ///< gradient
};

/// Pieces of a slot in ascending order, without overlap; what lies between them holds nothing of use.
class Pieces {
public:
  Pieces() = default;
  explicit Pieces(Piece piece) { pieces_.push_back(std::move(piece)); }

  [[nodiscard]] bool covers(Range range) const {
    std::int32_t reached = range.begin;
    for (const Piece& piece : pieces_)
      if (piece.range.begin <= reached && piece.range.end > reached) reached = piece.range.end;
    return reached >= range.end;
  }

  /// The pieces inside `range`, cut at its borders.
  [[nodiscard]] Pieces within(Range range) const {
    Pieces result;
    for (const Piece& piece : pieces_) {
      const Range common{std::max(piece.range.begin, range.begin), std::min(piece.range.end, range.end)};
      if (common.size() <= 0) continue;
      result.pieces_.push_back(piece);
      result.pieces_.back().range = common;
    }
    return result;
  }

  /// Replaces what is there by `others`, which lie inside `range`.
  void put(Range range, const Pieces& others) {
    cut(range.begin);
    cut(range.end);
    std::erase_if(pieces_,
                  [&](const Piece& p) { return p.range.begin >= range.begin && p.range.end <= range.end; });
    const auto at = std::ranges::find_if(pieces_, [&](const Piece& p) { return p.range.begin >= range.end; });
    pieces_.insert(at, others.pieces_.begin(), others.pieces_.end());
  }

  /// Changes the pieces of `range` in place, after cutting them at its borders.
  template <class Change>
  void change(Range range, const Change& change) {
    cut(range.begin);
    cut(range.end);
    for (Piece& piece : pieces_)
      if (piece.range.begin >= range.begin && piece.range.end <= range.end) change(piece);
  }

  [[nodiscard]] auto begin() const { return pieces_.begin(); }
  [[nodiscard]] auto end() const { return pieces_.end(); }

private:
  /// Makes `at` a border between pieces.
  void cut(std::int32_t at) {
    const auto piece =
        std::ranges::find_if(pieces_, [&](const Piece& p) { return p.range.begin < at && at < p.range.end; });
    if (piece == pieces_.end()) return;
    Piece tail = *piece;
    tail.range.begin = at;
    piece->range.end = at;
    pieces_.insert(piece + 1, std::move(tail));
  }

  std::vector<Piece> pieces_;
};

enum class Holds : std::uint8_t {
  nothing,
  weights,
  gradient,
  saved,
  deferred,
  hidden,
  hidden_gradient,
  embeddings
};

/// What a slot holds.
struct Content {
  Holds holds = Holds::nothing;
  std::int32_t shard = -1;        ///< weights, saved, deferred; hidden: the shard to compute next, either way
  std::int32_t micro_batch = -1;  ///< saved, deferred, hidden
  Pieces pieces;                  ///< weights, gradient, embeddings

  [[nodiscard]] bool same_thing(const Content& other) const {
    return holds == other.holds && shard == other.shard && micro_batch == other.micro_batch;
  }
};

inline std::string describe(const Content& c) {
  static constexpr std::array<std::string_view, 8> texts = {
      "nothing",
      "the {2}weights of shard {0}",
      "{3} gradient contributions",
      "what shard {0} saved of micro-batch {1}",
      "what B left of shard {0} and micro-batch {1}",
      "micro-batch {1} before shard {0}",
      "the gradient of micro-batch {1} behind shard {0}",
      "the {2}embeddings"};
  const bool updated = std::ranges::any_of(c.pieces, &Piece::updated);
  if (c.holds == Holds::embeddings && updated) return "embeddings that are being updated";
  std::size_t most = 0;
  for (const Piece& piece : c.pieces) most = std::max(most, piece.sum.size());
  return fmt::format(fmt::runtime(texts[index_of(c.holds)]), c.shard, c.micro_batch,
                     updated ? "updated " : "", most);
}

}  // namespace minitaw::schedule::detail
