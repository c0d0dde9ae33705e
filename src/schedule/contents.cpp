// SPDX-License-Identifier: BSD-3-Clause
// Follows what every slot holds while a program executes: the part of the validator that knows what
// is computed.
#include <algorithm>
#include <array>
#include "schedule/execute.hpp"

namespace minitaw::schedule::detail {
namespace {
using enum Rule;

/// A run of parts, or of contributions: what there is of a slot's content, and what is in it.
struct Interval {
  std::int32_t begin = 0, end = 0;

  [[nodiscard]] std::int32_t size() const { return end - begin; }

  [[nodiscard]] Interval common(Interval with) const {
    return {std::max(begin, with.begin), std::min(end, with.end)};
  }

  friend bool operator==(const Interval&, const Interval&) = default;
};

/// Contributions to a gradient, as runs of their numbers in ascending order that do not touch.
/// Micro-batch m contributes number m to the gradient of a shard or of the embedding, and number M
/// + m to that of the head.
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
      if (joined.empty() || joined.back().end < run.begin)
        joined.push_back(run);
      else if (joined.back().end == run.begin)
        joined.back().end = run.end;
      else
        return run.begin;
    }
    runs_ = std::move(joined);
    return -1;
  }

  [[nodiscard]] std::int32_t first_missing(std::int32_t from) const {
    for (const Interval run : runs_)
      if (run.begin <= from && from < run.end)
        from = run.end;
    return from;
  }

  [[nodiscard]] bool any(Interval numbers) const {
    return std::ranges::any_of(runs_, [&](Interval run) { return run.common(numbers).size() > 0; });
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

  [[nodiscard]] bool covers(Interval range) const {
    for (const Piece& piece : pieces_)
      if (piece.range.begin <= range.begin)
        range.begin = std::max(range.begin, piece.range.end);
    return range.size() <= 0;
  }

  /// The pieces inside `range`, cut at its borders.
  [[nodiscard]] Pieces within(Interval range) const {
    Pieces result;
    for (const Piece& piece : pieces_) {
      if (piece.range.common(range).size() <= 0)
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
  template <class Change>
  void change(Interval range, const Change& change) {
    const auto [first, last] = inside(range);
    std::for_each(first, last, change);
  }

  template <class Which>
  [[nodiscard]] bool any(Interval range, const Which& which) const {
    return std::ranges::any_of(pieces_,
        [&](const Piece& piece) { return piece.range.common(range).size() > 0 && which(piece); });
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

/// Content of a slot; the slot's class says of which kind.
struct Content {
  bool valid = false;
  std::int32_t shard = -1;        ///< but of embeddings; hidden: the shard to compute next
  std::int32_t micro_batch = -1;  ///< saved, deferred, hidden
  bool backward = false;          ///< hidden: the gradient
  Pieces pieces{};                ///< weights, gradients, embeddings

  [[nodiscard]] bool same_thing(const Content& other) const {
    return valid == other.valid && shard == other.shard && micro_batch == other.micro_batch &&
           backward == other.backward;
  }
};

std::string describe(SlotClass cls, const Content& c) {
  constexpr const char* gradient = "a gradient of shard {0}";
  static constexpr std::array<const char*, slot_classes> texts = {"the {2}weights of shard {0}",
      gradient,
      "the {2}weights of shard {0}",
      "the {2}weights of shard {0}",
      gradient,
      gradient,
      gradient,
      "what shard {0} saved of micro-batch {1}",
      "what B left of shard {0} and micro-batch {1}",
      "micro-batch {1} before shard {0}",
      "the {2}embeddings",
      "a gradient of the embeddings",
      "squares"};
  if (!c.valid)
    return "nothing";
  const char* text =
      c.backward ? "the gradient of micro-batch {1} behind shard {0}" : texts[index_of(cls)];
  const bool updated = std::ranges::any_of(c.pieces, &Piece::updated);
  return fmt::format(fmt::runtime(text), c.shard, c.micro_batch, updated ? "updated " : "");
}

/// Follows the contents of slots; refuses wrong reads (fresh_reads) and lost or repeated gradients
/// (exact_gradients).
class Contents {
public:
  explicit Contents(const Program& program) : program_(program) {
    for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
      const RankProgram& rank = program.ranks[r];
      auto& slots = slots_.emplace_back();
      for (int c = 0; c < slot_classes; ++c)
        slots[c].resize(rank.slots[c]);
      for (std::size_t h = 0; h < rank.owned_shards.size(); ++h)
        slots[index_of(SlotClass::owned)][h] = blank(r, SlotClass::owned, rank.owned_shards[h]);
      for (Content& e : slots[index_of(SlotClass::embeddings)])
        e = blank(r, SlotClass::embeddings, -1);
    }
  }

  void execute(Sides sides) {
    const Kind kind = at(sides[0]).kind;
    if (is_collective(kind))
      collective(sides);
    else if (is_point_to_point(kind))
      message(sides[0], sides[1]);
    else
      local(sides[0]);
  }

  /// At the end all weights are updated, with complete gradients: every micro-batch has been
  /// computed.
  void check_end() const {
    for (int r = 0; r < static_cast<int>(slots_.size()); ++r)
      for (const SlotClass cls : {SlotClass::owned, SlotClass::embeddings})
        for (std::int16_t i = 0; i < program_.ranks[r].slots[index_of(cls)]; ++i)
          if (!std::ranges::all_of(content(r, {cls, i}).pieces, &Piece::updated))
            fail(exact_gradients,
                {r, -1},
                "{} is not updated as a whole at the end",
                name_of(Slot{cls, i}));
  }

private:
  // In place of a shard: what micro-batches contribute to the embeddings' gradient.
  static constexpr std::int32_t embedding = -1, head = -2;

  [[nodiscard]] const Action& at(Place p) const { return action_at(program_, p); }

  void local(Place p) {
    const Action& a = at(p);
    const std::int32_t shards = program_.shards;
    switch (a.kind) {
    case Kind::embed:
      need_weights(p, a[Operand::weights], range_of(embedding));
      return leave(p, a[Operand::hidden], 0);
    case Kind::forward:
      need_weights(p, a[Operand::weights], whole(a[Operand::weights].cls));
      need(p, a[Operand::hidden], a.shard);
      leave(p, a[Operand::saved], a.shard);
      return leave(p, a[Operand::hidden], a.shard + 1);
    case Kind::loss:
      need(p,
          a[Operand::hidden],
          shards);  // its weights are the step's where its gradient lacks something yet
      leave(p, a[Operand::hidden], shards - 1, true);
      return contribute(p, a[Operand::gradient], head);
    case Kind::backward:
    case Kind::backward_input:
      need_weights(p, a[Operand::weights], whole(a[Operand::weights].cls));
      need(p, a[Operand::saved], a.shard);
      need(p, a[Operand::hidden], a.shard, true);
      leave(p, a[Operand::hidden], a.shard - 1, true);
      if (a.kind == Kind::backward)
        return contribute(p, a[Operand::gradient], a.shard);
      return leave(p, a[Operand::deferred], a.shard);
    case Kind::backward_weight:
      need(p, a[Operand::saved], a.shard);
      need(p, a[Operand::deferred], a.shard);
      return contribute(p, a[Operand::gradient], a.shard);
    case Kind::embed_backward:
      need(p, a[Operand::hidden], -1, true);
      return contribute(p, a[Operand::gradient], embedding);
    case Kind::square: return square(p, a);
    case Kind::update: return update(p, a);
    case Kind::zero:
      content(p.rank, a[Operand::gradient]) = blank(p.rank, a[Operand::gradient].cls, a.shard);
      return;
    case Kind::accumulate: {
      need_payload(p, Operand::source);
      const Content& from = content(p.rank, a[Operand::source]);
      if (!a.accumulates)
        return receive(Content(from), moved(a), p, a[Operand::destination]);
      need_gradient(p, a[Operand::destination], moved(a));
      return add(p, content(p.rank, a[Operand::destination]).pieces, from.pieces.within(moved(a)));
    }
    case Kind::load:
      need_payload(p, Operand::source);
      return receive(
          Content(content(p.rank, a[Operand::source])), moved(a), p, a[Operand::destination]);
    default: return;
    }
  }

  void message(Place send, Place receiver) {
    need_payload(send, Operand::buffer);
    receive(Content(content(send.rank, at(send)[Operand::buffer])),
        moved(at(send)),
        receiver,
        at(receiver)[Operand::buffer]);
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
        message(*root, call);
  }

  [[nodiscard]] const Content& content(int rank, Slot s) const {
    return slots_[rank][index_of(s.cls)][s.index];
  }

  [[nodiscard]] Content& content(int rank, Slot s) {
    return slots_[rank][index_of(s.cls)][s.index];
  }

  template <class... Args>
  [[noreturn]] void fail(
      Rule rule, Place p, fmt::format_string<Args...> what, Args&&... args) const {
    refuse(rule, program_, p.rank, p.action, what, std::forward<Args>(args)...);
  }

  [[noreturn]] void unexpected(Rule rule, Place p, Slot slot, const Content& wanted) const {
    fail(rule,
        p,
        "{} holds {}, expected {}",
        name_of(slot),
        describe(slot.cls, content(p.rank, slot)),
        describe(slot.cls, wanted));
  }

  [[nodiscard]] Interval whole(SlotClass cls) const {
    if (cls == SlotClass::squares)
      return {0, 1};
    return {0, of_embeddings(cls) ? program_.embeddings_slices : program_.shard_parts};
  }

  /// Returns the parts that a slot of the rank can hold.
  [[nodiscard]] Interval extent(int rank, SlotClass cls) const {
    const RankProgram& r = program_.ranks[rank];
    if (of_embeddings(cls) && r.embeddings_slice >= 0)
      return {r.embeddings_slice, r.embeddings_slice + 1};
    const Part part = part_of(program_, rank, cls);
    const std::int32_t each = whole(cls).size() / part.count;
    return {part.index * each, (part.index + 1) * each};
  }

  [[nodiscard]] Interval moved(const Action& a) const {
    if (a.payload == Payload::squares)
      return {0, 1};
    const std::int32_t each =
        (of_embeddings(a.payload) ? program_.embeddings_slices : program_.shard_parts) / a.parts;
    return {a.part * each, (a.part + 1) * each};
  }

  /// Returns slice i of a collective, for each of its members; refuses a part that cannot be
  /// divided.
  [[nodiscard]] Interval slice(Sides calls, std::size_t i) const {
    const Interval range = moved(at(calls.front()));
    const auto members = static_cast<std::int32_t>(calls.size());
    if (range.size() % members != 0)
      fail(same_collectives,
          calls.front(),
          "{} parts cannot be shared by {} ranks",
          range.size(),
          members);
    const std::int32_t each = range.size() / members;
    const std::int32_t begin = range.begin + static_cast<std::int32_t>(i) * each;
    return {begin, begin + each};
  }

  /// Returns the place of the embedding or head tensors: in a slice of the embeddings, or in all.
  [[nodiscard]] Interval range_of(std::int32_t part) const {
    if (!program_.embeddings_split)
      return whole(SlotClass::embeddings);
    return part == embedding ? Interval{0, 1} : Interval{1, 2};
  }

  /// Numbers of the contributions to a gradient: of a shard, embedding or head.
  [[nodiscard]] Interval numbers_of(std::int32_t part) const {
    const std::int32_t first = part == head ? program_.micro_batches : 0;
    return {first, first + program_.micro_batches};
  }

  /// "micro-batch 1 of shard 2": a contribution to the gradient that an action is about.
  [[nodiscard]] std::string contribution_text(Place p, std::int32_t number) const {
    const Action& a = at(p);
    if (a.payload == Payload::squares || a.kind == Kind::square)
      return "the squares of a gradient";
    const std::int32_t shard = of_embeddings(a.payload) ? -1 : a.shard;
    const std::string part = shard >= 0                        ? fmt::format("shard {}", shard)
                             : number < program_.micro_batches ? "the embedding"
                                                               : "the head";
    return fmt::format("micro-batch {} of {}", number % program_.micro_batches, part);
  }

  /// Weights as before the step, or a gradient without contributions, in all that a slot can hold.
  [[nodiscard]] Content blank(int rank, SlotClass cls, std::int32_t shard) const {
    return {.valid = true, .shard = shard, .pieces = Pieces({extent(rank, cls)})};
  }

  /// The weights of the action's shard, or the embeddings, in all of `range`.
  void need_weights(Place p, Slot slot, Interval range, bool updated_too = false) const {
    const Content& c = content(p.rank, slot);
    const Content wanted{.valid = true, .shard = of_embeddings(slot.cls) ? -1 : at(p).shard};
    if (!c.same_thing(wanted) || !c.pieces.covers(range) ||
        (!updated_too && c.pieces.any(range, [](const Piece& piece) { return piece.updated; })))
      unexpected(fresh_reads, p, slot, wanted);
  }

  /// Refuses the program unless the slot holds the data of `shard` and the action's micro-batch.
  void need(Place p, Slot slot, std::int32_t shard, bool backward = false) const {
    const Content wanted{true, shard, at(p).micro_batch, backward};
    if (!content(p.rank, slot).same_thing(wanted))
      unexpected(fresh_reads, p, slot, wanted);
  }

  /// A gradient of the action's shard, or of the embeddings, in all of `range`.
  void need_gradient(Place p, Slot slot, Interval range) const {
    const Content& c = content(p.rank, slot);
    const Content wanted{.valid = true, .shard = of_embeddings(slot.cls) ? -1 : at(p).shard};
    if (!c.valid && is_permanent(slot.cls))
      fail(exact_gradients, p, "{} still holds the gradient of the last step", name_of(slot));
    if (!c.same_thing(wanted))
      unexpected(c.valid ? exact_gradients : fresh_reads, p, slot, wanted);
    if (!c.pieces.covers(range))
      fail(exact_gradients, p, "{} lacks a slice of the sum that is read", name_of(slot));
  }

  /// The operand holds what the action says that it moves.
  void need_payload(Place p, Operand operand) const {
    const Action& a = at(p);
    const Slot slot = a[operand];
    switch (a.payload) {
    case Payload::weights: return need_weights(p, slot, moved(a), true);
    case Payload::activation: return need(p, slot, a.shard);
    case Payload::activation_grad: return need(p, slot, a.shard - 1, true);
    case Payload::embeddings_gradient:
      need_gradient(p, slot, moved(a));
      for (const std::int32_t part : {embedding, head})
        if (extent(p.rank, slot.cls).common(range_of(part)).size() > 0 &&
            !written(p.rank, slot, part))
          fail(exact_gradients, p, "{} still holds a gradient of the last step", name_of(slot));
      return;
    case Payload::gradient:
    case Payload::squares: return need_gradient(p, slot, moved(a));
    default: return;
    }
  }

  /// Returns whether the gradient of embedding or head is one of this step.
  [[nodiscard]] bool written(int rank, Slot slot, std::int32_t part) const {
    return content(rank, slot).pieces.any(range_of(part), [&](const Piece& p) {
      return p.sum.any(numbers_of(part));
    });
  }

  void leave(Place p, Slot slot, std::int32_t shard, bool backward = false) {
    content(p.rank, slot) = {true, shard, at(p).micro_batch, backward};
  }

  /// The action's micro-batch is added to the gradient of a shard, embedding or head, or replaces
  /// it.
  void contribute(Place p, Slot slot, std::int32_t part) {
    const bool embeddings = of_embeddings(slot.cls), adds = at(p).accumulates;
    if (embeddings && adds && !written(p.rank, slot, part))
      fail(exact_gradients, p, "adds to the gradient of the last step in {}", name_of(slot));
    if (embeddings && !adds && written(p.rank, slot, part))
      fail(exact_gradients, p, "overwrites what this step has added to {}", name_of(slot));
    Content& c = content(p.rank, slot);
    if (embeddings ? !c.valid : !adds)
      c = blank(p.rank, slot.cls, embeddings ? -1 : part);
    const Interval range = embeddings ? range_of(part) : whole(slot.cls);
    const std::int32_t number = numbers_of(part).begin + at(p).micro_batch;
    need_gradient(p, slot, range);
    add(p, c.pieces, Pieces({range, false, Sum({{number, number + 1}})}));
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
  Interval need_whole_gradient(Place p, const Action& a) const {
    const bool embeddings = of_embeddings(a.payload);
    const Interval range =
        embeddings ? Interval{a.shard, a.shard + 1} : extent(p.rank, SlotClass::owned);
    const Slot gradient = a[Operand::gradient];
    need_gradient(p, gradient, range);
    for (const std::int32_t part :
        embeddings ? std::vector{embedding, head} : std::vector{a.shard}) {
      if (embeddings && range_of(part).common(range).size() <= 0)
        continue;
      const Interval numbers = numbers_of(part);
      for (const Piece& piece : content(p.rank, gradient).pieces.within(range))
        if (const std::int32_t missing = piece.sum.first_missing(numbers.begin);
            missing < numbers.end)
          fail(exact_gradients,
              p,
              "in {}, {} is missing",
              name_of(gradient),
              contribution_text(p, missing));
    }
    return range;
  }

  /// Contributions to the squares of all gradients: one of each part of a shard, then of the
  /// embeddings.
  [[nodiscard]] int all_squares() const {
    return program_.shards * program_.shard_parts + program_.embeddings_slices;
  }

  /// Added to a sum of the last step, they are lost: the update finds that they are missing.
  void square(Place p, const Action& a) {
    const Interval range = need_whole_gradient(p, a);
    const std::int32_t first =
        (of_embeddings(a.payload) ? program_.shards : a.shard) * program_.shard_parts;
    Content& c = content(p.rank, a[Operand::squares]);
    if (!a.accumulates)
      c = {.valid = true, .pieces = Pieces({{0, 1}})};
    add(p, c.pieces, Pieces({{0, 1}, false, Sum({{first + range.begin, first + range.end}})}));
  }

  void need_squares(Place p, Slot slot) const {
    if (slot.valid() != program_.clips)
      fail(exact_gradients,
          p,
          "{} the squares of all gradients",
          program_.clips ? "needs" : "has no use for");
    const auto all = [&](const Piece& piece) {
      return piece.sum.first_missing(0) == all_squares();
    };
    if (program_.clips && !content(p.rank, slot).pieces.any({0, 1}, all))
      fail(exact_gradients, p, "{} lacks the squares of a gradient", name_of(slot));
  }

  void update(Place p, const Action& a) {
    const Interval range = need_whole_gradient(p, a);
    const Slot weights = a[Operand::weights];
    need_weights(p, weights, range);
    need_squares(p, a[Operand::squares]);
    content(p.rank, weights).pieces.change(range, [](Piece& piece) { piece.updated = true; });
  }

  /// A part joins what is there of the same thing; anything else is replaced.
  void receive(const Content& from, Interval range, Place to, Slot slot) {
    if (range.common(extent(to.rank, slot.cls)) != range)
      fail(fresh_reads,
          to,
          "{} has no room for parts {} to {}",
          name_of(slot),
          range.begin,
          range.end - 1);
    Content& target = content(to.rank, slot);
    const Pieces pieces = from.pieces.within(range);
    if (target.same_thing(from))
      return target.pieces.put(range, pieces);
    target = {from.valid, from.shard, from.micro_batch, from.backward, pieces};
  }

  void reduce(Sides calls) {
    const Action& first = at(calls.front());
    const Interval range = moved(first);
    if (first.payload != Payload::gradient && first.payload != Payload::embeddings_gradient &&
        first.payload != Payload::squares)
      fail(fresh_reads, calls.front(), "only gradients can be added up");
    Pieces sum;
    for (const Place call : calls) {
      need_payload(call, Operand::buffer);
      const Pieces own = content(call.rank, at(call)[Operand::buffer]).pieces.within(range);
      if (call.rank == calls.front().rank)
        sum = own;
      else
        add(call, sum, own);
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Action& a = at(calls[i]);
      Pieces& pieces = content(calls[i].rank, a[Operand::buffer]).pieces;
      if (a.kind == Kind::reduce_scatter)
        pieces.put(range, sum.within(slice(calls, i)));
      else if (a.kind == Kind::all_reduce || calls[i].rank == a.peer)
        pieces.put(range, sum);
    }
  }

  void all_gather(Sides calls) {
    const bool embeddings = of_embeddings(at(calls.front()).payload);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Slot slot = at(calls[i])[Operand::buffer];
      need_weights(calls[i], slot, slice(calls, i), embeddings);
      const Pieces own = content(calls[i].rank, slot).pieces.within(slice(calls, i));
      if (embeddings && !std::ranges::all_of(own, &Piece::updated))
        fail(fresh_reads, calls[i], "slice {} is not updated yet", i);
    }
    const Interval range = moved(at(calls.front()));
    for (const Place call : calls)
      content(call.rank, at(call)[Operand::buffer]).pieces.put(range, Pieces({range, embeddings}));
  }

  const Program& program_;
  std::vector<std::array<std::vector<Content>, slot_classes>> slots_;  ///< per rank
};
}  // namespace

void check_contents(const Program& program) {
  Contents contents(program);
  execute(program, [&](Sides sides) { contents.execute(sides); });
  contents.check_end();
}
}  // namespace minitaw::schedule::detail
