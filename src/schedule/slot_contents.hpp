// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <array>
#include <utility>
#include "schedule/execute.hpp"
#include "schedule/pieces.hpp"

namespace minitaw::schedule::detail {
/// The contents of all slots of a program. need...() refuses wrong reads (fresh_reads) and lost or
/// repeated gradients (exact_gradients), leave...() writes. contents.cpp calls them for each
/// action.
class SlotContents : protected Check {
protected:
  using enum Rule;
  using enum Operand;

  explicit SlotContents(const Program& program) : Check(program) {
    for (const int r : indices(program.ranks)) {
      const RankProgram& rank = program.ranks[r];
      auto& slots = slots_.emplace_back();
      for (std::size_t c = 0; c < slot_classes; ++c)
        slots[c].resize(rank.slots[c]);
      for (const int k : indices(rank.owned_shards))
        slots[index_of(SlotClass::owned)][k] = blank(r, SlotClass::owned, rank.owned_shards[k]);
      for (Content& e : slots[index_of(SlotClass::embeddings)])
        e = blank(r, SlotClass::embeddings, -1);
    }
  }

  /// Tensors whose gradient gets a contribution from every part of every micro-batch: where they
  /// are in a slot, and the numbers of the contributions.
  struct Tensors {
    Interval parts, numbers;
  };

  Content& content(Place p, Operand operand) {
    const Slot slot = at(p)[operand];
    return slots_[p.rank][index_of(slot.cls)][slot.index];
  }

  [[noreturn]] void unexpected(Rule rule, Place p, Operand operand, const Content& wanted) {
    const Slot slot = at(p)[operand];
    fail(rule,
        p,
        "{} holds {}, expected {}",
        describe(slot),
        describe(slot.cls, content(p, operand)),
        describe(slot.cls, wanted));
  }

  // Parts of what slots hold.

  /// All parts of what a slot of this class holds.
  Interval whole(SlotClass cls) const { return {0, parts_of(program_, row_of(cls).data)}; }

  /// Returns the parts that a slot of the rank can hold.
  Interval extent(int rank, SlotClass cls) const {
    return interval_of(whole(cls).size(), part_of(program_, rank, cls));
  }

  Interval moved(const Action& a) const {
    return interval_of(parts_of(program_, row_of(a.payload).data), {a.part, a.parts});
  }

  /// Returns member i's equal share of a collective; refuses a part that cannot be
  /// divided.
  Interval share_of(Sides calls, int i) const {
    const Interval range = moved(at(calls.front()));
    const int members = std::ssize(calls);
    if (range.size() % members != 0)
      fail(same_collectives,
          calls.front(),
          "{} parts cannot be shared by {} ranks",
          range.size(),
          members);
    const Interval among = interval_of(range.size(), {i, members});
    return {range.begin + among.begin, range.begin + among.end};
  }

  // Contributions to gradients.

  /// Contributions of one sort in a replica: one of each part of each micro-batch.
  std::int32_t own_contributions() const { return program_.micro_batches * program_.context; }

  /// And of one sort in all of them: behind those of the replica as many for all others together.
  std::int32_t contributions() const {
    return (program_.replicas > 1 ? 2 : 1) * own_contributions();
  }

  /// All tensors of a shard. Where visits have segments, each gives those of its own tensors.
  Tensors shard(std::int32_t number) const {
    const int sorts = program_.blocks.empty() ? 1 : gradients_of_block * program_.blocks[number];
    return {{0, program_.shard_parts}, {0, sorts * contributions()}};
  }

  /// The tensors whose gradient a visit or a segment gives.
  Tensors tensors_of(const Action& a) const {
    if (!is_segment(a))
      return shard(a.shard);
    const std::int32_t first = gradient_number(a) * contributions();
    return {{0, program_.shard_parts}, {first, first + contributions()}};
  }

  Tensors embedding() const {
    return {{0, program_.embeddings_split ? 1 : program_.embeddings_parts}, {0, contributions()}};
  }

  Tensors head() const {
    return {{program_.embeddings_split ? 1 : 0, program_.embeddings_parts},
        {contributions(), 2 * contributions()}};
  }

  /// The embeddings by what gives their gradient; tied, both ends give that of one matrix.
  std::vector<Tensors> of_ends() const {
    if (program_.tied)
      return {{embedding().parts, {0, 2 * contributions()}}};
    return {embedding(), head()};
  }

  /// "micro-batch 1 of shard 2": a contribution to the gradient that an action is about.
  std::string contribution_text(Place p, std::int32_t number) const {
    const Action& a = at(p);
    if (a.payload == Payload::squares || a.kind == Kind::square)
      return "the squares of a gradient";
    if (a.payload == Payload::key_gradient)
      return fmt::format("rank {} of the context group", number);
    const bool of_shard = a.shard >= 0 && !of_embeddings(a.payload);
    const std::string part = of_shard                   ? fmt::format("shard {}", a.shard)
                             : number < contributions() ? "the embedding"
                                                        : "the head";
    const std::int32_t of_sort = number % contributions(), own = of_sort % own_contributions();
    const std::int32_t n = program_.context;
    std::string text = fmt::format("micro-batch {} of {}", own / n, part);
    if (n > 1)
      text = fmt::format("part {} of {}", own % n, text);
    return own == of_sort ? text : text + " of the other replicas";
  }

