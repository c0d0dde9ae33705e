// What every slot holds while a program executes, by name instead of by numbers: the part of the validator
// that knows what is computed.
#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <set>

#include "schedule/execute.hpp"

namespace minitaw::schedule::detail {
namespace {

/// What one micro-batch adds to a gradient: that of a shard, of the embedding or of the head.
struct Contribution {
  static constexpr std::int32_t embedding = -1;
  static constexpr std::int32_t head = -2;

  std::int32_t part = 0;  ///< shard, embedding or head
  std::int32_t micro_batch = 0;

  friend auto operator<=>(const Contribution&, const Contribution&) = default;
  friend bool operator==(const Contribution&, const Contribution&) = default;  // nvcc 13 does not derive it
};

std::string part_name(std::int32_t part) {
  if (part == Contribution::embedding) return "the embedding";
  return part == Contribution::head ? "the head" : fmt::format("shard {}", part);
}

/// A bijection of 64 bits that leaves nothing of its input to be seen (the finaliser of splitmix64; Steele,
/// Lea, Flood, OOPSLA 2014).
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// A gradient as the multiset of contributions that were added up in it, known by its size and by the sum of
/// 128-bit hashes of its members: two different multisets of the sizes that programs have agree in both with
/// a probability below 1e-30. Listed, it also names its members, for messages; that takes memory.
class Sum {
public:
  explicit Sum(bool listed = false) : listed_(listed) {}

  /// Every micro-batch 0 .. micro_batches-1 of every part exactly once.
  static Sum complete(const std::vector<std::int32_t>& parts, int micro_batches, bool listed) {
    Sum sum(listed);
    for (const std::int32_t part : parts)
      for (int m = 0; m < micro_batches; ++m) sum.add({part, m});
    return sum;
  }

  void add(Contribution c) {
    const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(c.part)) << 32 |
                              static_cast<std::uint32_t>(c.micro_batch);
    if (size_ == 0) part_ = c.part;
    mixed_ = mixed_ || c.part != part_;
    ++size_;
    low_ += mixed(key);
    high_ += mixed(~key);
    if (listed_) items_.push_back(c);
  }

  void add(const Sum& other) {
    if (other.size_ == 0) return;
    if (size_ == 0) part_ = other.part_;
    mixed_ = mixed_ || other.mixed_ || other.part_ != part_;
    size_ += other.size_;
    low_ += other.low_;
    high_ += other.high_;
    // By index: a sum may be added to itself.
    const std::size_t count = other.items_.size();
    for (std::size_t i = 0; i < count; ++i) items_.push_back(other.items_[i]);
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  /// Whether all contributions are of `part`.
  [[nodiscard]] bool only(std::int32_t part) const { return size_ == 0 || (!mixed_ && part_ == part); }

  /// The first contribution of another part than `part`, or nothing; of a listed sum.
  [[nodiscard]] const Contribution* foreign(std::int32_t part) const {
    const auto at = std::ranges::find_if(items_, [&](const Contribution& c) { return c.part != part; });
    return at == items_.end() ? nullptr : &*at;
  }

  /// What keeps it from being `wanted`; empty if nothing does.
  [[nodiscard]] std::string defect(const Sum& wanted) const {
    if (*this == wanted) return "";
    if (!listed_ || !wanted.listed_) return "contributions are missing or counted twice";
    std::vector<Contribution> all = wanted.items_, held = items_;
    std::ranges::sort(all);
    std::ranges::sort(held);
    const auto [want, have] = std::ranges::mismatch(all, held);
    if (have == held.end() || (want != all.end() && *want < *have))
      return fmt::format("micro-batch {} of {} is missing", want->micro_batch, part_name(want->part));
    const bool twice = have != held.begin() && *(have - 1) == *have;
    return fmt::format("micro-batch {} of {} {}", have->micro_batch, part_name(have->part),
                       twice ? "is counted twice" : "does not belong there");
  }

  friend bool operator==(const Sum& a, const Sum& b) {
    return a.size_ == b.size_ && a.low_ == b.low_ && a.high_ == b.high_;
  }

private:
  std::size_t size_ = 0;
  std::uint64_t low_ = 0, high_ = 0;  ///< sums of hashes
  std::int32_t part_ = 0;             ///< of the first contribution
  bool mixed_ = false;                ///< others are of another part
  bool listed_;
  std::vector<Contribution> items_;
};

/// Some of the equal parts that a shard or the embeddings are cut into: [begin, end).
struct Range {
  std::int32_t begin = 0, end = 0;

