// SPDX-License-Identifier: BSD-3-Clause
// Follows what every slot holds while a program executes: the part of the validator that knows what
// is computed.
#include <algorithm>
#include "schedule/slot_contents.hpp"

namespace minitaw::schedule::detail {
namespace {
/// Does what actions do to the contents of slots.
class Contents : SlotContents {
public:
  explicit Contents(const Program& program)
      : SlotContents(program),
        scratch_(program.ranks.size()) {}

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
    for (const int r : indices(slots_))
      for (const SlotClass cls : {SlotClass::owned, SlotClass::embeddings})
        for (std::int16_t i = 0; const Content& c : slots_[r][index_of(cls)])
          if (const Slot slot{cls, i++}; !std::ranges::all_of(c.pieces, &Piece::updated))
            fail(exact_gradients,
                {r, -1},
                "{} is not updated as a whole at the end",
                describe(slot));
  }

private:
  /// Contents of a rank's scratch between the segments of a visit.
  struct Scratch {
    std::int32_t shard = -1, micro_batch = -1;   ///< of the visit; -1: none is under way
    std::int32_t heads = 0;                      ///< parts of them that are attended to
    std::int32_t projected = -1, attended = -1;  ///< blocks, as far as they have come
  };

  void local(Place p) {
    const Action& a = at(p);
    if (is_segment(a))
      return visit(p);
    if (is_compute(a.kind) && scratch_[p.rank].shard >= 0)
      fail(fresh_reads,
          p,
          "comes between the segments of the visit of shard {} with micro-batch {}, whose scratch "
          "it uses",
          scratch_[p.rank].shard,
          scratch_[p.rank].micro_batch);
    switch (a.kind) {
    case Kind::embed: need_weights(p, weights, embedding().parts); return leave(p, hidden, 0);
    case Kind::loss:
      // Its weights are the step's where its gradient lacks something yet.
      need(p, hidden, program_.shards);
      leave(p, hidden, program_.shards - 1, true);
      return contribute(p, head());
    case Kind::embed_backward: need(p, hidden, -1, true); return contribute(p, embedding());
    case Kind::square: return square(p);
    case Kind::update: return update(p);
    case Kind::zero: content(p, gradient) = blank(p.rank, a[gradient].cls, a.shard); return;
    case Kind::accumulate:
    case Kind::load: return move(p, source, p, destination);
    default:
      if (is_visit(a.kind))
        visit(p);
    }
  }

  /// A visit, or a segment of one.
  void visit(Place p) {
    const Action& a = at(p);
    if (a.segment == Segment::extend) {
      need_keys(p, source, interval_of(whole(SlotClass::keys).size(), {a.part, a.parts}));
      extend(p, keys, before_forward(a));
    } else if (a.segment == Segment::share) {
      share_key_gradient(p);
    } else if (a.kind == Kind::backward_weight) {
      need(p, saved, a.shard);
      need(p, deferred, a.shard);
      contribute(p, tensors_of(a));
    } else {
      const Progress progress = progress_of(a);
      if (is_segment(a))
        follow_scratch(p, progress);
      need_weights(p, weights, whole(a[weights].cls));
      if (a.kind == Kind::forward)
        forward(p, progress);
      else
        backward(p, progress);
    }
  }

  /// Blocks of a visit that are done; they go up in F, and down in the others. A whole visit counts
  /// as one.
  struct Progress {
    int before = 0;
    bool last = true;  ///< this is the last one
  };

  Progress progress_of(const Action& a) const {
    if (!is_segment(a))
      return {};
    const int last = program_.blocks[a.shard] - 1;
    const int before = a.kind == Kind::forward ? a.block : last - a.block;
    return {before, before == last};
  }

