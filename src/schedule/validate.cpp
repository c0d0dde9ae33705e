// SPDX-License-Identifier: BSD-3-Clause
// The checks of validate(): each returns, or throws Refusal with what it found first.
#include "schedule/validate.hpp"
#include <algorithm>
#include <fmt/ranges.h>
#include "base/error.hpp"
#include "schedule/execute.hpp"
#include "schedule/rank_order.hpp"

namespace minitaw::schedule {
namespace {
using namespace detail;
using enum Rule;

bool within(int number, int count) {
  return number >= 0 && number < count;
}

/// The first lane that has more actions in `a` than in `b`.
std::optional<std::size_t> lane_with_more(const LaneCounts& a, const LaneCounts& b) {
  for (std::size_t lane = 0; lane < lanes; ++lane)
    if (a[lane] > b[lane])
      return lane;
  return std::nullopt;
}

/// Every action has the slots, shard, communicator and waits that its kind needs. Other rules
/// refuse the rest: an unknown peer sends no message that matches; a rank that a communicator names
/// twice waits for itself (no_deadlock); a part or an owned shard that does not exist is never
/// updated, and parts that nobody owns are in no weights (check_contents).
class FormCheck : Check {
public:
  using Check::Check;

  void run() {
    check_program();
    for (place_.rank = 0; place_.rank < std::ssize(program_.ranks); ++place_.rank) {
      check_owned();
      issued_ = {};
      for (place_.action = 0; place_.action < std::ssize(here().actions); ++place_.action)
        check_action();
    }
  }

private:
  const RankProgram& here() const { return program_.ranks[place_.rank]; }

  bool shared() const { return program_.context > 1; }

  int slots(SlotClass cls) const { return here().slots[index_of(cls)]; }

  void check_program() {
    const int ranks = std::ssize(program_.ranks);
    if (ranks != program_.groups.ranks())
      fail(slots_accounted,
          place_,
          "{} ranks have actions, but the groups {} have {}",
          ranks,
          program_.groups.text(),
          program_.groups.ranks());
    const int least = std::min({program_.shards,
        program_.micro_batches,
        program_.shard_parts,
        program_.owned_parts,
        program_.embeddings_parts,
        program_.replicas});
    if (least < 1 ||
        (program_.embeddings_split && (program_.embeddings_parts != 2 || program_.tied)))
      fail(exact_gradients,
          place_,
          "the numbers of replicas, shards, micro-batches, parts and slices do not fit");
    if (std::ranges::none_of(program_.ranks, &RankProgram::has_embeddings))
      fail(exact_gradients, place_, "no rank holds the embeddings");
    for (const Communicator& c : program_.communicators)
      check_communicator(c);
    check_context();
  }

  /// Ranks that share sequences are of one group, and it is known how many blocks have segments.
  void check_context() const {
    const int n = program_.context, ranks = program_.groups.ranks();
    bool fits = n >= 1 && ranks % n == 0;
    for (int first = 0; fits && first < ranks; first += n)
      fits = program_.groups.together(first, first + n - 1);
    const std::vector<int>& blocks = program_.blocks;
    const int shards = shared() ? program_.shards : 0;
    if (!fits || std::ssize(blocks) != shards ||
        std::ranges::any_of(blocks, [](int b) { return b < 1; }))
      fail(fresh_reads,
          place_,
          "context groups of {} ranks and the blocks of {} shards do not fit groups {} and {} "
          "shards",
          n,
          blocks.size(),
          program_.groups.text(),
          program_.shards);
  }

  void check_communicator(const Communicator& c) const {
    const int ranks = program_.groups.ranks();
    const auto exists = [=](int rank) { return within(rank, ranks); };
    if (c.among_replicas() ? program_.replicas == 1 : !std::ranges::all_of(c.ranks, exists))
      fail(same_collectives,
          place_,
          "communicator {} must name ranks from 0 to {}",
          c.name,
          ranks - 1);
  }