  [[nodiscard]] std::int32_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Parts of a slot that are known to be alike.
struct Piece {
  Range range;
  bool updated = false;  ///< weights: as the optimiser left them
  Sum sum;               ///< gradient
};

/// Pieces of a slot in ascending order, without overlap; what lies between them holds nothing of use.
class Pieces {
public:
  Pieces() = default;
  explicit Pieces(Piece piece) { pieces_.push_back(std::move(piece)); }

  [[nodiscard]] bool covers(Range range) const {
    std::int32_t reached = range.begin;
    for (const Piece& piece : pieces_)
      if (piece.range.begin <= reached && piece.range.end > reached) reached = piece.range.end;
    return reached >= range.end;
  }

  /// The pieces inside `range`, cut at its borders.
  [[nodiscard]] Pieces within(Range range) const {
    Pieces result;
    for (const Piece& piece : pieces_) {
      const Range common{std::max(piece.range.begin, range.begin), std::min(piece.range.end, range.end)};
      if (common.size() <= 0) continue;
      result.pieces_.push_back(piece);
      result.pieces_.back().range = common;
    }
    return result;
  }

  /// Replaces what is there by `others`, which lie inside `range`.
  void put(Range range, const Pieces& others) {
    cut(range.begin);
    cut(range.end);
    std::erase_if(pieces_,
                  [&](const Piece& p) { return p.range.begin >= range.begin && p.range.end <= range.end; });
    const auto at = std::ranges::find_if(pieces_, [&](const Piece& p) { return p.range.begin >= range.end; });
    pieces_.insert(at, others.pieces_.begin(), others.pieces_.end());
  }

  /// Changes the pieces of `range` in place, after cutting them at its borders.
  template <class Change>
  void change(Range range, const Change& change) {
    cut(range.begin);
    cut(range.end);
    for (Piece& piece : pieces_)
      if (piece.range.begin >= range.begin && piece.range.end <= range.end) change(piece);
  }

  [[nodiscard]] auto begin() const { return pieces_.begin(); }
  [[nodiscard]] auto end() const { return pieces_.end(); }

private:
  /// Makes `at` a border between pieces.
  void cut(std::int32_t at) {
    const auto piece =
        std::ranges::find_if(pieces_, [&](const Piece& p) { return p.range.begin < at && at < p.range.end; });
    if (piece == pieces_.end()) return;
    Piece tail = *piece;
    tail.range.begin = at;
    piece->range.end = at;
    pieces_.insert(piece + 1, std::move(tail));
  }

  std::vector<Piece> pieces_;
};

/// What a slot holds.
struct Content {
  enum class Holds : std::uint8_t {
    nothing,
    weights,
    gradient,
    saved,
    deferred,
    hidden,
    hidden_gradient,
    embeddings
  };

  Holds holds = Holds::nothing;
  std::int32_t shard = -1;        ///< weights, kept, deferred; hidden: the shard to compute next, either way
  std::int32_t micro_batch = -1;  ///< kept, deferred, hidden
  Pieces pieces;                  ///< weights, gradient, embeddings