  // Needs of actions, and what they leave.

  /// Weights as before the step, or a gradient without contributions, in all that a slot can hold.
  Content blank(int rank, SlotClass cls, std::int32_t shard) const {
    return {.valid = true, .shard = shard, .pieces = Pieces({extent(rank, cls)})};
  }

  /// The right content of a slot for weights or gradients of the action.
  Content wanted(Place p, Operand operand) const {
    const Action& a = at(p);
    Content content{.valid = true, .shard = of_embeddings(a[operand].cls) ? -1 : a.shard};
    if (row_of(a[operand].cls).data == Data::keys) {
      content.micro_batch = a.micro_batch;
      content.block = a.block;
    }
    return content;
  }

  /// Refuses the program unless the slot holds what it should, in all of `range`.
  void need_parts(Rule rule, Place p, Operand operand, Interval range) {
    const Content& c = content(p, operand);
    if (!c.same_thing(wanted(p, operand)))
      unexpected(c.valid ? rule : fresh_reads, p, operand, wanted(p, operand));
    if (!c.pieces.covers(range))
      fail(rule, p, "{} lacks a part that is read", describe(at(p)[operand]));
  }

  void need_weights(Place p, Operand operand, Interval range, bool updated_too = false) {
    need_parts(fresh_reads, p, operand, range);
    if (!updated_too && content(p, operand).pieces.any(range, &Piece::updated))
      unexpected(fresh_reads, p, operand, wanted(p, operand));
  }

  // Activations.

  /// The rank's activations of `shard` and the action's micro-batch.
  Content activations(Place p, std::int32_t shard, bool backward, std::int32_t block) const {
    const int part = program_.context > 1 ? context_part(program_, p.rank).index : -1;
    return {true, shard, at(p).micro_batch, backward, part, block};
  }

  /// Refuses the program unless the slot holds the data of `shard` and the action's micro-batch;
  /// `block`: as far as the visit has come.
  void need(
      Place p, Operand operand, std::int32_t shard, bool backward = false, std::int32_t block = 0) {
    const Content expected = activations(p, shard, backward, block);
    if (!content(p, operand).same_thing(expected))
      unexpected(fresh_reads, p, operand, expected);
  }

  void leave(
      Place p, Operand operand, std::int32_t shard, bool backward = false, std::int32_t block = 0) {
    content(p, operand) = activations(p, shard, backward, block);
  }

  // Keys and values of whole sequences, and their gradient.

  /// Keys of the action's block and micro-batch.
  void need_keys(Place p, Operand operand, Interval range) {
    need_parts(fresh_reads, p, operand, range);
  }

  /// Their gradient, summed over the ranks that share the sequences.
  void need_key_gradient(Place p, Operand operand, Interval range) {
    need_keys(p, operand, range);
    for (const Piece& piece : content(p, operand).pieces.within(range))
      if (const std::int32_t missing = piece.sum.first_missing(0); missing < program_.context)
        fail(exact_gradients,
            p,
            "in {}, the contribution of rank {} of the context group is missing",
            describe(at(p)[operand]),
            missing);
  }

  /// A rank's own chunks, a head and a tail for each part of the heads, among those of all ranks.
  std::vector<std::int32_t> chunks_of(int rank) const {
    const auto [index, count] = context_part(program_, rank);
    std::vector<std::int32_t> chunks;
    for (std::int32_t first = 0; first < whole(SlotClass::keys).end; first += 2 * count)
      chunks.insert(chunks.end(), {first + index, first + 2 * count - 1 - index});
    return chunks;
  }

  void leave_keys(Place p, Operand operand) {
    Content& c = content(p, operand);
    c = wanted(p, operand);
    for (const std::int32_t chunk : chunks_of(p.rank))
      c.pieces.put({chunk, chunk + 1}, Pieces({{chunk, chunk + 1}}));
  }

  /// A rank's contribution to that of all positions.
  void leave_key_gradient(Place p, Operand operand) {
    const std::int32_t rank = context_part(program_, p.rank).index;
    Content& c = content(p, operand);
    c = wanted(p, operand);
    c.pieces = Pieces({whole(SlotClass::key_gradient), false, Sum({{rank, rank + 1}})});
  }

  // Slices. What those of a micro-batch share is followed as a count of visits of blocks, in parts
  // by heads: they fill it in their order, and add to its gradient in the reverse order.

  std::int32_t blocks_of(const Action& a) const {
    return program_.blocks.empty() ? 1 : program_.blocks[a.shard];
  }

  /// The count before the action.
  std::int32_t before_forward(const Action& a) const {
    const std::int32_t slice = slice_of(program_, a.micro_batch);
    return (slice * blocks_of(a) + std::max<int>(a.block, 0)) * program_.key_parts + a.part;
  }

