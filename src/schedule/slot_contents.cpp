// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/slot_contents.hpp"
#include <algorithm>
#include <utility>

namespace minitaw::schedule::detail {
namespace {
using enum Rule;
using enum Operand;
}  // namespace

SlotContents::SlotContents(const Program& program) : Check(program) {
  for (int r = 0; r < std::ssize(program.ranks); ++r) {
    const RankProgram& rank = program.ranks[r];
    auto& slots = slots_.emplace_back();
    for (std::size_t c = 0; c < slot_classes; ++c)
      slots[c].resize(rank.slots[c]);
    for (std::size_t k = 0; k < rank.owned_shards.size(); ++k)
      slots[index_of(SlotClass::owned)][k] = blank(r, SlotClass::owned, rank.owned_shards[k]);
    for (Content& e : slots[index_of(SlotClass::embeddings)])
      e = blank(r, SlotClass::embeddings, -1);
  }
}

Content& SlotContents::content(Place p, Operand operand) {
  const Slot slot = at(p)[operand];
  return slots_[p.rank][index_of(slot.cls)][slot.index];
}

void SlotContents::unexpected(Rule rule, Place p, Operand operand, const Content& wanted) {
  const Slot slot = at(p)[operand];
  fail(rule,
      p,
      "{} holds {}, expected {}",
      describe(slot),
      describe(slot.cls, content(p, operand)),
      describe(slot.cls, wanted));
}

Interval SlotContents::extent(int rank, SlotClass cls) const {
  return interval_of(whole(cls).size(), part_of(program_, rank, cls));
}

Interval SlotContents::moved(const Action& a) const {
  return interval_of(parts_of(program_, row_of(a.payload).data), {a.part, a.parts});
}

Interval SlotContents::slice(Sides calls, std::size_t i) const {
  const Interval range = moved(at(calls.front()));
  const int members = static_cast<int>(calls.size());
  if (range.size() % members != 0)
    fail(same_collectives,
        calls.front(),
        "{} parts cannot be shared by {} ranks",
        range.size(),
        members);
  const Interval among = interval_of(range.size(), {static_cast<int>(i), members});
  return {range.begin + among.begin, range.begin + among.end};
}

SlotContents::Tensors SlotContents::shard(std::int32_t number) const {
  const int sorts = program_.blocks.empty() ? 1 : gradient_segments * program_.blocks[number];
  return {{0, program_.shard_parts}, {0, sorts * contributions()}};
}

SlotContents::Tensors SlotContents::segment_tensors(const Action& a) const {
  const std::int32_t first = segment_of(a) * contributions();
  return {{0, program_.shard_parts}, {first, first + contributions()}};
}

SlotContents::Tensors SlotContents::embedding() const {
  return {{0, program_.embeddings_split ? 1 : program_.embeddings_slices}, {0, contributions()}};
}

SlotContents::Tensors SlotContents::head() const {
  return {{program_.embeddings_split ? 1 : 0, program_.embeddings_slices},
      {contributions(), 2 * contributions()}};
}

std::vector<SlotContents::Tensors> SlotContents::tensors_of(
    SlotClass cls, std::int32_t number) const {
  return of_embeddings(cls) ? std::vector{embedding(), head()} : std::vector{shard(number)};
}

std::string SlotContents::contribution_text(Place p, std::int32_t number) const {
  const Action& a = at(p);
  if (a.payload == Payload::squares || a.kind == Kind::square)
    return "the squares of a gradient";
  if (a.payload == Payload::key_gradient)
    return fmt::format("rank {} of the context group", number);
  const bool of_shard = a.shard >= 0 && !of_embeddings(a.payload);
  const std::string part = of_shard                   ? fmt::format("shard {}", a.shard)
                           : number < contributions() ? "the embedding"
                                                      : "the head";
  const std::int32_t of_sort = number % contributions();
  const std::int32_t micro_batch = of_sort / program_.context;
  if (program_.context == 1)
    return fmt::format("micro-batch {} of {}", micro_batch, part);
  return fmt::format(
      "part {} of micro-batch {} of {}", of_sort % program_.context, micro_batch, part);
}

Content SlotContents::blank(int rank, SlotClass cls, std::int32_t shard) const {
  return {.valid = true, .shard = shard, .pieces = Pieces({extent(rank, cls)})};
}

Content SlotContents::wanted(Place p, Operand operand) const {
  const Action& a = at(p);
  Content content{.valid = true, .shard = of_embeddings(a[operand].cls) ? -1 : a.shard};
  if (row_of(a[operand].cls).data == Data::keys) {
    content.micro_batch = a.micro_batch;
    content.block = a.block;
  }
  return content;
}

void SlotContents::need_weights(Place p, Operand operand, Interval range, bool updated_too) {
  const Content& c = content(p, operand);
  const bool stale = !updated_too && c.pieces.any(range, &Piece::updated);
  if (stale || !c.same_thing(wanted(p, operand)) || !c.pieces.covers(range))
    unexpected(fresh_reads, p, operand, wanted(p, operand));
}

Content SlotContents::activations(
    Place p, std::int32_t shard, bool backward, std::int32_t block) const {
  const int part = program_.context > 1 ? context_part(program_, p.rank).index : -1;
  return {true, shard, at(p).micro_batch, backward, part, block};
}

void SlotContents::need(
    Place p, Operand operand, std::int32_t shard, bool backward, std::int32_t block) {
  const Content expected = activations(p, shard, backward, block);
  if (!content(p, operand).same_thing(expected))
    unexpected(fresh_reads, p, operand, expected);
}

void SlotContents::need_keys(Place p, Operand operand, Interval range) {
  const Content& c = content(p, operand);
  if (!c.same_thing(wanted(p, operand)))
    unexpected(fresh_reads, p, operand, wanted(p, operand));
  if (!c.pieces.covers(range))
    fail(fresh_reads, p, "{} lacks chunks of the sequences", describe(at(p)[operand]));
}

void SlotContents::need_key_gradient(Place p, Operand operand, Interval range, bool complete) {
  need_keys(p, operand, range);
  for (const Piece& piece : content(p, operand).pieces.within(range))
    if (const std::int32_t missing = piece.sum.first_missing(0);
        complete && missing < program_.context)
      fail(exact_gradients,
          p,
          "in {}, the contribution of rank {} of the context group is missing",
          describe(at(p)[operand]),
          missing);
}

std::vector<std::int32_t> SlotContents::chunks_of(int rank) const {
  const auto [index, count] = context_part(program_, rank);
  std::vector<std::int32_t> chunks;
  for (std::int32_t first = 0; first < whole(SlotClass::keys).end; first += 2 * count)
    chunks.insert(chunks.end(), {first + index, first + 2 * count - 1 - index});
  return chunks;
}

void SlotContents::leave_keys(Place p, Operand operand) {
  Content& c = content(p, operand);
  c = wanted(p, operand);
  for (const std::int32_t chunk : chunks_of(p.rank))
    c.pieces.put({chunk, chunk + 1}, Pieces({{chunk, chunk + 1}}));
}

void SlotContents::leave_key_gradient(Place p, Operand operand) {
  const std::int32_t rank = context_part(program_, p.rank).index;
  Content& c = content(p, operand);
  c = wanted(p, operand);
  c.pieces = Pieces({whole(SlotClass::key_gradient), false, Sum({{rank, rank + 1}})});
}

std::int32_t SlotContents::blocks_of(const Action& a) const {
  return program_.blocks.empty() ? 1 : program_.blocks[a.shard];
}

std::int32_t SlotContents::visits_of_all_slices(const Action& a) const {
  return program_.slices * blocks_of(a) * program_.key_parts;
}

std::int32_t SlotContents::before_forward(const Action& a) const {
  const std::int32_t slice = slice_of(program_, a.micro_batch);
  return (slice * blocks_of(a) + std::max<int>(a.block, 0)) * program_.key_parts + a.part;
}

std::int32_t SlotContents::before_backward(const Action& a) const {
  const std::int32_t later = program_.slices - 1 - slice_of(program_, a.micro_batch);
  return later * blocks_of(a) + (a.block < 0 ? 0 : blocks_of(a) - 1 - a.block);
}

Content SlotContents::prefix(Place p, std::int32_t count) const {
  const Action& a = at(p);
  return {.valid = true,
      .shard = a.shard,
      .micro_batch = a.micro_batch / program_.slices,
      .block = count};
}

bool SlotContents::has_prefix(Place p, Operand operand) const {
  const Slot slot = at(p)[operand];
  const bool sliced = program_.slices > 1;
  if (sliced != (slot.valid() && row_of(slot.cls).data == Data::prefix))
    fail(fresh_reads,
        p,
        "{} keys and values that slices share, or their gradient",
        sliced ? "needs" : "has no use for");
  return sliced;
}

void SlotContents::need_prefix(Place p, Operand operand, std::int32_t count) {
  if (has_prefix(p, operand) && !content(p, operand).same_thing(prefix(p, count)))
    unexpected(operand == keys ? fresh_reads : exact_gradients, p, operand, prefix(p, count));
}

void SlotContents::extend(Place p, Operand operand, std::int32_t before) {
  if (!has_prefix(p, operand))
    return;
  const Action& a = at(p);
  if (a.extends)
    need_prefix(p, operand, before);
  else if (before > 0)
    fail(operand == keys ? fresh_reads : exact_gradients,
        p,
        "begins {} that slices before it need",
        describe(a[operand]));
  const bool whole_visit = !is_segment(a.kind);
  const std::int32_t added = whole_visit ? blocks_of(a) * program_.key_parts : 1;
  content(p, operand) = prefix(p, before + added);
}

void SlotContents::need_gradient(Place p, Operand operand, Interval range) {
  const Content& c = content(p, operand);
  const Slot slot = at(p)[operand];
  if (!c.valid && is_permanent(slot.cls))
    fail(exact_gradients, p, "{} still holds the gradient of the last step", describe(slot));
  if (!c.same_thing(wanted(p, operand)))
    unexpected(c.valid ? exact_gradients : fresh_reads, p, operand, wanted(p, operand));
  if (!c.pieces.covers(range))
    fail(exact_gradients, p, "{} lacks a slice of the sum that is read", describe(slot));
}

void SlotContents::need_payload(Place p, Operand operand) {
  const Action& a = at(p);
  switch (a.payload) {
  case Payload::weights: return need_weights(p, operand, moved(a), true);
  case Payload::activation: return need(p, operand, a.shard);
  case Payload::activation_grad: return need(p, operand, a.shard - 1, true);
  case Payload::keys: return need_keys(p, operand, moved(a));
  case Payload::key_gradient: return need_key_gradient(p, operand, moved(a), false);
  case Payload::gradient:
  case Payload::squares: return need_gradient(p, operand, moved(a));
  case Payload::embeddings_gradient:
    need_gradient(p, operand, moved(a));
    for (const Tensors& tensors : {embedding(), head()})
      if (extent(p.rank, a[operand].cls).meets(tensors.parts) && !written(p, operand, tensors))
        fail(
            exact_gradients, p, "{} still holds a gradient of the last step", describe(a[operand]));
    return;
  default: return;
  }
}

bool SlotContents::written(Place p, Operand operand, const Tensors& tensors) {
  return content(p, operand).pieces.any(tensors.parts, [&](const Piece& piece) {
    return piece.sum.any(tensors.numbers);
  });
}

void SlotContents::leave(
    Place p, Operand operand, std::int32_t shard, bool backward, std::int32_t block) {
  content(p, operand) = activations(p, shard, backward, block);
}

void SlotContents::contribute(Place p, const Tensors& tensors, bool begins) {
  const Slot slot = at(p)[gradient];
  const bool adds = at(p).accumulates, replaces = begins && !adds;
  // Others write different tensors of the slot.
  const bool apart = of_embeddings(slot.cls) || is_segment(at(p).kind);
  if (apart && !replaces && adds != written(p, gradient, tensors)) {
    if (adds)
      fail(exact_gradients, p, "adds to the gradient of the last step in {}", describe(slot));
    fail(exact_gradients, p, "overwrites what this step has added to {}", describe(slot));
  }
  Content& c = content(p, gradient);
  if (apart ? !c.valid || replaces : !adds)
    c = blank(p.rank, slot.cls, wanted(p, gradient).shard);
  need_gradient(p, gradient, tensors.parts);
  std::vector<Interval> numbers;
  for (std::int32_t sort = tensors.numbers.begin; sort < tensors.numbers.end;
      sort += contributions()) {
    const std::int32_t number =
        sort + at(p).micro_batch * program_.context + context_part(program_, p.rank).index;
    numbers.push_back({number, number + 1});
  }
  add(p, c.pieces, Pieces({tensors.parts, false, Sum(std::move(numbers))}));
}

void SlotContents::add(Place p, Pieces& sum, const Pieces& more) const {
  for (const Piece& piece : more)
    sum.change(piece.range, [&](Piece& to) {
      if (const std::int32_t twice = to.sum.add(piece.sum); twice >= 0)
        fail(exact_gradients, p, "counts {} twice", contribution_text(p, twice));
    });
}

Interval SlotContents::need_whole_gradient(Place p) {
  const Action& a = at(p);
  const Interval range =
      of_embeddings(a.payload) ? Interval{a.shard, a.shard + 1} : extent(p.rank, SlotClass::owned);
  need_gradient(p, gradient, range);
  for (const Tensors& tensors : tensors_of(a[gradient].cls, a.shard))
    for (const Piece& piece : content(p, gradient).pieces.within(range.common(tensors.parts)))
      if (const std::int32_t missing = piece.sum.first_missing(tensors.numbers.begin);
          missing < tensors.numbers.end)
        fail(exact_gradients,
            p,
            "in {}, {} is missing",
            describe(a[gradient]),
            contribution_text(p, missing));
  return range;
}
}  // namespace minitaw::schedule::detail