  [[nodiscard]] bool same_thing(const Content& other) const {
    return holds == other.holds && shard == other.shard && micro_batch == other.micro_batch;
  }
};

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
  case Content::Holds::saved:
    return fmt::format("what shard {} saved of micro-batch {}", c.shard, c.micro_batch);
  case Content::Holds::deferred:
    return fmt::format("what B left of shard {} and micro-batch {}", c.shard, c.micro_batch);
  case Content::Holds::hidden:
    return fmt::format("micro-batch {} before shard {}", c.micro_batch, c.shard);
  case Content::Holds::hidden_gradient:
    return fmt::format("the gradient of micro-batch {} behind shard {}", c.micro_batch, c.shard);
  case Content::Holds::embeddings:
    return updated() ? "embeddings that are being updated" : "the embeddings";
  }
  return "";
}

// What is computed once for each (shard, micro-batch), and for each micro-batch at the embeddings.
constexpr std::uint8_t forward_done = 1, input_done = 2, weight_done = 4;
constexpr std::uint8_t embed_done = 1, loss_done = 2, embed_backward_done = 4;
constexpr std::uint8_t all_done = 7;

// Whose gradient a step has written.
std::uint8_t embeddings_bit(std::int32_t part) { return part == Contribution::embedding ? 1 : 2; }
constexpr std::uint8_t both_embeddings = 3;

/// Follows the contents of all slots through an execution and refuses what computes or moves the wrong thing
/// (fresh_reads), or loses or repeats a contribution (exact_gradients).
class Contents : public Listener {
public:
  /// `listed`: sums know their members, so that messages can name what is missing.
  Contents(const Program& program, bool listed) : program_(program), listed_(listed) {
    done_.resize((static_cast<std::size_t>(program.shards) + 1) * program.micro_batches);
    embeddings_written_.resize(program.ranks.size());
    for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
      const RankProgram& rank = program.ranks[r];
      std::size_t count = 0;
      std::array<std::size_t, slot_classes>& first = first_.emplace_back();
      for (int c = 0; c < slot_classes; ++c) {
        first[c] = count;
        count += rank.slots[c];
      }
      slots_.emplace_back(count);
      for (int h = 0; h < static_cast<int>(rank.owned_shards.size()); ++h)
        hold({r, -1}, {SlotClass::owned, static_cast<std::int16_t>(h)}, Holds::weights, rank.owned_shards[h]);
      for (int e = 0; e < rank.slots[index(SlotClass::embeddings)]; ++e)
        hold({r, -1}, {SlotClass::embeddings, static_cast<std::int16_t>(e)}, Holds::embeddings, -1);
    }
  }

  void local(Place p) override {
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
      return of_embeddings(at(p).slots[0].cls) ? update_embeddings(p) : update(p);
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

  void message(Place send, Place receiver) override {
    need_payload(send);
    const Content from = content(send.rank, at(send).slots[0]);
    receive(from, moved(at(send)), receiver, at(receiver).slots[0]);
  }

  void collective(std::span<const Place> calls) override {
    const Action& a = at(calls.front());
    if (a.kind == Kind::reduce_scatter) return reduce_scatter(calls);
    if (a.kind == Kind::all_gather) return all_gather(calls);
    if (a.kind != Kind::broadcast) return reduce(calls);
    const auto root = std::ranges::find(calls, a.peer, &Place::rank);
    for (const Place call : calls)
      if (call.rank != a.peer) message(*root, call);
  }

  /// At the end every micro-batch is computed and every copy of every weight is up to date.
  void check_end() const {
    for (std::size_t i = 0; i < done_.size(); ++i)
      if (done_[i] != all_done) {
        const int part = static_cast<int>(i) / program_.micro_batches;
        throw Refusal{
            {Rule::exact_gradients, -1, -1,
             fmt::format("the program: micro-batch {} is not computed forward and backward through {}",
                         static_cast<int>(i) % program_.micro_batches,
                         part == program_.shards ? "the embeddings" : part_name(part))}};
      }
    const auto stale = [&](int rank, Slot slot) {
      return std::ranges::any_of(content(rank, slot).pieces, [](const Piece& p) { return !p.updated; });
    };
    for (int r = 0; r < static_cast<int>(program_.ranks.size()); ++r) {
      const RankProgram& rank = program_.ranks[r];
      for (std::int16_t h = 0; h < static_cast<int>(rank.owned_shards.size()); ++h)
        if (const Slot slot{SlotClass::owned, h}; stale(r, slot))
          fail(Rule::exact_gradients, {r, -1},
               fmt::format("h{} still holds {} at the end", h, describe(content(r, slot))));
      for (std::int16_t e = 0; e < rank.slots[index(SlotClass::embeddings)]; ++e)
        if (stale(r, {SlotClass::embeddings, e}))
          fail(Rule::exact_gradients, {r, -1}, fmt::format("e{} is not updated as a whole at the end", e));
    }
  }

private:
  using Holds = Content::Holds;

  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }
  [[nodiscard]] const Content& content(int rank, Slot slot) const {
    return slots_[rank][first_[rank][index(slot.cls)] + slot.index];
  }
  [[nodiscard]] Content& content(int rank, Slot slot) {
    return slots_[rank][first_[rank][index(slot.cls)] + slot.index];
  }
  static std::size_t index(SlotClass cls) { return static_cast<std::size_t>(cls); }

  [[noreturn]] void fail(Rule rule, Place p, const std::string& what) const {
    refuse(rule, program_, p.rank, p.action, what);
  }

