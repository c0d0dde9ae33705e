// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

/// What the validator knows of a slot's content: which parts are there, and which contributions are in them.
namespace minitaw::schedule::detail {
struct Interval {
  std::int32_t begin = 0, end = 0;

  [[nodiscard]] std::int32_t size() const { return end - begin; }
  [[nodiscard]] Interval common(Interval with) const { return {std::max(begin, with.begin), std::min(end, with.end)}; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// Contributions to a gradient, as runs of their numbers in ascending order that do not touch. Micro-batch m
/// contributes number m to the gradient of a shard or of the embedding, and number M + m to that of the head.
class Sum {
public:
  explicit Sum(std::vector<Interval> runs = {}) : runs_(std::move(runs)) {}

  /// Adds what is in another sum. Returns a number that is in both, or -1.
  std::int32_t add(const Sum& other) {
    const auto own = static_cast<std::ptrdiff_t>(runs_.size());
    runs_.insert(runs_.end(), other.runs_.begin(), other.runs_.end());
    std::ranges::inplace_merge(runs_, runs_.begin() + own, {}, &Interval::begin);
    std::vector<Interval> joined;
    for (const Interval run : runs_) {
      if (joined.empty() || joined.back().end < run.begin) joined.push_back(run);
      else if (joined.back().end == run.begin) joined.back().end = run.end;
      else return run.begin;
    }
    runs_ = std::move(joined);
    return -1;
  }

  [[nodiscard]] std::int32_t first_missing(std::int32_t from) const {
    for (const Interval run : runs_)
      if (run.begin <= from && from < run.end) from = run.end;
    return from;
  }
  [[nodiscard]] bool any(Interval numbers) const {
    return std::ranges::any_of(runs_, [&](Interval run) { return run.common(numbers).size() > 0; });
  }

private:
  std::vector<Interval> runs_;
};

/// Some of the equal parts that a shard or the embeddings are cut into, which are known to be alike.
struct Piece {
  Interval range;
  bool updated = false;  ///< weights: as the optimiser left them
  Sum sum{};             ///< gradient
};

/// Pieces of a slot in ascending order, without overlap; what lies between them holds nothing of use.
class Pieces {
public:
  Pieces() = default;
  explicit Pieces(Piece piece) { pieces_.push_back(std::move(piece)); }

  [[nodiscard]] bool covers(Interval range) const {
    for (const Piece& piece : pieces_)
      if (piece.range.begin <= range.begin) range.begin = std::max(range.begin, piece.range.end);
    return range.size() <= 0;
  }

  /// The pieces inside `range`, cut at its borders.
  [[nodiscard]] Pieces within(Interval range) const {
    Pieces result;
    for (const Piece& piece : pieces_) {
      if (piece.range.common(range).size() <= 0) continue;
      result.pieces_.push_back(piece);
      result.pieces_.back().range = piece.range.common(range);
    }
    return result;
  }

  /// Replaces what is there by `others`, which lie inside `range`.
  void put(Interval range, const Pieces& others) {
    const auto [first, last] = inside(range);
    pieces_.insert(pieces_.erase(first, last), others.pieces_.begin(), others.pieces_.end());
  }

  /// Changes the pieces of `range` in place, after cutting them at its borders.
  template <class Change> void change(Interval range, const Change& change) {
    const auto [first, last] = inside(range);
    std::for_each(first, last, change);
  }

  template <class Which> [[nodiscard]] bool any(Interval range, const Which& which) const {
    return std::ranges::any_of(
        pieces_, [&](const Piece& piece) { return piece.range.common(range).size() > 0 && which(piece); });
  }

  [[nodiscard]] auto begin() const { return pieces_.begin(); }
  [[nodiscard]] auto end() const { return pieces_.end(); }

private:
  /// The pieces of `range`, after cutting at its borders.
  std::pair<std::vector<Piece>::iterator, std::vector<Piece>::iterator> inside(Interval range) {
    for (const std::int32_t at : {range.begin, range.end})
      for (std::size_t i = 0; i < pieces_.size(); ++i)
        if (pieces_[i].range.begin < at && at < pieces_[i].range.end) {
          Piece tail = pieces_[i];
          tail.range.begin = pieces_[i].range.end = at;
          pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(i) + 1, std::move(tail));
        }
    const auto begin_of = [](const Piece& piece) { return piece.range.begin; };
    return {std::ranges::lower_bound(pieces_, range.begin, {}, begin_of),
        std::ranges::lower_bound(pieces_, range.end, {}, begin_of)};
  }

  std::vector<Piece> pieces_;
};
}  // namespace minitaw::schedule::detail
