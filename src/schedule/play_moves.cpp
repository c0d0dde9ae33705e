// What transfers do to the contents of slots.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "schedule/play_contents.hpp"

namespace minitaw::schedule {

Range Contents::moved(const Action& a) const {
  const bool ends = a.payload == Payload::ends || a.payload == Payload::ends_gradient;
  const std::int32_t each = (ends ? program_.ends_slices : program_.shard_parts) / a.parts;
  return {a.part * each, (a.part + 1) * each};
}

Range Contents::slice(std::span<const Place> calls, std::size_t i) const {
  const Range range = moved(at(calls.front()));
  const auto members = static_cast<std::int32_t>(calls.size());
  if (range.size() % members != 0)
    fail(Rule::same_collectives, calls.front(),
         fmt::format("{} parts cannot be shared by {} ranks", range.size(), members));
  const std::int32_t each = range.size() / members;
  const std::int32_t begin = range.begin + static_cast<std::int32_t>(i) * each;
  return {begin, begin + each};
}

/// slots[0] holds what the action says that it moves.
void Contents::need_payload(Place p) const {
  const Action& a = at(p);
  const Slot slot = a.slots[0];
  const Content& c = content(p.rank, slot);
  switch (a.payload) {
  case Payload::weights:
    if (c.holds != Holds::weights || c.shard != a.shard || !c.pieces.covers(moved(a)))
      unexpected(p, slot, fmt::format("the weights of shard {}", a.shard));
    return;
  case Payload::gradient:
    need_gradient(p, slot, moved(a));
    return need_only(p, moved(a));
  case Payload::activation:
    return need_micro_batch(p, slot, Holds::hidden, a.shard);
  case Payload::activation_grad:
    return need_micro_batch(p, slot, Holds::hidden_gradient, a.shard - 1);
  case Payload::ends_gradient:
    need_gradient(p, slot, moved(a));
    return need_both_ends(p, slot);
  default:
    return;
  }
}

/// Nothing but gradients of the action's shard.
void Contents::need_only(Place p, Range range) const {
  const Action& a = at(p);
  for (const Piece& piece : content(p.rank, a.slots[0]).pieces.within(range)) {
    if (piece.sum.only(a.shard)) continue;
    const Contribution* foreign = piece.sum.foreign(a.shard);
    const Contribution named = foreign != nullptr ? *foreign : Contribution{};
    fail(Rule::exact_gradients, p,
         fmt::format("{} holds a gradient of {} (micro-batch {}), expected only shard {}",
                     detail::name_of(a.slots[0]), part_name(named.part), named.micro_batch, a.shard));
  }
}

/// A part joins what is there of the same thing; anything else is replaced.
void Contents::receive(const Content& from, Range range, Place to, Slot slot) {
  Content& target = content(to.rank, slot);
  const Pieces pieces = from.pieces.within(range);
  if (target.same_thing(from) && range != whole(slot.cls)) return target.pieces.put(range, pieces);
  target = {from.holds, from.shard, from.micro_batch, pieces};
}

void Contents::message(Place send, Place receiver) {
  need_payload(send);
  const Content from = content(send.rank, at(send).slots[0]);
  receive(from, moved(at(send)), receiver, at(receiver).slots[0]);
}

void Contents::load(Place p) {
  const Action& a = at(p);
  const Content& home = content(p.rank, a.slots[0]);
  if (home.holds != Holds::weights || home.shard != a.shard)
    unexpected(p, a.slots[0], fmt::format("the weights of shard {}", a.shard));
  receive(Content(home), extent(p.rank, SlotClass::home), p, a.slots[1]);
}

void Contents::collective(std::span<const Place> calls) {
  const Action& a = at(calls.front());
  if (a.kind == Kind::reduce_scatter) return reduce_scatter(calls);
  if (a.kind == Kind::all_gather) return all_gather(calls);
  if (a.kind != Kind::broadcast) return reduce(calls);
  const auto root = std::ranges::find(calls, a.peer, &Place::rank);
  for (const Place call : calls)
    if (call.rank != a.peer) message(*root, call);
}

void Contents::reduce(std::span<const Place> calls) {
  const Range range = moved(at(calls.front()));
  const Pieces sum = union_of(calls, range);
  for (const Place call : calls)
    if (const Action& a = at(call); a.kind == Kind::all_reduce || call.rank == a.peer)
      content(call.rank, a.slots[0]).pieces.put(range, sum);
}

Pieces Contents::union_of(std::span<const Place> calls, Range range) const {
  std::set<std::int32_t> borders = {range.begin, range.end};
  for (const Place call : calls) {
    need_payload(call);
    if (content(call.rank, at(call).slots[0]).holds != Holds::gradient)
      fail(Rule::fresh_reads, call, "only gradients can be added up");
    for (const Piece& piece : content(call.rank, at(call).slots[0]).pieces.within(range))
      borders.insert(piece.range.begin);
  }
  const bool ends = at(calls.front()).payload == Payload::ends_gradient;
  const std::size_t bound = static_cast<std::size_t>(ends ? 2 : 1) * program_.micro_batches;
  Pieces result;
  for (auto border = borders.begin(); std::next(border) != borders.end(); ++border) {
    Piece piece{{*border, *std::next(border)}, false, Sum(listed_)};
    for (const Place call : calls)
      for (const Piece& part : content(call.rank, at(call).slots[0]).pieces.within(piece.range)) {
        if (piece.sum.size() + part.sum.size() > bound)
          fail(Rule::exact_gradients, call, "the sum has more contributions than there are micro-batches");
        piece.sum.add(part.sum);
      }
    result.put(piece.range, Pieces(piece));
  }
  return result;
}

void Contents::reduce_scatter(std::span<const Place> calls) {
  const Range range = moved(at(calls.front()));
  const Pieces sum = union_of(calls, range);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Pieces& pieces = content(calls[i].rank, at(calls[i]).slots[0]).pieces;
    pieces.clear(range);
    pieces.put(slice(calls, i), sum.within(slice(calls, i)));
  }
}

void Contents::all_gather(std::span<const Place> calls) {
  const Action& first = at(calls.front());
  const bool ends = first.payload == Payload::ends;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Slot slot = at(calls[i]).slots[0];
    const Content& c = content(calls[i].rank, slot);
    const Pieces own = c.pieces.within(slice(calls, i));
    const bool right = ends || (c.holds == Holds::weights && c.shard == first.shard);
    if (!right || !own.covers(slice(calls, i)))
      unexpected(calls[i], slot, fmt::format("slice {} of the weights of shard {}", i, first.shard));
    if (ends && !std::ranges::all_of(own, &Piece::updated))
      fail(Rule::fresh_reads, calls[i], fmt::format("slice {} is not updated yet", i));
  }
  const Range range = moved(first);
  for (const Place call : calls)
    content(call.rank, at(call).slots[0]).pieces.put(range, Pieces({range, ends, Sum(listed_)}));
}

}  // namespace minitaw::schedule
