#include "schedule/play_contents.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace minitaw::schedule {
namespace {

// What is computed once for each (shard, micro-batch), and for each micro-batch at the ends.
constexpr std::uint8_t forward_done = 1, input_done = 2, weight_done = 4;
constexpr std::uint8_t embed_done = 1, loss_done = 2, embed_backward_done = 4;
constexpr std::uint8_t all_done = 7;

// Whose gradient a step has written.
std::uint8_t ends_bit(std::int32_t part) { return part == Contribution::embedding ? 1 : 2; }
constexpr std::uint8_t both_ends = 3;

bool of_ends(SlotClass cls) { return cls == SlotClass::ends || cls == SlotClass::ends_total; }

}  // namespace

Contents::Contents(const Program& program, bool listed) : program_(program), listed_(listed) {
  done_.resize((static_cast<std::size_t>(program.shards) + 1) * program.micro_batches);
  ends_written_.resize(program.ranks.size());
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
    const RankProgram& rank = program.ranks[r];
    std::size_t count = 0;
    std::array<std::size_t, slot_classes>& first = first_.emplace_back();
    for (int c = 0; c < slot_classes; ++c) {
      first[c] = count;
      count += rank.slots[c];
    }
    slots_.emplace_back(count);
    for (int h = 0; h < static_cast<int>(rank.homes.size()); ++h)
      hold({r, -1}, {SlotClass::home, static_cast<std::int16_t>(h)}, Holds::weights, rank.homes[h]);
    for (int e = 0; e < rank.slots[index(SlotClass::ends)]; ++e)
      hold({r, -1}, {SlotClass::ends, static_cast<std::int16_t>(e)}, Holds::ends, -1);
  }
}

void Contents::hold(Place p, Slot slot, Holds holds, std::int32_t shard) {
  content(p.rank, slot) = {holds, shard, -1, Pieces({extent(p.rank, slot.cls), false, Sum(listed_)})};
}

void Contents::fail(Rule rule, Place p, const std::string& what) const {
  detail::refuse(rule, program_, p.rank, p.action, what);
}

void Contents::unexpected(Place p, Slot slot, const std::string& wanted) const {
  fail(Rule::fresh_reads, p,
       fmt::format("{} holds {}, expected {}", detail::name_of(slot), describe(content(p.rank, slot)),
                   wanted));
}

void Contents::local(Place p) {
  switch (at(p).kind) {
  case Kind::embed:
    return embed(p);
  case Kind::forward:
    return forward(p);
  case Kind::loss:
    return loss(p);
  case Kind::backward:
    return backward(p);
  case Kind::backward_input:
    return backward_input(p);
  case Kind::backward_weight:
    return backward_weight(p);
  case Kind::embed_backward:
    return embed_backward(p);
  case Kind::update:
    return of_ends(at(p).slots[0].cls) ? update_ends(p) : update(p);
  case Kind::zero:
    return zero(p);
  case Kind::accumulate:
    return accumulate(p);
  case Kind::load:
    return load(p);
  default:
    return;
  }
}

// Ranges

Range Contents::whole(SlotClass cls) const {
  return {0, of_ends(cls) ? program_.ends_slices : program_.shard_parts};
}

Range Contents::extent(int rank, SlotClass cls) const {
  const RankProgram& r = program_.ranks[rank];
  if (of_ends(cls) && r.ends_slice >= 0) return {r.ends_slice, r.ends_slice + 1};
  if (cls != SlotClass::home && cls != SlotClass::total) return whole(cls);
  const std::int32_t each = program_.shard_parts / program_.home_slices;
  return {r.slice * each, (r.slice + 1) * each};
}

Range Contents::ends_range(std::int32_t part) const {
  if (!program_.ends_split) return whole(SlotClass::ends);
  return part == Contribution::embedding ? Range{0, 1} : Range{1, 2};
}

// What must be there

void Contents::need_weights(Place p, Slot slot) const {
  const Content& c = content(p.rank, slot);
  if (c.holds != Holds::weights || c.shard != at(p).shard || !c.pieces.covers(whole(slot.cls)) ||
      std::ranges::any_of(c.pieces, &Piece::updated))
    unexpected(p, slot, fmt::format("the weights of shard {}", at(p).shard));
}

void Contents::need_ends(Place p, Slot slot, std::int32_t part) const {
  const Pieces held = content(p.rank, slot).pieces.within(ends_range(part));
  if (!held.covers(ends_range(part))) unexpected(p, slot, fmt::format("{}", part_name(part)));
  if (std::ranges::any_of(held, &Piece::updated)) unexpected(p, slot, "the ends before their update");
}

void Contents::need_micro_batch(Place p, Slot slot, Holds holds, std::int32_t shard) const {
  const Content wanted{holds, shard, at(p).micro_batch, {}};
  if (!content(p.rank, slot).same_thing(wanted)) unexpected(p, slot, describe(wanted));
}