  void check_owned() {
    place_.action = -1;
    for (const Part part : {here().kept, here().partial})
      if (!within(part.index, part.count) || program_.shard_parts % part.count != 0)
        fail(fresh_reads,
            place_,
            "keeps part {} of {} of a shard that is cut into {}",
            part.index,
            part.count,
            program_.shard_parts);
    const int owned = slots(SlotClass::owned), accumulators = slots(SlotClass::accumulator);
    const int embeddings = slots(SlotClass::embeddings);
    const int embeddings_accumulators = slots(SlotClass::embeddings_accumulator);
    const int shards = std::ssize(here().owned_shards);
    if (owned != shards || accumulators != shards || embeddings != embeddings_accumulators)
      fail(slots_accounted,
          place_,
          "{} owned and {} accumulator slots for {} owned shards, {} and {} of embeddings",
          owned,
          accumulators,
          shards,
          embeddings,
          embeddings_accumulators);
  }

  void check_action() {
    const Action& a = at(place_);
    const bool in_segments = shared() && is_visit(a.kind) && a.kind != Kind::backward_weight;
    if (is_segment(a) != in_segments)
      fail(fresh_reads, place_, "visits are {} here", shared() ? "in segments" : "whole");
    check_numbers(a);
    for (const int i : indices(a.slots)) {
      const Use& use = operands_of(a)[i];
      const SlotClasses classes = classes_of(a, use);
      if (classes.empty() && a.slots[i].valid())
        fail(fresh_reads, place_, "has no use for {}", describe(a.slots[i]));
      if (!classes.empty() && (a.slots[i].valid() || !use.optional))
        check_slot(a, a.slots[i], classes);
    }
    check_lane(a);
    check_partners(a);
    if (const auto lane = lane_with_more(a.waits, issued_))
      fail(no_deadlock,
          place_,
          "waits for {} actions of lane {}, of which {} are issued before it",
          a.waits[*lane],
          table_of<Lane>[*lane].name,
          issued_[*lane]);
    ++issued_[index_of(a.lane)];
  }

  void check_numbers(const Action& a) const {
    const Data data = row_of(a.payload).data;
    const bool ends = data == Data::embeddings && is_compute(a.kind);
    const bool activations = data == Data::micro_batch, of_keys = data == Data::keys;
    // The gradient at the input of the head is that of "shard" number `shards`.
    const int shards = ends ? program_.embeddings_parts : program_.shards + (activations ? 1 : 0);
    if (ends || is_visit(a.kind) || data == Data::shard || activations || of_keys)
      check_number(ends ? "part of the embeddings" : "shard", a.shard, shards);
    if (is_visit(a.kind) || is_end(a.kind) || activations || of_keys)
      check_number("micro-batch", a.micro_batch, program_.micro_batches);
    if (is_segment(a) || of_keys)
      check_number("block", a.block, shared() ? program_.blocks[a.shard] : 0);
    else if (a.block >= 0)
      fail(fresh_reads, place_, "names block {}, expected none", a.block);
    const bool of_heads =
        a.kind == Kind::forward && (a.segment == Segment::attend || a.segment == Segment::extend);
    const int parts = of_heads ? program_.key_parts : parts_of(program_, data);
    if (!within(a.part, a.parts) || parts % a.parts != 0)
      fail(fresh_reads, place_, "names part {} of {} where there are {}", a.part, a.parts, parts);
  }

  void check_number(const char* what, int number, int count) const {
    if (!within(number, count))
      fail(fresh_reads, place_, "names {} {}, expected 0 to {}", what, number, count - 1);
  }

  /// "weights or kept weights"
  static std::string names_of(SlotClasses classes) {
    std::vector<std::string_view> names;
    for (const SlotClassRow& row : table_of<SlotClass>)
      if (classes.contains(row.value))
        names.push_back(row.name);
    return fmt::format("{}", fmt::join(names, " or "));
  }