  [[noreturn]] void unexpected(Place p, Slot slot, const std::string& wanted) const {
    fail(Rule::fresh_reads, p,
         fmt::format("{} holds {}, expected {}{}", name_of(slot), describe(content(p.rank, slot)), wanted,
                     late(p, slot)));
  }

  /// The fetch that comes only after who needs it: what writes the slot next, if it is what was expected.
  [[nodiscard]] std::string late(Place p, Slot slot) const {
    const auto& actions = program_.ranks[p.rank].actions;
    for (int i = p.action + 1; i < static_cast<int>(actions.size()); ++i)
      for (const Access& access : accesses(actions[i], p.rank)) {
        if (!access.write || access.slot != slot) continue;
        const bool expected = actions[i].payload == Payload::weights && actions[i].shard == at(p).shard;
        return expected ? fmt::format("; {} comes too late", place(program_, p.rank, i)) : "";
      }
    return "";
  }

  void hold(Place p, Slot slot, Holds holds, std::int32_t shard) {
    content(p.rank, slot) = {holds, shard, -1, Pieces({extent(p.rank, slot.cls), false, Sum(listed_)})};
  }

  [[nodiscard]] Range whole(SlotClass cls) const {
    return {0, of_embeddings(cls) ? program_.embeddings_slices : program_.shard_parts};
  }

  /// What a slot of the rank can hold.
  [[nodiscard]] Range extent(int rank, SlotClass cls) const {
    const RankProgram& r = program_.ranks[rank];
    if (of_embeddings(cls) && r.embeddings_slice >= 0) return {r.embeddings_slice, r.embeddings_slice + 1};
    if (cls != SlotClass::owned && cls != SlotClass::accumulator) return whole(cls);
    const std::int32_t each = program_.shard_parts / program_.owned_slices;
    return {r.slice * each, (r.slice + 1) * each};
  }

  /// What an action moves.
  [[nodiscard]] Range moved(const Action& a) const {
    const std::int32_t each =
        (of_embeddings(a.payload) ? program_.embeddings_slices : program_.shard_parts) / a.parts;
    return {a.part * each, (a.part + 1) * each};
  }

  /// Slice i of what a collective moves, for each of its members; refuses what cannot be divided.
  [[nodiscard]] Range slice(std::span<const Place> calls, std::size_t i) const {
    const Range range = moved(at(calls.front()));
    const auto members = static_cast<std::int32_t>(calls.size());
    if (range.size() % members != 0)
      fail(Rule::same_collectives, calls.front(),
           fmt::format("{} parts cannot be shared by {} ranks", range.size(), members));
    const std::int32_t each = range.size() / members;
    const std::int32_t begin = range.begin + static_cast<std::int32_t>(i) * each;
    return {begin, begin + each};
  }

  /// Slice of the embeddings that an end's tensors lie in, or all.
  [[nodiscard]] Range embeddings_range(std::int32_t part) const {
    if (!program_.embeddings_split) return whole(SlotClass::embeddings);
    return part == Contribution::embedding ? Range{0, 1} : Range{1, 2};
  }

  /// The weights of the action's shard, in all of `range`.
  void need_weights(Place p, Slot slot, Range range, bool updated_too) const {
    const Content& c = content(p.rank, slot);
    if (c.holds != Holds::weights || c.shard != at(p).shard || !c.pieces.covers(range) ||
        (!updated_too && std::ranges::any_of(c.pieces, &Piece::updated)))
      unexpected(p, slot, fmt::format("the weights of shard {}", at(p).shard));
  }

  void need_embeddings(Place p, Slot slot, std::int32_t part) const {
    const Pieces held = content(p.rank, slot).pieces.within(embeddings_range(part));
    if (!held.covers(embeddings_range(part))) unexpected(p, slot, fmt::format("{}", part_name(part)));
    if (std::ranges::any_of(held, &Piece::updated)) unexpected(p, slot, "the embeddings before their update");
  }

  void need_micro_batch(Place p, Slot slot, Holds holds, std::int32_t shard) const {
    const Content wanted{holds, shard, at(p).micro_batch, {}};
    if (!content(p.rank, slot).same_thing(wanted)) unexpected(p, slot, describe(wanted));
  }

