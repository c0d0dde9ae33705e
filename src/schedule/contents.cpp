// Follows what every slot holds while a program executes: the part of the validator that knows what is
// computed.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "schedule/contents.hpp"
#include "schedule/execute.hpp"

namespace minitaw::schedule::detail {
namespace {

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
      auto& slots = slots_.emplace_back();
      for (int c = 0; c < slot_classes; ++c) slots[c].resize(rank.slots[c]);
      for (std::int16_t h = 0; h < static_cast<int>(rank.owned_shards.size()); ++h)
        hold(r, {SlotClass::owned, h}, Holds::weights, rank.owned_shards[h]);
      for (std::int16_t e = 0; e < rank.slots[index_of(SlotClass::embeddings)]; ++e)
        hold(r, {SlotClass::embeddings, e}, Holds::embeddings);
    }
  }

  void local(Place p) override {
    using Does = void (Contents::*)(Place, const Action&);
    static constexpr std::array<Does, 11> does = {&Contents::embed,
                                                  &Contents::forward,
                                                  &Contents::loss,
                                                  &Contents::backward,
                                                  &Contents::backward_input,
                                                  &Contents::backward_weight,
                                                  &Contents::embed_backward,
                                                  &Contents::update,
                                                  &Contents::zero,
                                                  &Contents::accumulate,
                                                  &Contents::load};
    if (at(p).kind != Kind::join) (this->*does[index_of(at(p).kind)])(p, at(p));
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
          fail(Rule::exact_gradients, {r, -1}, "h{} still holds {} at the end", h,
               describe(content(r, slot)));
      for (std::int16_t e = 0; e < rank.slots[index_of(SlotClass::embeddings)]; ++e)
        if (stale(r, {SlotClass::embeddings, e}))
          fail(Rule::exact_gradients, {r, -1}, "e{} is not updated as a whole at the end", e);
    }
  }

