#include "schedule/play_content.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace minitaw::schedule {

bool Pieces::covers(Range range) const {
  std::int32_t reached = range.begin;
  for (const Piece& piece : pieces_)
    if (piece.range.begin <= reached && piece.range.end > reached) reached = piece.range.end;
  return reached >= range.end;
}

Pieces Pieces::within(Range range) const {
  Pieces result;
  for (const Piece& piece : pieces_) {
    const Range common{std::max(piece.range.begin, range.begin), std::min(piece.range.end, range.end)};
    if (common.size() <= 0) continue;
    result.pieces_.push_back(piece);
    result.pieces_.back().range = common;
  }
  return result;
}

void Pieces::put(Range range, const Pieces& others) {
  cut(range.begin);
  cut(range.end);
  std::erase_if(pieces_,
                [&](const Piece& p) { return p.range.begin >= range.begin && p.range.end <= range.end; });
  const auto at = std::ranges::find_if(pieces_, [&](const Piece& p) { return p.range.begin >= range.end; });
  pieces_.insert(at, others.pieces_.begin(), others.pieces_.end());
}

void Pieces::cut(std::int32_t at) {
  const auto piece =
      std::ranges::find_if(pieces_, [&](const Piece& p) { return p.range.begin < at && at < p.range.end; });
  if (piece == pieces_.end()) return;
  Piece tail = *piece;
  tail.range.begin = at;
  piece->range.end = at;
  pieces_.insert(piece + 1, std::move(tail));
}

std::string describe(const Content& c) {
  const auto updated = [&] { return std::ranges::any_of(c.pieces, &Piece::updated); };
  switch (c.holds) {
  case Content::Holds::nothing:
    return "nothing";
  case Content::Holds::weights:
    return fmt::format("the {}weights of shard {}", updated() ? "updated " : "", c.shard);
  case Content::Holds::gradient: {
    std::size_t most = 0;
    for (const Piece& piece : c.pieces) most = std::max(most, piece.sum.size());
    return fmt::format("{} gradient contributions", most);
  }
  case Content::Holds::kept:
    return fmt::format("what shard {} kept of micro-batch {}", c.shard, c.micro_batch);
  case Content::Holds::stash:
    return fmt::format("what B left of shard {} and micro-batch {}", c.shard, c.micro_batch);
  case Content::Holds::hidden:
    return fmt::format("micro-batch {} before shard {}", c.micro_batch, c.shard);
  case Content::Holds::hidden_gradient:
    return fmt::format("the gradient of micro-batch {} behind shard {}", c.micro_batch, c.shard);
  case Content::Holds::ends:
    return updated() ? "ends that are being updated" : "the ends";
  }
  return "";
}

}  // namespace minitaw::schedule
