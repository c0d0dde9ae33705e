#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/play_sum.hpp"

namespace minitaw::schedule {

/// A run [begin, end) of the equal parts that a shard or the ends are cut into.
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

  [[nodiscard]] bool covers(Range range) const;
  /// The pieces inside `range`, cut at its borders.
  [[nodiscard]] Pieces within(Range range) const;
  /// Replaces what is there by `others`, which lie inside `range`.
  void put(Range range, const Pieces& others);
  void clear(Range range) { put(range, {}); }

  /// The pieces of `range`, after cutting them at its borders, for changing them in place.
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
  void cut(std::int32_t at);

  std::vector<Piece> pieces_;
};

/// What a slot holds, by name instead of by numbers.
struct Content {
  enum class Holds : std::uint8_t { nothing, weights, gradient, kept, stash, hidden, hidden_gradient, ends };

  Holds holds = Holds::nothing;
  std::int32_t shard = -1;        ///< weights, kept, stash; hidden: the shard to compute next, either way
  std::int32_t micro_batch = -1;  ///< kept, stash, hidden
  Pieces pieces;                  ///< weights, gradient, ends

  [[nodiscard]] bool same_thing(const Content& other) const {
    return holds == other.holds && shard == other.shard && micro_batch == other.micro_batch;
  }
};

[[nodiscard]] std::string describe(const Content& content);

}  // namespace minitaw::schedule
