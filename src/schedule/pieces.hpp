// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>
#include "base/range.hpp"
#include "schedule/program.hpp"

/// Contents of slots: parts of data, and the contributions in them. Kept as runs of numbers, so
/// that programs for a thousand ranks can be followed.
namespace minitaw::schedule::detail {
/// Numbers [begin, end), of parts or of contributions.
struct Interval {
  std::int32_t begin = 0, end = 0;

  std::int32_t size() const { return end - begin; }

  Interval common(Interval with) const {
    return {std::max(begin, with.begin), std::min(end, with.end)};
  }

  bool meets(Interval with) const { return common(with).size() > 0; }

  friend bool operator==(const Interval&, const Interval&) = default;
};

/// Part `part` of `count` things.
inline Interval interval_of(std::int32_t count, Part part) {
  const std::int32_t each = count / part.count;
  return {part.index * each, (part.index + 1) * each};
}

/// Contributions to a gradient, as runs of their numbers in ascending order. Micro-batch m, or part
/// i of those that n ranks share, contributes number m n + i to the gradient of a shard or of the
/// embedding, and number M n + m n + i to that of the head. Segments of a visit give gradients of
/// different tensors: M n numbers more for each. With replicas, each M n numbers of one of them are
/// followed by M n for all others.
class Sum {
public:
  explicit Sum(std::vector<Interval> runs = {}) : runs_(std::move(runs)) {}

  /// Adds what is in another sum. Returns a number that is in both, or -1.
  std::int32_t add(const Sum& other) {
    std::vector<Interval> all;
    std::ranges::merge(
        runs_, other.runs_, std::back_inserter(all), {}, &Interval::begin, &Interval::begin);
    runs_.clear();
    for (const Interval run : all) {
      if (runs_.empty() || runs_.back().end < run.begin)
        runs_.push_back(run);
      else if (runs_.back().end == run.begin)
        runs_.back().end = run.end;
      else
        return run.begin;
    }
    return -1;
  }

  /// The contributions whose numbers are so much higher.
  Sum shifted(std::int32_t by) const {
    return Sum(
        list_of(runs_, [=](Interval run) { return Interval{run.begin + by, run.end + by}; }));
  }

  std::int32_t first_missing(std::int32_t from) const {
    for (const Interval run : runs_)
      if (run.begin <= from && from < run.end)
        from = run.end;
    return from;
  }

  bool any(Interval numbers) const {
    return std::ranges::any_of(runs_, [&](Interval run) { return run.meets(numbers); });
  }

private:
  std::vector<Interval> runs_;
};

/// Some of the equal parts that a shard or the embeddings are cut into, which are known to be
/// alike.
struct Piece {
  Interval range;
  bool updated = false;  ///< weights: as the optimiser left them
  Sum sum{};             ///< gradient
};

/// Pieces of a slot in ascending order, without overlap; what lies between them holds nothing of
/// use.
class Pieces {
public:
  Pieces() = default;

  explicit Pieces(Piece piece) { pieces_.push_back(std::move(piece)); }

  bool covers(Interval range) const {
    for (const Piece& piece : pieces_)
      if (piece.range.begin <= range.begin)
        range.begin = std::max(range.begin, piece.range.end);
    return range.size() <= 0;
  }

  /// The pieces inside `range`, cut at its borders.
  Pieces within(Interval range) const {
    Pieces result;
    for (const Piece& piece : pieces_) {
      if (!piece.range.meets(range))
        continue;
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
  void change(Interval range, const auto& change) {
    const auto [first, last] = inside(range);
    std::for_each(first, last, change);
  }

  bool any(Interval range, const auto& which) const {
    return std::ranges::any_of(pieces_,
        [&](const Piece& piece) { return piece.range.meets(range) && std::invoke(which, piece); });
  }

  auto begin() const { return pieces_.begin(); }

  auto end() const { return pieces_.end(); }

private:
  /// The pieces of `range`, after cutting at its borders.
  std::pair<std::vector<Piece>::iterator, std::vector<Piece>::iterator> inside(Interval range) {
    for (const std::int32_t at : {range.begin, range.end}) {
      const auto cut = std::ranges::find_if(pieces_,
          [at](const Piece& piece) { return piece.range.begin < at && at < piece.range.end; });
      if (cut == pieces_.end())
        continue;
      Piece tail = *cut;
      tail.range.begin = cut->range.end = at;
      pieces_.insert(cut + 1, std::move(tail));
    }
    const auto begin_of = [](const Piece& piece) { return piece.range.begin; };
    return {std::ranges::lower_bound(pieces_, range.begin, {}, begin_of),
        std::ranges::lower_bound(pieces_, range.end, {}, begin_of)};
  }

  std::vector<Piece> pieces_;
};

/// Content of a slot; the slot's class says of which kind.
struct Content {
  bool valid = false;
  std::int32_t shard = -1;        ///< but of embeddings; hidden: the shard to compute next
  std::int32_t micro_batch = -1;  ///< of activations and keys
  bool backward = false;          ///< hidden: the gradient
  std::int32_t part = -1;         ///< of the sequences: saved, deferred, hidden
  /// hidden, saved, deferred: blocks of a visit that is under way; keys: the block; of slices:
  /// blocks of those before, in parts by heads.
  std::int32_t block = 0;
  Pieces pieces{};  ///< weights, gradients, embeddings, keys

  bool same_thing(const Content& other) const {
    return valid == other.valid && shard == other.shard && micro_batch == other.micro_batch &&
           backward == other.backward && part == other.part && block == other.block;
  }
};

inline std::string describe(SlotClass cls, const Content& c) {
  if (!c.valid)
    return "nothing";
  const std::string part = of_embeddings(cls) ? "the embeddings" : fmt::format("shard {}", c.shard);
  if (memory_of(cls) == Memory::weights) {
    const bool updated = std::ranges::any_of(c.pieces, &Piece::updated);
    return fmt::format("the {}weights of {}", updated ? "updated " : "", part);
  }
  if (memory_of(cls) == Memory::gradients)
    return "a gradient of " + part;
  if (cls == SlotClass::squares)
    return "squares";
  const std::string micro_batch = fmt::format("micro-batch {}", c.micro_batch);
  if (const Data data = row_of(cls).data; data == Data::keys || data == Data::prefix)
    return fmt::format("{} of {} and {}, {} {}",
        name_of(cls),
        part,
        micro_batch,
        data == Data::keys ? "block" : "visits of blocks:",
        c.block);
  const std::string tokens =
      c.part < 0 ? micro_batch : fmt::format("part {} of {}", c.part, micro_batch);
  const std::string blocks = c.block == 0 ? "" : fmt::format(", {} blocks of it", c.block);
  if (cls != SlotClass::hidden) {
    const char* visit = cls == SlotClass::saved ? "F" : "B";
    return fmt::format("what {} left of {}{} and {}", visit, part, blocks, tokens);
  }
  return c.backward ? fmt::format("the gradient of {} after {}{}", tokens, part, blocks)
                    : fmt::format("{} before {}{}", tokens, part, blocks);
}
}  // namespace minitaw::schedule::detail