void Contents::need_gradient(Place p, Slot slot, Range range) const {
  const Content& c = content(p.rank, slot);
  const bool lasting = slot.cls == SlotClass::total || slot.cls == SlotClass::ends_total;
  if (c.holds != Holds::gradient && lasting)
    fail(Rule::exact_gradients, p,
         fmt::format("{} still holds the gradient of the last step", detail::name_of(slot)));
  if (c.holds != Holds::gradient) unexpected(p, slot, "a gradient");
  if (!c.pieces.covers(range))
    fail(Rule::exact_gradients, p,
         fmt::format("{} lacks a slice of the sum that is read", detail::name_of(slot)));
}

void Contents::need_both_ends(Place p, Slot slot) const {
  const int slice = program_.ranks[p.rank].ends_slice;
  const std::uint8_t needed =
      slice < 0 ? both_ends : ends_bit(slice == 0 ? Contribution::embedding : Contribution::head);
  if ((ends_written_[p.rank] & needed) != needed)
    fail(Rule::exact_gradients, p,
         fmt::format("{} still holds a gradient of the last step", detail::name_of(slot)));
}

void Contents::need_complete(Place p, Slot slot, Range range, const std::vector<std::int32_t>& parts) {
  need_gradient(p, slot, range);
  if (of_ends(slot.cls)) need_both_ends(p, slot);
  auto known = complete_.find(parts);
  if (known == complete_.end())
    known = complete_.emplace(parts, Sum::complete(parts, program_.micro_batches, listed_)).first;
  for (const Piece& piece : content(p.rank, slot).pieces.within(range))
    if (const std::string defect = piece.sum.defect(known->second); !defect.empty())
      fail(Rule::exact_gradients, p, fmt::format("in {}, {}", detail::name_of(slot), defect));
}

void Contents::once(Place p, std::int32_t part, std::uint8_t work) {
  std::uint8_t& done = done_[static_cast<std::size_t>(part) * program_.micro_batches + at(p).micro_batch];
  if ((done & work) != 0) fail(Rule::exact_gradients, p, "has been computed before in this step");
  done |= work;
}

// Compute

void Contents::embed(Place p) {
  const Action& a = at(p);
  need_ends(p, a.slots[1], Contribution::embedding);
  once(p, program_.shards, embed_done);
  content(p.rank, a.slots[0]) = {Holds::hidden, 0, a.micro_batch, {}};
}

void Contents::forward(Place p) {
  const Action& a = at(p);
  need_weights(p, a.slots[0]);
  need_micro_batch(p, a.slots[2], Holds::hidden, a.shard);
  once(p, a.shard, forward_done);
  content(p.rank, a.slots[1]) = {Holds::kept, a.shard, a.micro_batch, {}};
  content(p.rank, a.slots[2]).shard = a.shard + 1;
}

void Contents::loss(Place p) {
  const Action& a = at(p);
  need_micro_batch(p, a.slots[0], Holds::hidden, program_.shards);
  need_ends(p, a.slots[1], Contribution::head);
  once(p, program_.shards, loss_done);
  content(p.rank, a.slots[0]).holds = Holds::hidden_gradient;
  content(p.rank, a.slots[0]).shard = program_.shards - 1;
  add_gradient(p, a.slots[2], Contribution::head);
}

void Contents::backward(Place p) {
  backward_input(p);
  once(p, at(p).shard, weight_done);
  add_gradient(p, at(p).slots[3], at(p).shard);
}

void Contents::backward_input(Place p) {
  const Action& a = at(p);
  need_weights(p, a.slots[0]);
  need_micro_batch(p, a.slots[1], Holds::kept, a.shard);
  need_micro_batch(p, a.slots[2], Holds::hidden_gradient, a.shard);
  once(p, a.shard, input_done);
  content(p.rank, a.slots[2]).shard = a.shard - 1;
  if (a.kind == Kind::backward_input)
    content(p.rank, a.slots[3]) = {Holds::stash, a.shard, a.micro_batch, {}};
}

void Contents::backward_weight(Place p) {
  const Action& a = at(p);
  need_micro_batch(p, a.slots[0], Holds::kept, a.shard);
  need_micro_batch(p, a.slots[1], Holds::stash, a.shard);
  once(p, a.shard, weight_done);
  add_gradient(p, a.slots[2], a.shard);
}

void Contents::embed_backward(Place p) {
  const Action& a = at(p);
  need_micro_batch(p, a.slots[0], Holds::hidden_gradient, -1);
  once(p, program_.shards, embed_backward_done);
  add_gradient(p, a.slots[1], Contribution::embedding);
}