  void need_gradient(Place p, Slot slot, Range range) const {
    const Content& c = content(p.rank, slot);
    const bool lasting = slot.cls == SlotClass::accumulator || slot.cls == SlotClass::embeddings_accumulator;
    if (c.holds != Holds::gradient && lasting)
      fail(Rule::exact_gradients, p,
           fmt::format("{} still holds the gradient of the last step", name_of(slot)));
    if (c.holds != Holds::gradient) unexpected(p, slot, "a gradient");
    if (!c.pieces.covers(range))
      fail(Rule::exact_gradients, p, fmt::format("{} lacks a slice of the sum that is read", name_of(slot)));
  }

  void need_both_embeddings(Place p, Slot slot) const {
    const int slice = program_.ranks[p.rank].embeddings_slice;
    const std::uint8_t needed =
        slice < 0 ? both_embeddings
                  : embeddings_bit(slice == 0 ? Contribution::embedding : Contribution::head);
    if ((embeddings_written_[p.rank] & needed) != needed)
      fail(Rule::exact_gradients, p,
           fmt::format("{} still holds a gradient of the last step", name_of(slot)));
  }

  void need_complete(Place p, Slot slot, Range range, const std::vector<std::int32_t>& parts) {
    need_gradient(p, slot, range);
    if (of_embeddings(slot.cls)) need_both_embeddings(p, slot);
    auto known = complete_.find(parts);
    if (known == complete_.end())
      known = complete_.emplace(parts, Sum::complete(parts, program_.micro_batches, listed_)).first;
    for (const Piece& piece : content(p.rank, slot).pieces.within(range))
      if (const std::string defect = piece.sum.defect(known->second); !defect.empty())
        fail(Rule::exact_gradients, p, fmt::format("in {}, {}", name_of(slot), defect));
  }

  /// slots[0] holds what the action says that it moves.
  void need_payload(Place p) const {
    const Action& a = at(p);
    const Slot slot = a.slots[0];
    switch (a.payload) {
    case Payload::weights:
      return need_weights(p, slot, moved(a), true);
    case Payload::gradient:
      need_gradient(p, slot, moved(a));
      return need_only(p, moved(a));
    case Payload::activation:
      return need_micro_batch(p, slot, Holds::hidden, a.shard);
    case Payload::activation_grad:
      return need_micro_batch(p, slot, Holds::hidden_gradient, a.shard - 1);
    case Payload::embeddings_gradient:
      need_gradient(p, slot, moved(a));
      return need_both_embeddings(p, slot);
    default:
      return;
    }
  }

  /// Nothing but gradients of the action's shard.
  void need_only(Place p, Range range) const {
    const Action& a = at(p);
    for (const Piece& piece : content(p.rank, a.slots[0]).pieces.within(range)) {
      if (piece.sum.only(a.shard)) continue;
      const Contribution* foreign = piece.sum.foreign(a.shard);
      const Contribution named = foreign != nullptr ? *foreign : Contribution{};
      fail(Rule::exact_gradients, p,
           fmt::format("{} holds a gradient of {} (micro-batch {}), expected only shard {}",
                       name_of(a.slots[0]), part_name(named.part), named.micro_batch, a.shard));
    }
  }

  void once(Place p, std::int32_t part, std::uint8_t work) {
    std::uint8_t& done = done_[static_cast<std::size_t>(part) * program_.micro_batches + at(p).micro_batch];
    if ((done & work) != 0) fail(Rule::exact_gradients, p, "has been computed before in this step");
    done |= work;
  }

  void embed(Place p) {
    const Action& a = at(p);
    need_embeddings(p, a.slots[1], Contribution::embedding);
    once(p, program_.shards, embed_done);
    content(p.rank, a.slots[0]) = {Holds::hidden, 0, a.micro_batch, {}};
  }

  void forward(Place p) {
    const Action& a = at(p);
    need_weights(p, a.slots[0], whole(a.slots[0].cls), false);
    need_micro_batch(p, a.slots[2], Holds::hidden, a.shard);
    once(p, a.shard, forward_done);
    content(p.rank, a.slots[1]) = {Holds::saved, a.shard, a.micro_batch, {}};
    content(p.rank, a.slots[2]).shard = a.shard + 1;
  }

  void loss(Place p) {
    const Action& a = at(p);
    need_micro_batch(p, a.slots[0], Holds::hidden, program_.shards);
    need_embeddings(p, a.slots[1], Contribution::head);
    once(p, program_.shards, loss_done);
    content(p.rank, a.slots[0]).holds = Holds::hidden_gradient;
    content(p.rank, a.slots[0]).shard = program_.shards - 1;
    add_gradient(p, a.slots[2], Contribution::head);
  }