  void forward(Place p, Progress progress) {
    const Action& a = at(p);
    const auto [before, last] = progress;
    need(p, hidden, a.shard, false, before);
    if (includes(a.segment, Segment::keys)) {
      if (before > 0)
        need(p, saved, a.shard, false, before);
      leave(p, saved, a.shard, false, before + 1);
      if (is_segment(a))
        leave_keys(p, keys);
    }
    if (!includes(a.segment, Segment::attend))
      return;
    need(p, saved, a.shard, false, before + 1);
    if (!is_segment(a))
      extend(p, keys, before_forward(a));
    else if (program_.slices > 1)
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

  /// Deferred inputs count one block as long as the visit is under way.
  void backward(Place p, Progress progress) {
    const Action& a = at(p);
    const auto [before, last] = progress;
    const bool half = a.kind == Kind::backward_input;
    need(p, saved, a.shard);
    if (a.segment != Segment::keys)
      need(p, hidden, a.shard, true, before);
    if (half && before == 0 && includes(a.segment, Segment::keys))
      leave(p, deferred, a.shard, false, 1);
    if (half)
      need(p, deferred, a.shard, false, 1);
    if (a.segment == Segment::keys)
      recompute_keys(p);
    if (includes(a.segment, Segment::attend))
      attend_backward(p);
    if (a.segment == Segment::finish)
      for (const std::int32_t chunk : chunks_of(p.rank))
        need_key_gradient(p, key_gradient, {chunk, chunk + 1});
    const bool finishes = includes(a.segment, Segment::finish);
    if (!half && (finishes || a.segment == Segment::weights))
      contribute(p, tensors_of(a), a.segment == Segment::weights && before == 0);
    if (!finishes)
      return;
    if (half && last)
      leave(p, deferred, a.shard);
    if (last)
      leave(p, hidden, a.shard - 1, true);
    else
      leave(p, hidden, a.shard, true, before + 1);
  }

  void recompute_keys(Place p) {
    if (program_.slices == 1)
      leave_keys(p, keys);
    else if (const Slot slot = at(p)[keys]; slot.valid())
      fail(fresh_reads, p, "has no use for {}", describe(slot));
  }

  void attend_backward(Place p) {
    const Action& a = at(p);
    if (is_segment(a) && program_.slices == 1) {
      need_keys(p, keys, whole(SlotClass::keys));
      return leave_key_gradient(p, key_gradient);
    }
    need_all_slices(p);
    extend(p, key_gradient, before_backward(a));
  }

  /// Refuses segments out of order, of other visits or of blocks whose intermediates are gone.
  void follow_scratch(Place p, Progress progress) {
    const Action& a = at(p);
    Scratch& scratch = scratch_[p.rank];
    const bool projects = a.segment == Segment::keys, attends = a.segment == Segment::attend;
    const bool finishes = a.segment == Segment::finish;
    if (projects && progress.before == 0 && scratch.shard < 0)
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
    const bool ends = a.kind == Kind::forward ? scratch.attended == a.block : finishes;
    if (progress.last && ends)
      scratch = {};
  }

  void collective(Sides calls) {
    const Action& a = at(calls.front());
    if (program_.communicators[a.communicator].among_replicas())
      return sum_over_replicas(calls.front());
    if (a.kind == Kind::all_gather)
      return all_gather(calls);
    if (a.kind != Kind::broadcast)
      return reduce(calls);
    const auto root = std::ranges::find(calls, a.peer, &Place::rank);
    for (const Place call : calls)
      if (call.rank != a.peer)
        move(*root, buffer, call, buffer);
  }

  /// The rank's contributions to the gradient of a slice's keys, all that it has, go to be added
  /// up.
  void share_key_gradient(Place p) {
    need_prefix(p, key_gradient, before_backward(at(p)) + 1);
    leave_key_gradient(p, destination);
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
    const int count = program_.shards * program_.shard_parts + program_.embeddings_parts;
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

  /// Moves data from a slot to another: they are added to what it holds, join what is there of the
  /// same thing, or replace anything else.
  void move(Place from, Operand origin, Place to, Operand target) {
    need_payload(from, origin);
    const Interval range = moved(at(to));
    const Content& sent = content(from, origin);
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
    for (const int i : indices(calls)) {
      Pieces& pieces = content(calls[i], buffer).pieces;
      if (first.kind == Kind::reduce_scatter)
        pieces.put(range, sum.within(share_of(calls, i)));
      else if (first.kind == Kind::all_reduce || calls[i].rank == first.peer)
        pieces.put(range, sum);
    }
  }

  /// Others have what this rank has, of their own micro-batches: they do the same.
  void sum_over_replicas(Place p) {
    need_payload(p, buffer);
    Pieces& sum = content(p, buffer).pieces;
    Pieces others;
    for (const Piece& piece : sum.within(moved(at(p))))
      others.put(piece.range, Pieces({piece.range, false, piece.sum.shifted(own_contributions())}));
    add(p, sum, others);
  }

  /// Gathers weights, keys, or the embeddings after their update.
  void all_gather(Sides calls) {
    const Action& first = at(calls.front());
    const bool embeddings = of_embeddings(first.payload);
    for (const int i : indices(calls)) {
      const Interval own = share_of(calls, i);
      if (first.payload == Payload::keys)
        need_keys(calls[i], buffer, own);
      else
        need_weights(calls[i], buffer, own, embeddings);
      if (embeddings &&
          !std::ranges::all_of(content(calls[i], buffer).pieces.within(own), &Piece::updated))
        fail(fresh_reads, calls[i], "part {} is not updated yet", i);
    }
    for (const Place call : calls)
      content(call, buffer).pieces.put(moved(first), Pieces({moved(first), embeddings}));
  }

  std::vector<Scratch> scratch_;  ///< per rank
};
}  // namespace

void check_contents(const Program& program) {
  Contents contents(program);
  execute(program, [&](Sides sides) { contents.execute(sides); });
  contents.check_end();
}
}  // namespace minitaw::schedule::detail