void Contents::add_gradient(Place p, Slot slot, std::int32_t part) {
  if (of_ends(slot.cls)) write_ends(p, slot, part);
  else if (!at(p).accumulates) hold(p, slot, Holds::gradient, -1);
  Sum one(listed_);
  one.add({part, at(p).micro_batch});
  grow(p, slot, slot.cls == SlotClass::ends_total ? ends_range(part) : whole(slot.cls), one);
}

void Contents::write_ends(Place p, Slot slot, std::int32_t part) {
  std::uint8_t& written = ends_written_[p.rank];
  const bool before = (written & ends_bit(part)) != 0;
  if (at(p).accumulates && !before)
    fail(Rule::exact_gradients, p,
         fmt::format("adds to the gradient of the last step in {}", detail::name_of(slot)));
  if (!at(p).accumulates && before)
    fail(Rule::exact_gradients, p,
         fmt::format("overwrites what this step has added to {}", detail::name_of(slot)));
  if (written == 0) hold(p, slot, Holds::gradient, -1);
  written |= ends_bit(part);
}

void Contents::grow(Place p, Slot slot, Range range, const Sum& more) {
  need_gradient(p, slot, range);
  const std::size_t bound =
      static_cast<std::size_t>(slot.cls == SlotClass::ends_total ? 2 : 1) * program_.micro_batches;
  content(p.rank, slot).pieces.change(range, [&](Piece& piece) {
    if (piece.sum.size() + more.size() > bound)
      fail(Rule::exact_gradients, p,
           fmt::format("adds more contributions to {} than there are micro-batches", detail::name_of(slot)));
    piece.sum.add(more);
  });
}

void Contents::update(Place p) {
  const Action& a = at(p);
  const Range held = extent(p.rank, SlotClass::home);
  const Content& weights = content(p.rank, a.slots[0]);
  if (weights.holds != Holds::weights || weights.shard != a.shard ||
      std::ranges::any_of(weights.pieces, &Piece::updated))
    unexpected(p, a.slots[0], fmt::format("the weights of shard {}", a.shard));
  need_complete(p, a.slots[1], held, {a.shard});
  content(p.rank, a.slots[0]).pieces.change(held, [](Piece& piece) { piece.updated = true; });
}

void Contents::update_ends(Place p) {
  const Action& a = at(p);
  const Range slice{a.shard, a.shard + 1};
  std::vector<std::int32_t> parts = {Contribution::embedding, Contribution::head};
  if (program_.ends_split) parts = {a.shard == 0 ? Contribution::embedding : Contribution::head};
  need_complete(p, a.slots[1], slice, parts);
  Pieces& pieces = content(p.rank, a.slots[0]).pieces;
  if (!pieces.covers(slice)) unexpected(p, a.slots[0], fmt::format("slice {} of the ends", a.shard));
  pieces.change(slice, [&](Piece& piece) {
    if (piece.updated) fail(Rule::exact_gradients, p, "updates the slice a second time");
    piece.updated = true;
  });
}

void Contents::zero(Place p) { hold(p, at(p).slots[0], Holds::gradient, -1); }

void Contents::accumulate(Place p) {
  need_payload(p);
  const Action& a = at(p);
  if (!a.accumulates) return receive(Content(content(p.rank, a.slots[0])), moved(a), p, a.slots[1]);
  const Pieces source = content(p.rank, a.slots[0]).pieces.within(moved(a));
  for (const Piece& piece : source) grow(p, a.slots[1], piece.range, piece.sum);
}

void Contents::check_end() const {
  for (std::size_t i = 0; i < done_.size(); ++i)
    if (done_[i] != all_done) {
      const int part = static_cast<int>(i) / program_.micro_batches;
      throw detail::Refusal{
          {Rule::exact_gradients, -1, -1,
           fmt::format("the program: micro-batch {} is not computed forward and backward through {}",
                       static_cast<int>(i) % program_.micro_batches,
                       part == program_.shards ? "the ends" : part_name(part))}};
    }
  const auto stale = [&](int rank, Slot slot) {
    return std::ranges::any_of(content(rank, slot).pieces, [](const Piece& p) { return !p.updated; });
  };
  for (int r = 0; r < static_cast<int>(program_.ranks.size()); ++r) {
    const RankProgram& rank = program_.ranks[r];
    for (std::int16_t h = 0; h < static_cast<int>(rank.homes.size()); ++h)
      if (const Slot slot{SlotClass::home, h}; stale(r, slot))
        fail(Rule::exact_gradients, {r, -1},
             fmt::format("h{} still holds {} at the end", h, describe(content(r, slot))));
    for (std::int16_t e = 0; e < rank.slots[index(SlotClass::ends)]; ++e)
      if (stale(r, {SlotClass::ends, e}))
        fail(Rule::exact_gradients, {r, -1}, fmt::format("e{} is not updated as a whole at the end", e));
  }
}

}  // namespace minitaw::schedule