  void backward(Place p) {
    backward_input(p);
    once(p, at(p).shard, weight_done);
    add_gradient(p, at(p).slots[3], at(p).shard);
  }

  void backward_input(Place p) {
    const Action& a = at(p);
    need_weights(p, a.slots[0], whole(a.slots[0].cls), false);
    need_micro_batch(p, a.slots[1], Holds::saved, a.shard);
    need_micro_batch(p, a.slots[2], Holds::hidden_gradient, a.shard);
    once(p, a.shard, input_done);
    content(p.rank, a.slots[2]).shard = a.shard - 1;
    if (a.kind == Kind::backward_input)
      content(p.rank, a.slots[3]) = {Holds::deferred, a.shard, a.micro_batch, {}};
  }

  void backward_weight(Place p) {
    const Action& a = at(p);
    need_micro_batch(p, a.slots[0], Holds::saved, a.shard);
    need_micro_batch(p, a.slots[1], Holds::deferred, a.shard);
    once(p, a.shard, weight_done);
    add_gradient(p, a.slots[2], a.shard);
  }

  void embed_backward(Place p) {
    const Action& a = at(p);
    need_micro_batch(p, a.slots[0], Holds::hidden_gradient, -1);
    once(p, program_.shards, embed_backward_done);
    add_gradient(p, a.slots[1], Contribution::embedding);
  }

  void update(Place p) {
    const Action& a = at(p);
    const Range held = extent(p.rank, SlotClass::owned);
    need_weights(p, a.slots[0], {}, false);
    need_complete(p, a.slots[1], held, {a.shard});
    content(p.rank, a.slots[0]).pieces.change(held, [](Piece& piece) { piece.updated = true; });
  }

  void update_embeddings(Place p) {
    const Action& a = at(p);
    const Range slice{a.shard, a.shard + 1};
    std::vector<std::int32_t> parts = {Contribution::embedding, Contribution::head};
    if (program_.embeddings_split) parts = {a.shard == 0 ? Contribution::embedding : Contribution::head};
    need_complete(p, a.slots[1], slice, parts);
    Pieces& pieces = content(p.rank, a.slots[0]).pieces;
    if (!pieces.covers(slice)) unexpected(p, a.slots[0], fmt::format("slice {} of the embeddings", a.shard));
    pieces.change(slice, [&](Piece& piece) {
      if (piece.updated) fail(Rule::exact_gradients, p, "updates the slice a second time");
      piece.updated = true;
    });
  }

  void zero(Place p) { hold(p, at(p).slots[0], Holds::gradient, -1); }

  void accumulate(Place p) {
    need_payload(p);
    const Action& a = at(p);
    if (!a.accumulates) return receive(Content(content(p.rank, a.slots[0])), moved(a), p, a.slots[1]);
    const Pieces source = content(p.rank, a.slots[0]).pieces.within(moved(a));
    for (const Piece& piece : source) grow(p, a.slots[1], piece.range, piece.sum);
  }

  void add_gradient(Place p, Slot slot, std::int32_t part) {
    if (of_embeddings(slot.cls)) write_embeddings(p, slot, part);
    else if (!at(p).accumulates) hold(p, slot, Holds::gradient, -1);
    Sum one(listed_);
    one.add({part, at(p).micro_batch});
    grow(p, slot, slot.cls == SlotClass::embeddings_accumulator ? embeddings_range(part) : whole(slot.cls),
         one);
  }

  void write_embeddings(Place p, Slot slot, std::int32_t part) {
    std::uint8_t& written = embeddings_written_[p.rank];
    const bool before = (written & embeddings_bit(part)) != 0;
    if (at(p).accumulates && !before)
      fail(Rule::exact_gradients, p,
           fmt::format("adds to the gradient of the last step in {}", name_of(slot)));
    if (!at(p).accumulates && before)
      fail(Rule::exact_gradients, p, fmt::format("overwrites what this step has added to {}", name_of(slot)));
    if (written == 0) hold(p, slot, Holds::gradient, -1);
    written |= embeddings_bit(part);
  }