  std::int32_t before_backward(const Action& a) const {
    const std::int32_t later = program_.slices - 1 - slice_of(program_, a.micro_batch);
    return later * blocks_of(a) + (a.block < 0 ? 0 : blocks_of(a) - 1 - a.block);
  }

  Content prefix(Place p, std::int32_t count) const {
    const Action& a = at(p);
    return {.valid = true,
        .shard = a.shard,
        .micro_batch = a.micro_batch / program_.slices,
        .block = count};
  }

  /// Refuses an operand that slices need or whole sequences do not. Returns whether there are
  /// slices.
  bool has_prefix(Place p, Operand operand) const {
    const Slot slot = at(p)[operand];
    const bool sliced = program_.slices > 1;
    if (sliced != (slot.valid() && row_of(slot.cls).data == Data::prefix))
      fail(fresh_reads,
          p,
          "{} keys and values that slices share, or their gradient",
          sliced ? "needs" : "has no use for");
    return sliced;
  }

  void need_prefix(Place p, Operand operand, std::int32_t count) {
    if (has_prefix(p, operand) && !content(p, operand).same_thing(prefix(p, count)))
      unexpected(operand == keys ? fresh_reads : exact_gradients, p, operand, prefix(p, count));
  }

  void need_all_slices(Place p) {
    need_prefix(p, keys, program_.slices * blocks_of(at(p)) * program_.key_parts);
  }

  /// Adds the action's visit to `before` others. A whole visit is one of every block; it reads and
  /// writes all heads.
  void extend(Place p, Operand operand, std::int32_t before) {
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
    const std::int32_t added = is_segment(a) ? 1 : blocks_of(a) * program_.key_parts;
    content(p, operand) = prefix(p, before + added);
  }

  // Gradients.

  void need_gradient(Place p, Operand operand, Interval range) {
    const Slot slot = at(p)[operand];
    if (!content(p, operand).valid && is_permanent(slot.cls))
      fail(exact_gradients, p, "{} still holds the gradient of the last step", describe(slot));
    need_parts(exact_gradients, p, operand, range);
  }

  /// Returns whether the gradient of these tensors is one of this step.
  bool written(Place p, Operand operand, const Tensors& tensors) {
    return content(p, operand).pieces.any(tensors.parts, [&](const Piece& piece) {
      return piece.sum.any(tensors.numbers);
    });
  }

  /// The action's micro-batch is added to the gradient of these tensors, or replaces it. `begins`:
  /// the visit gives nothing before.
  void contribute(Place p, const Tensors& tensors, bool begins = false) {
    const Slot slot = at(p)[gradient];
    const bool adds = at(p).accumulates, replaces = begins && !adds;
    // Others write different tensors of the slot.
    const bool apart = of_embeddings(slot.cls) || is_segment(at(p));
    const Tensors all = of_embeddings(slot.cls) && program_.tied ? of_ends()[0] : tensors;
    if (apart && !replaces && adds != written(p, gradient, all)) {
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

  /// Adds contributions to pieces of `sum`, which must have their ranges.
  void add(Place p, Pieces& sum, const Pieces& more) const {
    for (const Piece& piece : more)
      sum.change(piece.range, [&](Piece& to) {
        if (const std::int32_t twice = to.sum.add(piece.sum); twice >= 0)
          fail(exact_gradients, p, "counts {} twice", contribution_text(p, twice));
      });
  }

  /// The parts of its shard, or the embeddings, whose gradient an action reads; refuses a missing
  /// micro-batch there.
  Interval need_whole_gradient(Place p) {
    const Action& a = at(p);
    const Interval range = of_embeddings(a.payload) ? Interval{a.shard, a.shard + 1}
                                                    : extent(p.rank, SlotClass::owned);
    need_gradient(p, gradient, range);
    for (const Tensors& tensors :
        of_embeddings(a.payload) ? of_ends() : std::vector{shard(a.shard)})
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

  /// Refuses the program unless the operand holds what the action says that it moves.
  void need_payload(Place p, Operand operand) {
    const Action& a = at(p);
    switch (a.payload) {
    case Payload::weights: return need_weights(p, operand, moved(a), true);
    case Payload::activation: return need(p, operand, a.shard);
    case Payload::activation_grad: return need(p, operand, a.shard - 1, true);
    case Payload::keys:
    case Payload::key_gradient: return need_keys(p, operand, moved(a));
    case Payload::gradient:
    case Payload::squares: return need_gradient(p, operand, moved(a));
    case Payload::embeddings_gradient:
      need_gradient(p, operand, moved(a));
      for (const Tensors& tensors : of_ends())
        if (extent(p.rank, a[operand].cls).meets(tensors.parts) && !written(p, operand, tensors))
          fail(exact_gradients,
              p,
              "{} still holds a gradient of the last step",
              describe(a[operand]));
      return;
    default: return;
    }
  }

  std::vector<std::array<std::vector<Content>, slot_classes>> slots_;  ///< per rank
};
}  // namespace minitaw::schedule::detail