  void check_slot(const Action& a, Slot slot, SlotClasses classes) const {
    if (!slot.valid() || !classes.contains(slot.cls))
      fail(fresh_reads,
          place_,
          "needs a slot of class {} where it has {}",
          names_of(classes),
          slot.valid() ? describe(slot) : "none");
    if (slot.index >= slots(slot.cls))
      fail(slots_accounted,
          place_,
          "uses {}, but the rank declares {} of this class",
          describe(slot),
          counted(slots(slot.cls), "slot"));
    const bool owned = slot.cls == SlotClass::owned || slot.cls == SlotClass::accumulator;
    if (owned && here().owned_shards[slot.index] != a.shard)
      fail(slot.cls == SlotClass::owned ? fresh_reads : exact_gradients,
          place_,
          "{} belongs to shard {}",
          describe(slot),
          here().owned_shards[slot.index]);
  }

  void check_lane(const Action& a) const {
    const bool computes = is_compute(a.kind) || a.kind == Kind::join;
    if (a.lane == Lane::compute ? is_communication(a.kind) : computes)
      fail(all_waited, place_, "does not belong in lane {}", name_of(a.lane));
  }

  void check_partners(const Action& a) const {
    const bool needs_payload = !is_visit(a.kind) && !is_end(a.kind) && a.kind != Kind::join;
    if (needs_payload && a.payload == Payload::none)
      fail(matched_messages, place_, "moves nothing");
    if (is_point_to_point(a.kind) && a.peer == place_.rank)
      fail(matched_messages, place_, "its peer is its own rank");
    if (!is_collective(a.kind))
      return;
    const bool known = within(a.communicator, std::ssize(program_.communicators));
    const Communicator none, &c = known ? program_.communicators[a.communicator] : none;
    if (known && c.among_replicas()) {
      const bool gradient =
          a.payload == Payload::gradient || a.payload == Payload::embeddings_gradient;
      if (a.kind != Kind::all_reduce || !gradient)
        fail(same_collectives, place_, "only gradients are summed over replicas, by all_reduce");
      return;
    }
    if (c.index_of(place_.rank) < 0)
      fail(same_collectives, place_, "the rank is not a member of the communicator");
    if (is_rooted(a.kind) && c.index_of(a.peer) < 0)
      fail(same_collectives, place_, "the root is not a member of the communicator");
  }

  Place place_;  // what is looked at
  LaneCounts issued_{};
};

/// Counts the contents of a slot class that live at once. A content lives from the write that
/// begins it to its last access before the next one begins, or to where that access lets go of its
/// slot (releases()). A part joins what is there of the same shard.
class Peak {
public:
  Peak(int slots, std::size_t actions) : lives_(slots), change_(actions + 1) {}

  void touch(int action, const Action& a, const Access& access, int end) {
    Life& life = lives_[access.slot.index];
    const bool joins = a.parts > 1 && life.shard == a.shard;
    if (life.begin < 0 || (access.write && !access.read && !joins)) {
      close(life);
      life = {action, action, a.shard};
    }
    life.last = std::max(life.last, end);
  }

  /// Call it once, at the end.
  int most() {
    for (const Life& life : lives_)
      close(life);
    int alive = 0, most = 0;
    for (const int more : change_)
      most = std::max(most, alive += more);
    return most;
  }

private:
  struct Life {
    int begin = -1, last = -1;  ///< actions
    int shard = -1;
  };

  void close(const Life& life) {
    if (life.begin < 0)
      return;
    ++change_[life.begin];
    --change_[life.last + 1];
  }

  std::vector<Life> lives_;  ///< the last one of each slot
  std::vector<int> change_;  ///< of the number of contents alive, at each action
};

/// Checks of one rank's actions.
class RankCheck : Check {
public:
  RankCheck(const Program& program, int rank)
      : Check(program),
        rank_(rank),
        actions_(program.ranks[rank].actions),
        order_(program.ranks[rank], rank) {}