  void grow(Place p, Slot slot, Range range, const Sum& more) {
    need_gradient(p, slot, range);
    const std::size_t bound =
        static_cast<std::size_t>(slot.cls == SlotClass::embeddings_accumulator ? 2 : 1) *
        program_.micro_batches;
    content(p.rank, slot).pieces.change(range, [&](Piece& piece) {
      if (piece.sum.size() + more.size() > bound)
        fail(Rule::exact_gradients, p,
             fmt::format("adds more contributions to {} than there are micro-batches", name_of(slot)));
      piece.sum.add(more);
    });
  }

  /// A part joins what is there of the same thing; anything else is replaced.
  void receive(const Content& from, Range range, Place to, Slot slot) {
    Content& target = content(to.rank, slot);
    const Pieces pieces = from.pieces.within(range);
    if (target.same_thing(from) && range != whole(slot.cls)) return target.pieces.put(range, pieces);
    target = {from.holds, from.shard, from.micro_batch, pieces};
  }

  void load(Place p) {
    const Action& a = at(p);
    need_weights(p, a.slots[0], {}, true);
    receive(Content(content(p.rank, a.slots[0])), extent(p.rank, SlotClass::owned), p, a.slots[1]);
  }

  void reduce(std::span<const Place> calls) {
    const Range range = moved(at(calls.front()));
    const Pieces sum = union_of(calls, range);
    for (const Place call : calls)
      if (const Action& a = at(call); a.kind == Kind::all_reduce || call.rank == a.peer)
        content(call.rank, a.slots[0]).pieces.put(range, sum);
  }

  [[nodiscard]] Pieces union_of(std::span<const Place> calls, Range range) const {
    std::set<std::int32_t> borders = {range.begin, range.end};
    for (const Place call : calls) {
      need_payload(call);
      if (content(call.rank, at(call).slots[0]).holds != Holds::gradient)
        fail(Rule::fresh_reads, call, "only gradients can be added up");
      for (const Piece& piece : content(call.rank, at(call).slots[0]).pieces.within(range))
        borders.insert(piece.range.begin);
    }
    const bool embeddings = at(calls.front()).payload == Payload::embeddings_gradient;
    const std::size_t bound = static_cast<std::size_t>(embeddings ? 2 : 1) * program_.micro_batches;
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

  void reduce_scatter(std::span<const Place> calls) {
    const Range range = moved(at(calls.front()));
    const Pieces sum = union_of(calls, range);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Pieces& pieces = content(calls[i].rank, at(calls[i]).slots[0]).pieces;
      pieces.put(range, {});
      pieces.put(slice(calls, i), sum.within(slice(calls, i)));
    }
  }

  void all_gather(std::span<const Place> calls) {
    const Action& first = at(calls.front());
    const bool embeddings = first.payload == Payload::embeddings;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Slot slot = at(calls[i]).slots[0];
      const Content& c = content(calls[i].rank, slot);
      const Pieces own = c.pieces.within(slice(calls, i));
      const bool right = embeddings || (c.holds == Holds::weights && c.shard == first.shard);
      if (!right || !own.covers(slice(calls, i)))
        unexpected(calls[i], slot, fmt::format("slice {} of the weights of shard {}", i, first.shard));
      if (embeddings && !std::ranges::all_of(own, &Piece::updated))
        fail(Rule::fresh_reads, calls[i], fmt::format("slice {} is not updated yet", i));
    }
    const Range range = moved(first);
    for (const Place call : calls)
      content(call.rank, at(call).slots[0]).pieces.put(range, Pieces({range, embeddings, Sum(listed_)}));
  }

  const Program& program_;
  bool listed_;
  std::vector<std::vector<Content>> slots_;                   ///< per rank, classes one after the other
  std::vector<std::array<std::size_t, slot_classes>> first_;  ///< of each class
  /// What has been computed: [shards + 1, micro-batches], the last row for the embeddings.
  std::vector<std::uint8_t> done_;
  std::vector<std::uint8_t> embeddings_written_;       ///< of each rank's gradient of the embeddings, in this
                                                       ///< step: bits of embeddings_bit()
  std::map<std::vector<std::int32_t>, Sum> complete_;  ///< whole gradients of parts
};

}  // namespace

void check_contents(const Program& program) {
  const auto check = [&](bool listed) {
    Contents contents(program, listed);
    execute(program, contents);
    contents.check_end();
  };
  try {
    check(false);
  } catch (const Refusal&) {
    check(true);  // finds the same, and can name what is missing
    throw;
  }
}

}  // namespace minitaw::schedule::detail
