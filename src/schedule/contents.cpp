// SPDX-License-Identifier: BSD-3-Clause
// Follows what every slot holds while a program executes: the part of the validator that knows what
// is computed.
#include <algorithm>
#include <array>
#include <utility>
#include "schedule/execute.hpp"
#include "schedule/pieces.hpp"

namespace minitaw::schedule::detail {
namespace {
using enum Rule;
using enum Operand;

/// Content of a slot; the slot's class says of which kind.
struct Content {
  bool valid = false;
  std::int32_t shard = -1;        ///< but of embeddings; hidden: the shard to compute next
  std::int32_t micro_batch = -1;  ///< saved, deferred, hidden
  bool backward = false;          ///< hidden: the gradient
  Pieces pieces{};                ///< weights, gradients, embeddings

  bool same_thing(const Content& other) const {
    return valid == other.valid && shard == other.shard && micro_batch == other.micro_batch &&
           backward == other.backward;
  }
};

std::string describe(SlotClass cls, const Content& c) {
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
  if (cls != SlotClass::hidden) {
    const char* visit = cls == SlotClass::saved ? "F" : "B";
    return fmt::format("what {} left of {} and {}", visit, part, micro_batch);
  }
  return c.backward ? fmt::format("the gradient of {} after {}", micro_batch, part)
                    : fmt::format("{} before {}", micro_batch, part);
}

/// Follows the contents of slots; refuses wrong reads (fresh_reads) and lost or repeated gradients
/// (exact_gradients).
class Contents : Check {
public:
  explicit Contents(const Program& program) : Check(program) {
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

  void execute(Sides sides) {
    const Kind kind = at(sides[0]).kind;
    if (is_collective(kind))
      collective(sides);
    else if (is_point_to_point(kind))
      move(sides[0], buffer, sides[1], buffer);
    else
      local(sides[0]);
  }

  /// At the end all weights are updated, with complete gradients: every micro-batch has been
  /// computed.
  void check_end() const {
    for (int r = 0; r < std::ssize(slots_); ++r)
      for (const SlotClass cls : {SlotClass::owned, SlotClass::embeddings})
        for (std::int16_t i = 0; const Content& c : slots_[r][index_of(cls)])
          if (const Slot slot{cls, i++}; !std::ranges::all_of(c.pieces, &Piece::updated))
            fail(exact_gradients,
                {r, -1},
                "{} is not updated as a whole at the end",
                describe(slot));
  }

private:
  /// Tensors whose gradient gets a contribution from every micro-batch: where they are in a slot,
  /// and the numbers of the contributions.
  struct Tensors {
    Interval parts, numbers;
  };

  void local(Place p) {
    const Action& a = at(p);
    switch (a.kind) {
    case Kind::embed: need_weights(p, weights, embedding().parts); return leave(p, hidden, 0);
    case Kind::forward:
      need_weights(p, weights, whole(a[weights].cls));
      need(p, hidden, a.shard);
      leave(p, saved, a.shard);
      return leave(p, hidden, a.shard + 1);
    case Kind::loss:
      // Its weights are the step's where its gradient lacks something yet.
      need(p, hidden, program_.shards);
      leave(p, hidden, program_.shards - 1, true);
      return contribute(p, head());
    case Kind::backward:
    case Kind::backward_input:
      need_weights(p, weights, whole(a[weights].cls));
      need(p, saved, a.shard);
      need(p, hidden, a.shard, true);
      leave(p, hidden, a.shard - 1, true);
      return a.kind == Kind::backward ? contribute(p, shard()) : leave(p, deferred, a.shard);
    case Kind::backward_weight:
      need(p, saved, a.shard);
      need(p, deferred, a.shard);
      return contribute(p, shard());
    case Kind::embed_backward: need(p, hidden, -1, true); return contribute(p, embedding());
    case Kind::square: return square(p);
    case Kind::update: return update(p);
    case Kind::zero: content(p, gradient) = blank(p.rank, a[gradient].cls, a.shard); return;
    case Kind::accumulate:
    case Kind::load: return move(p, source, p, destination);
    default: return;
    }
  }

  void collective(Sides calls) {
    const Action& a = at(calls.front());
    if (a.kind == Kind::all_gather)
      return all_gather(calls);
    if (a.kind != Kind::broadcast)
      return reduce(calls);
    const auto root = std::ranges::find(calls, a.peer, &Place::rank);
    for (const Place call : calls)
      if (call.rank != a.peer)
        move(*root, buffer, call, buffer);
  }

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

  /// All parts of what a slot of this class holds.
  Interval whole(SlotClass cls) const { return {0, parts_of(program_, row_of(cls).data)}; }

  /// Returns the parts that a slot of the rank can hold.
  Interval extent(int rank, SlotClass cls) const {
    return interval_of(whole(cls).size(), part_of(program_, rank, cls));
  }

  Interval moved(const Action& a) const {
    return interval_of(parts_of(program_, row_of(a.payload).data), {a.part, a.parts});
  }

  /// Returns slice i of a collective, for each of its members; refuses a part that cannot be
  /// divided.
  Interval slice(Sides calls, std::size_t i) const {
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

  Tensors shard() const { return {{0, program_.shard_parts}, {0, program_.micro_batches}}; }

  Tensors embedding() const {
    return {{0, program_.embeddings_split ? 1 : program_.embeddings_slices},
        {0, program_.micro_batches}};
  }

  Tensors head() const {
    return {{program_.embeddings_split ? 1 : 0, program_.embeddings_slices},
        {program_.micro_batches, 2 * program_.micro_batches}};
  }

  /// All that there is in a slot of this class for gradients.
  std::vector<Tensors> tensors_of(SlotClass cls) const {
    return of_embeddings(cls) ? std::vector{embedding(), head()} : std::vector{shard()};
  }

  /// "micro-batch 1 of shard 2": a contribution to the gradient that an action is about.
  std::string contribution_text(Place p, std::int32_t number) const {
    const Action& a = at(p);
    if (a.payload == Payload::squares || a.kind == Kind::square)
      return "the squares of a gradient";
    const bool of_shard = a.shard >= 0 && !of_embeddings(a.payload);
    const std::string part = of_shard                          ? fmt::format("shard {}", a.shard)
                             : number < program_.micro_batches ? "the embedding"
                                                               : "the head";
    return fmt::format("micro-batch {} of {}", number % program_.micro_batches, part);
  }

  /// Weights as before the step, or a gradient without contributions, in all that a slot can hold.
  Content blank(int rank, SlotClass cls, std::int32_t shard) const {
    return {.valid = true, .shard = shard, .pieces = Pieces({extent(rank, cls)})};
  }

  /// What a slot for weights or gradients should hold: of the action's shard, or the embeddings.
  Content wanted(Place p, Operand operand) const {
    return {.valid = true, .shard = of_embeddings(at(p)[operand].cls) ? -1 : at(p).shard};
  }

  /// Refuses the program unless the slot holds the weights, in all of `range`.
  void need_weights(Place p, Operand operand, Interval range, bool updated_too = false) {
    const Content& c = content(p, operand);
    const bool stale = !updated_too && c.pieces.any(range, &Piece::updated);
    if (stale || !c.same_thing(wanted(p, operand)) || !c.pieces.covers(range))
      unexpected(fresh_reads, p, operand, wanted(p, operand));
  }

  /// Refuses the program unless the slot holds the data of `shard` and the action's micro-batch.
  void need(Place p, Operand operand, std::int32_t shard, bool backward = false) {
    const Content expected{true, shard, at(p).micro_batch, backward};
    if (!content(p, operand).same_thing(expected))
      unexpected(fresh_reads, p, operand, expected);
  }

  /// Refuses the program unless the slot holds a gradient, in all of `range`.
  void need_gradient(Place p, Operand operand, Interval range) {
    const Content& c = content(p, operand);
    const Slot slot = at(p)[operand];
    if (!c.valid && is_permanent(slot.cls))
      fail(exact_gradients, p, "{} still holds the gradient of the last step", describe(slot));
    if (!c.same_thing(wanted(p, operand)))
      unexpected(c.valid ? exact_gradients : fresh_reads, p, operand, wanted(p, operand));
    if (!c.pieces.covers(range))
      fail(exact_gradients, p, "{} lacks a slice of the sum that is read", describe(slot));
  }

  /// The operand holds what the action says that it moves.
  void need_payload(Place p, Operand operand) {
    const Action& a = at(p);
    switch (a.payload) {
    case Payload::weights: return need_weights(p, operand, moved(a), true);
    case Payload::activation: return need(p, operand, a.shard);
    case Payload::activation_grad: return need(p, operand, a.shard - 1, true);
    case Payload::gradient:
    case Payload::squares: return need_gradient(p, operand, moved(a));
    case Payload::embeddings_gradient:
      need_gradient(p, operand, moved(a));
      for (const Tensors& tensors : {embedding(), head()})
        if (extent(p.rank, a[operand].cls).meets(tensors.parts) && !written(p, operand, tensors))
          fail(exact_gradients,
              p,
              "{} still holds a gradient of the last step",
              describe(a[operand]));
      return;
    default: return;
    }
  }

  /// Returns whether the gradient of these tensors is one of this step.
  bool written(Place p, Operand operand, const Tensors& tensors) {
    return content(p, operand).pieces.any(tensors.parts, [&](const Piece& piece) {
      return piece.sum.any(tensors.numbers);
    });
  }

  void leave(Place p, Operand operand, std::int32_t shard, bool backward = false) {
    content(p, operand) = {true, shard, at(p).micro_batch, backward};
  }

  /// The action's micro-batch is added to the gradient of these tensors, or replaces it.
  void contribute(Place p, const Tensors& tensors) {
    const Slot slot = at(p)[gradient];
    const bool embeddings = of_embeddings(slot.cls), adds = at(p).accumulates;
    if (embeddings && adds != written(p, gradient, tensors)) {
      if (adds)
        fail(exact_gradients, p, "adds to the gradient of the last step in {}", describe(slot));
      fail(exact_gradients, p, "overwrites what this step has added to {}", describe(slot));
    }
    Content& c = content(p, gradient);
    if (embeddings ? !c.valid : !adds)
      c = blank(p.rank, slot.cls, wanted(p, gradient).shard);
    need_gradient(p, gradient, tensors.parts);
    const std::int32_t number = tensors.numbers.begin + at(p).micro_batch;
    add(p, c.pieces, Pieces({tensors.parts, false, Sum({{number, number + 1}})}));
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
    for (const Tensors& tensors : tensors_of(a[gradient].cls))
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

  /// Adds the squares of a gradient. Contributions to their sum are one of each part of a shard,
  /// then of the embeddings. Added to a sum of the last step, they are lost: the update finds that
  /// they are missing.
  void square(Place p) {
    const Action& a = at(p);
    const Interval range = need_whole_gradient(p);
    const std::int32_t first =
        (of_embeddings(a.payload) ? program_.shards : a.shard) * program_.shard_parts;
    Content& c = content(p, squares);
    if (!a.accumulates)
      c = blank(p.rank, SlotClass::squares, -1);
    add(p, c.pieces, Pieces({{0, 1}, false, Sum({{first + range.begin, first + range.end}})}));
  }

  void need_squares(Place p) {
    if (at(p)[squares].valid() != program_.clips)
      fail(exact_gradients,
          p,
          "{} the squares of all gradients",
          program_.clips ? "needs" : "has no use for");
    if (!program_.clips)
      return;
    const int count = program_.shards * program_.shard_parts + program_.embeddings_slices;
    const auto all = [&](const Piece& piece) { return piece.sum.first_missing(0) == count; };
    if (!content(p, squares).pieces.any({0, 1}, all))
      fail(exact_gradients, p, "{} lacks the squares of a gradient", describe(at(p)[squares]));
  }

  void update(Place p) {
    const Interval range = need_whole_gradient(p);
    need_weights(p, weights, range);
    need_squares(p);
    content(p, weights).pieces.change(range, [](Piece& piece) { piece.updated = true; });
  }

  /// What the action of `from` moves is added to what `to` holds, joins what is there of the same
  /// thing, or replaces anything else.
  void move(Place from, Operand source, Place to, Operand target) {
    need_payload(from, source);
    const Interval range = moved(at(to));
    const Content& sent = content(from, source);
    const Pieces pieces = sent.pieces.within(range);
    Content& there = content(to, target);
    if (at(to).accumulates && at(to).kind == Kind::accumulate) {
      need_gradient(to, target, range);
      return add(to, there.pieces, pieces);
    }
    const Slot slot = at(to)[target];
    if (range.common(extent(to.rank, slot.cls)) != range)
      fail(fresh_reads,
          to,
          "{} has no room for parts {} to {}",
          describe(slot),
          range.begin,
          range.end - 1);
    if (!there.same_thing(sent)) {
      there = sent;
      there.pieces = {};
    }
    there.pieces.put(range, pieces);
  }

  void reduce(Sides calls) {
    const Action& first = at(calls.front());
    const Interval range = moved(first);
    if (memory_of(first[buffer].cls) != Memory::gradients && first.payload != Payload::squares)
      fail(fresh_reads, calls.front(), "only gradients can be added up");
    Pieces sum;
    for (const Place call : calls) {
      need_payload(call, buffer);
      const Pieces of_call = content(call, buffer).pieces.within(range);
      if (call.rank == calls.front().rank)
        sum = of_call;
      else
        add(call, sum, of_call);
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Pieces& pieces = content(calls[i], buffer).pieces;
      if (first.kind == Kind::reduce_scatter)
        pieces.put(range, sum.within(slice(calls, i)));
      else if (first.kind == Kind::all_reduce || calls[i].rank == first.peer)
        pieces.put(range, sum);
    }
  }

  void all_gather(Sides calls) {
    const Interval range = moved(at(calls.front()));
    const bool embeddings = of_embeddings(at(calls.front()).payload);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      need_weights(calls[i], buffer, slice(calls, i), embeddings);
      const Pieces gathered = content(calls[i], buffer).pieces.within(slice(calls, i));
      if (embeddings && !std::ranges::all_of(gathered, &Piece::updated))
        fail(fresh_reads, calls[i], "slice {} is not updated yet", i);
    }
    for (const Place call : calls)
      content(call, buffer).pieces.put(range, Pieces({range, embeddings}));
  }

  std::vector<std::array<std::vector<Content>, slot_classes>> slots_;  ///< per rank
};
}  // namespace

void check_contents(const Program& program) {
  Contents contents(program);
  execute(program, [&](Sides sides) { contents.execute(sides); });
  contents.check_end();
}
}  // namespace minitaw::schedule::detail