  /// The waits order the readers and writers of each slot, and join comes last.
  void check_order() {
    if (actions_.empty() || actions_.back().kind != Kind::join)
      fail(all_waited,
          {rank_, static_cast<int>(actions_.size()) - 1},
          "the rank's last action must be join");
    for (const int i : indices(actions_)) {
      const Action& a = actions_[i];
      const LaneCounts done = order_.done_before(a);
      for (const Access& access : accesses(a, rank_))
        check_access(i, done, access);
      if (a.kind == Kind::join)
        check_join(i, done);
      order_.add(i, a);
    }
  }

  /// There are as many slots for what passes through as contents live at once.
  void check_slots() const {
    const RankProgram& here = program_.ranks[rank_];
    const std::vector<int> ends = releases(here);
    std::vector<Peak> peaks;
    for (const int slots : here.slots)
      peaks.emplace_back(slots, slots > 0 ? actions_.size() : 0);
    for (const int i : indices(actions_))
      for (const Access& access : accesses(actions_[i], rank_))
        peaks[index_of(access.slot.cls)].touch(i, actions_[i], access, ends[i]);
    for (const SlotClassRow& row : table_of<SlotClass>) {
      const int declared = here.slots[index_of(row.value)];
      const int most = peaks[index_of(row.value)].most();
      if (!row.permanent && most < declared)
        fail(slots_accounted,
            {rank_, -1},
            "declares {} of class {}, but at most {} of their contents live at once",
            counted(declared, "slot"),
            row.name,
            most);
    }
  }

private:
  void check_access(int i, const LaneCounts& done, const Access& access) const {
    const auto follow = [&](Rule rule, const LaneCounts& uses, const char* does, const char* use) {
      if (const auto lane = lane_with_more(uses, done))
        fail(rule,
            {rank_, i},
            "{} {}, which may still be {} by {}; expected a wait for {} actions of lane {}",
            does,
            describe(access.slot),
            use,
            text_of(program_, {rank_, order_.at(*lane, uses[*lane]).action}),
            uses[*lane],
            table_of<Lane>[*lane].name);
    };
    const RankOrder::SlotUses& uses = order_.uses(access.slot);
    if (access.read)
      follow(fresh_reads, uses.written, "reads", "written");
    if (!access.write)
      return;
    follow(no_overwrite, uses.written, "overwrites", "written");
    follow(no_overwrite, uses.read, "overwrites", "read");
  }

  void check_join(int i, const LaneCounts& done) const {
    if (i + 1 < std::ssize(actions_))
      fail(all_waited, {rank_, i + 1}, "comes after join, which must be the rank's last action");
    if (const auto lane = lane_with_more(order_.added(), done))
      fail(all_waited,
          {rank_, order_.at(*lane, done[*lane] + 1).action},
          "join does not wait for it; expected a wait for {} actions of lane {}",
          order_.added()[*lane],
          table_of<Lane>[*lane].name);
  }

  int rank_;
  const std::vector<Action>& actions_;
  RankOrder order_;
};

}  // namespace

std::optional<Violation> validate(const Program& program) {
  try {
    FormCheck(program).run();
    for (const int r : indices(program.ranks))
      RankCheck(program, r).check_order();
    check_contents(program);
    for (const int r : indices(program.ranks))
      RankCheck(program, r).check_slots();
  } catch (const Refusal& refusal) {
    return refusal.violation;
  }
  return std::nullopt;
}

void require_valid(const Program& program) {
  if (const std::optional<Violation> violation = validate(program))
    throw LogicError("schedule {} breaks the rule \"{}\": {}",
        program.schedule,
        name_of(violation->rule),
        violation->message);
}

Program build_valid(const Request& request) {
  Program program = build(request);
  require_valid(program);
  return program;
}
}  // namespace minitaw::schedule