private:
  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }
  [[nodiscard]] const Content& content(int rank, Slot slot) const {
    return slots_[rank][index_of(slot.cls)][slot.index];
  }
  [[nodiscard]] Content& content(int rank, Slot slot) { return slots_[rank][index_of(slot.cls)][slot.index]; }

  template <class... Args>
  [[noreturn]] void fail(Rule rule, Place p, fmt::format_string<Args...> what, Args&&... args) const {
    refuse(rule, program_, p.rank, p.action, what, std::forward<Args>(args)...);
  }

  [[noreturn]] void unexpected(Place p, Slot slot, const std::string& wanted) const {
    fail(Rule::fresh_reads, p, "{} holds {}, expected {}{}", name_of(slot), describe(content(p.rank, slot)),
         wanted, late(p, slot));
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

  void hold(int rank, Slot slot, Holds holds, std::int32_t shard = -1) {
    content(rank, slot) = {holds, shard, -1, Pieces({extent(rank, slot.cls), false, Sum(listed_)})};
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
      fail(Rule::same_collectives, calls.front(), "{} parts cannot be shared by {} ranks", range.size(),
           members);
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
      fail(Rule::exact_gradients, p, "{} still holds the gradient of the last step", name_of(slot));
    if (c.holds != Holds::gradient) unexpected(p, slot, "a gradient");
    if (!c.pieces.covers(range))
      fail(Rule::exact_gradients, p, "{} lacks a slice of the sum that is read", name_of(slot));
  }

  void need_both_embeddings(Place p, Slot slot) const {
    const int slice = program_.ranks[p.rank].embeddings_slice;
    const std::uint8_t needed =
        slice < 0 ? both_embeddings
                  : embeddings_bit(slice == 0 ? Contribution::embedding : Contribution::head);
    if ((embeddings_written_[p.rank] & needed) != needed)
      fail(Rule::exact_gradients, p, "{} still holds a gradient of the last step", name_of(slot));
  }

  void need_complete(Place p, Slot slot, Range range, const std::vector<std::int32_t>& parts) {
    need_gradient(p, slot, range);
    if (of_embeddings(slot.cls)) need_both_embeddings(p, slot);
    auto known = complete_.find(parts);
    if (known == complete_.end())
      known = complete_.emplace(parts, Sum::complete(parts, program_.micro_batches, listed_)).first;
    for (const Piece& piece : content(p.rank, slot).pieces.within(range))
      if (const std::string defect = piece.sum.defect(known->second); !defect.empty())
        fail(Rule::exact_gradients, p, "in {}, {}", name_of(slot), defect);
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
      fail(Rule::exact_gradients, p, "{} holds a gradient of {} (micro-batch {}), expected only shard {}",
           name_of(a.slots[0]), part_name(named.part), named.micro_batch, a.shard);
    }
  }

  void once(Place p, std::int32_t part, std::uint8_t work) {
    std::uint8_t& done = done_[static_cast<std::size_t>(part) * program_.micro_batches + at(p).micro_batch];
    if ((done & work) != 0) fail(Rule::exact_gradients, p, "has been computed before in this step");
    done |= work;
  }

  void embed(Place p, const Action& a) {
    need_embeddings(p, a.slots[1], Contribution::embedding);
    once(p, program_.shards, embed_done);
    content(p.rank, a.slots[0]) = {Holds::hidden, 0, a.micro_batch, {}};
  }

  void forward(Place p, const Action& a) {
    need_weights(p, a.slots[0], whole(a.slots[0].cls), false);
    need_micro_batch(p, a.slots[2], Holds::hidden, a.shard);
    once(p, a.shard, forward_done);
    content(p.rank, a.slots[1]) = {Holds::saved, a.shard, a.micro_batch, {}};
    content(p.rank, a.slots[2]).shard = a.shard + 1;
  }

  void loss(Place p, const Action& a) {
    need_micro_batch(p, a.slots[0], Holds::hidden, program_.shards);
    need_embeddings(p, a.slots[1], Contribution::head);
    once(p, program_.shards, loss_done);
    content(p.rank, a.slots[0]).holds = Holds::hidden_gradient;
    content(p.rank, a.slots[0]).shard = program_.shards - 1;
    add_gradient(p, a.slots[2], Contribution::head);
  }

  void backward(Place p, const Action& a) {
    backward_input(p, a);
    once(p, a.shard, weight_done);
    add_gradient(p, a.slots[3], a.shard);
  }

  void backward_input(Place p, const Action& a) {
    need_weights(p, a.slots[0], whole(a.slots[0].cls), false);
    need_micro_batch(p, a.slots[1], Holds::saved, a.shard);
    need_micro_batch(p, a.slots[2], Holds::hidden_gradient, a.shard);
    once(p, a.shard, input_done);
    content(p.rank, a.slots[2]).shard = a.shard - 1;
    if (a.kind == Kind::backward_input)
      content(p.rank, a.slots[3]) = {Holds::deferred, a.shard, a.micro_batch, {}};
  }

  void backward_weight(Place p, const Action& a) {
    need_micro_batch(p, a.slots[0], Holds::saved, a.shard);
    need_micro_batch(p, a.slots[1], Holds::deferred, a.shard);
    once(p, a.shard, weight_done);
    add_gradient(p, a.slots[2], a.shard);
  }

  void embed_backward(Place p, const Action& a) {
    need_micro_batch(p, a.slots[0], Holds::hidden_gradient, -1);
    once(p, program_.shards, embed_backward_done);
    add_gradient(p, a.slots[1], Contribution::embedding);
  }

  void update(Place p, const Action& a) {
    if (of_embeddings(a.payload)) return update_embeddings(p, a);
    const Range held = extent(p.rank, SlotClass::owned);
    need_weights(p, a.slots[0], {}, false);
    need_complete(p, a.slots[1], held, {a.shard});
    content(p.rank, a.slots[0]).pieces.change(held, [](Piece& piece) { piece.updated = true; });
  }

  void update_embeddings(Place p, const Action& a) {
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

  void zero(Place p, const Action& a) { hold(p.rank, a.slots[0], Holds::gradient); }

  void accumulate(Place p, const Action& a) {
    need_payload(p);
    if (!a.accumulates) return receive(Content(content(p.rank, a.slots[0])), moved(a), p, a.slots[1]);
    const Pieces source = content(p.rank, a.slots[0]).pieces.within(moved(a));
    for (const Piece& piece : source) grow(p, a.slots[1], piece.range, piece.sum);
  }

  void add_gradient(Place p, Slot slot, std::int32_t part) {
    if (of_embeddings(slot.cls)) write_embeddings(p, slot, part);
    else if (!at(p).accumulates) hold(p.rank, slot, Holds::gradient);
    Sum one(listed_);
    one.add({part, at(p).micro_batch});
    grow(p, slot, slot.cls == SlotClass::embeddings_accumulator ? embeddings_range(part) : whole(slot.cls),
         one);
  }

  void write_embeddings(Place p, Slot slot, std::int32_t part) {
    std::uint8_t& written = embeddings_written_[p.rank];
    const bool before = (written & embeddings_bit(part)) != 0;
    if (at(p).accumulates && !before)
      fail(Rule::exact_gradients, p, "adds to the gradient of the last step in {}", name_of(slot));
    if (!at(p).accumulates && before)
      fail(Rule::exact_gradients, p, "overwrites what this step has added to {}", name_of(slot));
    if (written == 0) hold(p.rank, slot, Holds::gradient);
    written |= embeddings_bit(part);
  }

  void grow(Place p, Slot slot, Range range, const Sum& more) {
    need_gradient(p, slot, range);
    const std::size_t bound =
        static_cast<std::size_t>(slot.cls == SlotClass::embeddings_accumulator ? 2 : 1) *
        program_.micro_batches;
    content(p.rank, slot).pieces.change(range, [&](Piece& piece) {
      if (piece.sum.size() + more.size() > bound)
        fail(Rule::exact_gradients, p, "adds more contributions to {} than there are micro-batches",
             name_of(slot));
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

  void load(Place p, const Action& a) {
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
        fail(Rule::fresh_reads, calls[i], "slice {} is not updated yet", i);
    }
    const Range range = moved(first);
    for (const Place call : calls)
      content(call.rank, at(call).slots[0]).pieces.put(range, Pieces({range, embeddings, Sum(listed_)}));
  }

  const Program& program_;
  bool listed_;
  std::vector<std::array<std::vector<Content>, slot_classes>> slots_;  ///< per rank
  /// What has been computed: [shards + 1, micro-batches], the last row for the embeddings.
  std::vector<std::uint8_t> done_;
  /// Of each rank's gradient of the embeddings, in this step: bits of embeddings_bit().
  std::vector<std::uint8_t> embeddings_written_;
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
