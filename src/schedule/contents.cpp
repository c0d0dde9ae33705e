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

/// Follows the contents of slots; refuses wrong reads (fresh_reads) and lost or repeated gradients
/// (exact_gradients).
class Contents : Check {
public:
  explicit Contents(const Program& program) : Check(program), scratch_(program.ranks.size()) {
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
  /// Tensors whose gradient gets a contribution from every part of every micro-batch: where they
  /// are in a slot, and the numbers of the contributions.
  struct Tensors {
    Interval parts, numbers;
  };

  /// What is in a rank's scratch between the segments of a visit.
  struct Scratch {
    std::int32_t shard = -1, micro_batch = -1;   ///< of the visit; -1: none is under way
    std::int32_t heads = 0;                      ///< parts of them that are attended to
    std::int32_t projected = -1, attended = -1;  ///< blocks, as far as they have come
  };

  void local(Place p) {
    const Action& a = at(p);
    if (is_segment(a.kind))
      return segment(p);
    if (is_compute(a.kind) && scratch_[p.rank].shard >= 0)
      fail(fresh_reads,
          p,
          "comes between the segments of the visit of shard {} with micro-batch {}, whose scratch "
          "it uses",
          scratch_[p.rank].shard,
          scratch_[p.rank].micro_batch);
    switch (a.kind) {
    case Kind::embed: need_weights(p, weights, embedding().parts); return leave(p, hidden, 0);
    case Kind::forward:
      need_weights(p, weights, whole(a[weights].cls));
      need(p, hidden, a.shard);
      extend(p, keys, before_forward(a));
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
      need_all_slices(p);
      extend(p, key_gradient, before_backward(a));
      leave(p, hidden, a.shard - 1, true);
      return a.kind == Kind::backward ? contribute(p, shard(a.shard)) : leave(p, deferred, a.shard);
    case Kind::backward_weight:
      need(p, saved, a.shard);
      need(p, deferred, a.shard);
      return contribute(p, shard(a.shard));
    case Kind::embed_backward: need(p, hidden, -1, true); return contribute(p, embedding());
    case Kind::square: return square(p);
    case Kind::update: return update(p);
    case Kind::zero: content(p, gradient) = blank(p.rank, a[gradient].cls, a.shard); return;
    case Kind::accumulate:
    case Kind::load: return move(p, source, p, destination);
    default: return;
    }
  }

  /// A part of a visit. Blocks go up in F, and down in backward visits; `before`: those done.
  void segment(Place p) {
    const Action& a = at(p);
    const int last = program_.blocks[a.shard] - 1;
    const bool forward = visit_of(a) == Kind::forward;
    const int before = forward ? a.block : last - a.block;
    if (a.kind == Kind::forward_extend) {
      need_keys(p, source, interval_of(whole(SlotClass::keys).size(), {a.part, a.parts}));
      return extend(p, keys, before_forward(a));
    }
    if (a.kind == Kind::backward_share)
      return share_key_gradient(p);
    follow_scratch(p, before == 0, before == last);
    if (a.kind != Kind::backward_attend_weights)
      need_weights(p, weights, whole(a[weights].cls));
    if (a.kind != Kind::backward_keys)
      need(p, hidden, a.shard, !forward, before);
    if (forward)
      forward_segment(p, before, before == last);
    else
      backward_segment(p, before, before == last);
  }

  void forward_segment(Place p, int before, bool last) {
    const Action& a = at(p);
    if (a.kind == Kind::forward_keys) {
      if (before > 0)
        need(p, saved, a.shard, false, before);
      leave(p, saved, a.shard, false, before + 1);
      return leave_keys(p, keys);
    }
    need(p, saved, a.shard, false, before + 1);
    if (program_.slices > 1)
      need_prefix(p, keys, before_forward(a) + 1);
    else
      need_keys(p, keys, interval_of(whole(SlotClass::keys).size(), {a.part, a.parts}));
    if (a.part + 1 < a.parts)
      return;
    if (!last)
      return leave(p, hidden, a.shard, false, before + 1);
    leave(p, saved, a.shard);
    leave(p, hidden, a.shard + 1);
  }

  /// What is deferred counts one block as long as the visit is under way.
  void backward_segment(Place p, int before, bool last) {
    const Action& a = at(p);
    const bool halves = visit_of(a) == Kind::backward_input;
    const bool begins = a.kind == Kind::backward_keys && before == 0;
    need(p, saved, a.shard);
    if (halves && begins)
      leave(p, deferred, a.shard, false, 1);
    if (halves)
      need(p, deferred, a.shard, false, 1);
    switch (a.kind) {
    case Kind::backward_keys:
      if (program_.slices == 1)
        leave_keys(p, keys);
      else if (a[keys].valid())
        fail(fresh_reads, p, "has no use for {}", describe(a[keys]));
      return;
    case Kind::backward_attend:
      if (program_.slices > 1) {
        need_all_slices(p);
        return extend(p, key_gradient, before_backward(a));
      }
      need_keys(p, keys, whole(SlotClass::keys));
      return leave_key_gradient(p, key_gradient);
    case Kind::backward_attend_weights: return contribute(p, segment_tensors(a), before == 0);
    default: return finish(p, last, halves);
    }
  }

  void finish(Place p, bool last, bool halves) {
    const Action& a = at(p);
    for (const std::int32_t chunk : chunks_of(p.rank))
      need_key_gradient(p, key_gradient, {chunk, chunk + 1}, true);
    if (a[gradient].valid() == halves)
      fail(exact_gradients, p, "gives the gradient of weights, or defers it: one of the two");
    if (!halves)
      contribute(p, segment_tensors(a), false);
    else if (last)
      leave(p, deferred, a.shard);
    if (last)
      return leave(p, hidden, a.shard - 1, true);
    leave(p, hidden, a.shard, true, content(p, hidden).block + 1);
  }

  /// Refuses segments out of order, of other visits or of blocks whose intermediates are gone.
  void follow_scratch(Place p, bool first, bool last) {
    const Action& a = at(p);
    Scratch& scratch = scratch_[p.rank];
    const bool projects = a.kind == Kind::forward_keys || a.kind == Kind::backward_keys;
    const bool attends = a.kind == Kind::forward_attend || a.kind == Kind::backward_attend;
    const bool finishes = a.kind == Kind::backward_finish;
    if (projects && first && scratch.shard < 0)
      scratch = {.shard = a.shard, .micro_batch = a.micro_batch};

    const bool same_visit = scratch.shard == a.shard && scratch.micro_batch == a.micro_batch;
    // The block before may have been projected already.
    const bool is_projected =
        scratch.projected == a.block || (finishes && scratch.projected == a.block - 1);
    const bool follows = attends ? scratch.heads == a.part : scratch.attended == a.block;
    if (!same_visit || (!projects && !(is_projected && follows)))
      fail(fresh_reads, p, "does not follow the segment that leaves it its intermediates");

    if (projects) {
      scratch.projected = a.block;
      scratch.heads = 0;
    }
    if (attends && ++scratch.heads == a.parts)
      scratch.attended = a.block;
    if (last && (finishes || (a.kind == Kind::forward_attend && scratch.heads == a.parts)))
      scratch = {};
  }

  void collective(Sides calls) {
    const Action& a = at(calls.front());
    if (a.kind == Kind::all_gather)
      return a.payload == Payload::keys ? gather_keys(calls) : all_gather(calls);
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

  /// Contributions of one sort: one of each part of each micro-batch.
  std::int32_t contributions() const { return program_.micro_batches * program_.context; }

  /// All tensors of a shard. Where visits have segments, each gives those of its own tensors.
  Tensors shard(std::int32_t number) const {
    const int sorts = program_.blocks.empty() ? 1 : gradient_segments * program_.blocks[number];
    return {{0, program_.shard_parts}, {0, sorts * contributions()}};
  }

  Tensors segment_tensors(const Action& a) const {
    const std::int32_t first = segment_of(a) * contributions();
    return {{0, program_.shard_parts}, {first, first + contributions()}};
  }

  Tensors embedding() const {
    return {{0, program_.embeddings_split ? 1 : program_.embeddings_slices}, {0, contributions()}};
  }

  Tensors head() const {
    return {{program_.embeddings_split ? 1 : 0, program_.embeddings_slices},
        {contributions(), 2 * contributions()}};
  }

  /// All that there is in a slot of this class for gradients of a shard.
  std::vector<Tensors> tensors_of(SlotClass cls, std::int32_t number) const {
    return of_embeddings(cls) ? std::vector{embedding(), head()} : std::vector{shard(number)};
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
    const std::int32_t of_sort = number % contributions();
    const std::int32_t micro_batch = of_sort / program_.context;
    if (program_.context == 1)
      return fmt::format("micro-batch {} of {}", micro_batch, part);
    return fmt::format(
        "part {} of micro-batch {} of {}", of_sort % program_.context, micro_batch, part);
  }

  /// Weights as before the step, or a gradient without contributions, in all that a slot can hold.
  Content blank(int rank, SlotClass cls, std::int32_t shard) const {
    return {.valid = true, .shard = shard, .pieces = Pieces({extent(rank, cls)})};
  }

  /// What a slot for weights or gradients should hold: of the action's shard, or the embeddings.
  Content wanted(Place p, Operand operand) const {
    const Action& a = at(p);
    Content content{.valid = true, .shard = of_embeddings(a[operand].cls) ? -1 : a.shard};
    if (row_of(a[operand].cls).data == Data::keys) {
      content.micro_batch = a.micro_batch;
      content.block = a.block;
    }
    return content;
  }

  /// Refuses the program unless the slot holds the weights, in all of `range`.
  void need_weights(Place p, Operand operand, Interval range, bool updated_too = false) {
    const Content& c = content(p, operand);
    const bool stale = !updated_too && c.pieces.any(range, &Piece::updated);
    if (stale || !c.same_thing(wanted(p, operand)) || !c.pieces.covers(range))
      unexpected(fresh_reads, p, operand, wanted(p, operand));
  }

  /// What a rank has of `shard` and the action's micro-batch: its part of the sequences.
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

  /// Refuses the program unless the slot holds keys of the action's block and micro-batch, in all
  /// of `range`.
  void need_keys(Place p, Operand operand, Interval range) {
    const Content& c = content(p, operand);
    if (!c.same_thing(wanted(p, operand)))
      unexpected(fresh_reads, p, operand, wanted(p, operand));
    if (!c.pieces.covers(range))
      fail(fresh_reads, p, "{} lacks chunks of the sequences", describe(at(p)[operand]));
  }

  /// The same of their gradient; `complete`: summed over the ranks that share the sequences.
  void need_key_gradient(Place p, Operand operand, Interval range, bool complete) {
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

  // What slices of a micro-batch share is followed as a count of visits of blocks, in parts by
  // heads: they fill it in their order, and add to its gradient in the reverse order.

  std::int32_t blocks_of(const Action& a) const {
    return program_.blocks.empty() ? 1 : program_.blocks[a.shard];
  }

  std::int32_t visits_of_all_slices(const Action& a) const {
    return program_.slices * blocks_of(a) * program_.key_parts;
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

  void need_all_slices(Place p) { need_prefix(p, keys, visits_of_all_slices(at(p))); }

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
    const bool whole_visit = !is_segment(a.kind);
    const std::int32_t added = whole_visit ? blocks_of(a) * program_.key_parts : 1;
    content(p, operand) = prefix(p, before + added);
  }

  /// The rank's contributions to the gradient of a slice's keys, all that it has, go to be added
  /// up.
  void share_key_gradient(Place p) {
    need_prefix(p, key_gradient, before_backward(at(p)) + 1);
    leave_key_gradient(p, destination);
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
    case Payload::keys: return need_keys(p, operand, moved(a));
    case Payload::key_gradient: return need_key_gradient(p, operand, moved(a), false);
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

  void leave(
      Place p, Operand operand, std::int32_t shard, bool backward = false, std::int32_t block = 0) {
    content(p, operand) = activations(p, shard, backward, block);
  }

  /// The action's micro-batch is added to the gradient of these tensors, or replaces it. `begins`:
  /// the visit gives nothing before.
  void contribute(Place p, const Tensors& tensors, bool begins = false) {
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
    if (there.same_thing(sent))
      return there.pieces.put(range, pieces);
    there = sent;
    there.pieces = pieces;
  }

  void reduce(Sides calls) {
    const Action& first = at(calls.front());
    const Interval range = moved(first);
    const bool adds_up = memory_of(first[buffer].cls) == Memory::gradients ||
                         first.payload == Payload::squares ||
                         first.payload == Payload::key_gradient;
    if (!adds_up)
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

  void gather_keys(Sides calls) {
    const Interval range = moved(at(calls.front()));
    for (std::size_t i = 0; i < calls.size(); ++i)
      need_keys(calls[i], buffer, slice(calls, i));
    for (const Place call : calls)
      content(call, buffer).pieces.put(range, Pieces({range}));
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
  std::vector<Scratch> scratch_;                                       ///< per rank
};
}  // namespace

void check_contents(const Program& program) {
  Contents contents(program);
  execute(program, [&](Sides sides) { contents.execute(sides); });
  contents.check_end();
}
}  // namespace minitaw::schedule::detail
