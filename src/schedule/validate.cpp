// SPDX-License-Identifier: BSD-3-Clause
// The checks of validate(): each returns, or throws Refusal with what it found first.
#include "schedule/validate.hpp"
#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <ranges>
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

/// Every action has the slots, shard, communicator and waits that its kind needs. Other rules imply
/// what is not asked here: a peer that there is not sends no message that matches; a rank that a
/// communicator names twice waits for itself (no_deadlock); a slice or an owned shard that there is
/// not is never updated, and parts that no owned slice holds are in no weights (check_contents).
class FormCheck : Check {
public:
  explicit FormCheck(const Program& program) : Check(program) {}

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
    const int ranks = static_cast<int>(program_.ranks.size());
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
        program_.owned_slices,
        program_.embeddings_slices});
    if (least < 1 || (program_.embeddings_split && program_.embeddings_slices != 2))
      fail(exact_gradients,
          place_,
          "the numbers of shards, micro-batches, parts and slices do not fit");
    if (std::ranges::none_of(program_.ranks, &RankProgram::has_embeddings))
      fail(exact_gradients, place_, "no rank holds the embeddings");
    for (const Communicator& c : program_.communicators)
      check_communicator(c);
    check_context();
  }

  /// Ranks that share sequences are of one group, and it is known how many blocks have segments.
  void check_context() const {
    const int n = program_.context, ranks = program_.groups.ranks();
    if (n < 1 || ranks % n != 0)
      fail(fresh_reads, place_, "{} ranks do not divide into context groups of {}", ranks, n);
    for (int first = 0; first < ranks; first += n)
      if (!program_.groups.together(first, first + n - 1))
        fail(fresh_reads,
            place_,
            "ranks {} to {} share sequences across groups",
            first,
            first + n - 1);
    const std::size_t shards = shared() ? program_.shards : 0;
    if (program_.blocks.size() != shards ||
        std::ranges::any_of(program_.blocks, [](int blocks) { return blocks < 1; }))
      fail(fresh_reads,
          place_,
          "knows the blocks of {} shards, expected {}",
          program_.blocks.size(),
          shards);
  }

  void check_communicator(const Communicator& c) {
    const int ranks = program_.groups.ranks();
    if (c.ranks.empty() ||
        !std::ranges::all_of(c.ranks, [=](int rank) { return within(rank, ranks); }))
      fail(same_collectives,
          place_,
          "communicator {} must name ranks from 0 to {}",
          c.name,
          ranks - 1);
    std::vector<bool>& members = members_.emplace_back(ranks);
    for (const int rank : c.ranks)
      members[rank] = true;
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
    const int shards = static_cast<int>(here().owned_shards.size());
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
    const auto uses = uses_of(a);
    check_numbers(a);
    for (std::size_t i = 0; i < a.slots.size(); ++i) {
      if (uses[i].classes.empty() && a.slots[i].valid())
        fail(fresh_reads, place_, "has no use for {}", describe(a.slots[i]));
      if (!uses[i].classes.empty() && (a.slots[i].valid() || !uses[i].optional))
        check_slot(a, a.slots[i], uses[i].classes);
    }
    const bool whole = row_of(a.kind).work == Work::visit;
    if (shared() ? whole && a.kind != Kind::backward_weight : is_segment(a.kind))
      fail(fresh_reads,
          place_,
          "{}",
          shared() ? "attends to the tokens of its rank only"
                   : "is a segment of a visit, and visits are whole here");
    check_lane(a);
    check_partners(a);
    for (const auto& lane : table_of<Lane>)
      if (const std::size_t l = index_of(lane.value); a.waits[l] > issued_[l])
        fail(no_deadlock,
            place_,
            "waits for {} actions of lane {}, of which {} are issued before it",
            a.waits[l],
            lane.name,
            issued_[l]);
    ++issued_[index_of(a.lane)];
  }

  void check_numbers(const Action& a) const {
    const Data data = row_of(a.payload).data;
    const bool slice = data == Data::embeddings && is_compute(a.kind);
    const bool activations = data == Data::micro_batch;
    // The gradient at the input of the head is that of "shard" number `shards`.
    const int shards = slice ? program_.embeddings_slices : program_.shards + (activations ? 1 : 0);
    const bool of_keys = data == Data::keys;
    const bool of_shard = is_visit(a.kind) || data == Data::shard || activations || of_keys;
    if ((of_shard || slice) && !within(a.shard, shards))
      fail(fresh_reads,
          place_,
          "names {} {}, expected 0 to {}",
          slice ? "slice" : "shard",
          a.shard,
          shards - 1);
    const bool of_micro_batch = is_visit(a.kind) || is_end(a.kind) || activations || of_keys;
    if (of_micro_batch && !within(a.micro_batch, program_.micro_batches))
      fail(fresh_reads,
          place_,
          "names micro-batch {}, expected 0 to {}",
          a.micro_batch,
          program_.micro_batches - 1);
    const bool of_block = is_segment(a.kind) || of_keys;
    const int blocks = of_block && shared() ? program_.blocks[a.shard] : 0;
    if (of_block ? !within(a.block, blocks) : a.block >= 0)
      fail(fresh_reads, place_, "names block {} of {}", a.block, blocks);
    const bool of_heads = a.kind == Kind::forward_attend || a.kind == Kind::forward_extend;
    const int parts = of_heads ? program_.key_parts : parts_of(program_, data);
    if (!within(a.part, a.parts) || parts % a.parts != 0)
      fail(fresh_reads, place_, "names part {} of {} where there are {}", a.part, a.parts, parts);
  }

  /// "weights or kept weights", of the letters "wk".
  static std::string names_of_classes(std::string_view letters) {
    std::vector<std::string_view> names;
    for (const char letter : letters)
      for (const SlotClassRow& row : table_of<SlotClass>)
        if (row.letter == letter)
          names.push_back(row.name);
    return fmt::format("{}", fmt::join(names, " or "));
  }

  void check_slot(const Action& a, Slot slot, std::string_view letters) const {
    if (!slot.valid() || letters.find(letter_of(slot.cls)) == std::string_view::npos)
      fail(fresh_reads,
          place_,
          "needs a slot of class {} where it has {}",
          names_of_classes(letters),
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
    if (!within(a.communicator, static_cast<int>(members_.size())) ||
        !members_[a.communicator][place_.rank])
      fail(same_collectives, place_, "the rank is not a member of the communicator");
    if (is_rooted(a.kind) &&
        std::ranges::count(program_.communicators[a.communicator].ranks, a.peer) == 0)
      fail(same_collectives, place_, "the root is not a member of the communicator");
  }

  Place place_;  // what is looked at
  std::array<int, lanes> issued_{};
  std::vector<std::vector<bool>> members_;  // of each communicator, by rank
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

  int most() && {
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
    const int count = static_cast<int>(actions_.size());
    if (actions_.empty() || actions_.back().kind != Kind::join)
      fail(all_waited, {rank_, count - 1}, "the rank's last action must be join");
    for (int i = 0; i < count; ++i) {
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
    for (int i = 0; i < std::ssize(actions_); ++i)
      for (const Access& access : accesses(actions_[i], rank_))
        peaks[index_of(access.slot.cls)].touch(i, actions_[i], access, ends[i]);
    for (const SlotClassRow& row : table_of<SlotClass>) {
      const int declared = here.slots[index_of(row.value)];
      const int most = std::move(peaks[index_of(row.value)]).most();
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
      for (const auto& lane : table_of<Lane>)
        if (const std::size_t l = index_of(lane.value); uses[l] > done[l])
          fail(rule,
              {rank_, i},
              "{} {}, which may still be {} by {}; expected a wait for {} actions of lane {}",
              does,
              describe(access.slot),
              use,
              text_of(program_, {rank_, order_.at(l, uses[l]).action}),
              uses[l],
              lane.name);
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
    if (i + 1 < static_cast<int>(actions_.size()))
      fail(all_waited, {rank_, i + 1}, "comes after join, which must be the rank's last action");
    for (const auto& lane : table_of<Lane>)
      if (const std::size_t l = index_of(lane.value); done[l] < order_.added()[l])
        fail(all_waited,
            {rank_, order_.at(l, done[l] + 1).action},
            "join does not wait for it; expected a wait for {} actions of lane {}",
            order_.added()[l],
            lane.name);
  }

  int rank_;
  const std::vector<Action>& actions_;
  RankOrder order_;
};

void check(const Program& program) {
  FormCheck(program).run();
  const int ranks = static_cast<int>(program.ranks.size());
  for (int r = 0; r < ranks; ++r)
    RankCheck(program, r).check_order();
  check_contents(program);
  for (int r = 0; r < ranks; ++r)
    RankCheck(program, r).check_slots();
}
}  // namespace

std::optional<Violation> validate(const Program& program) {
  try {
    check(program);
  } catch (const Refusal& refusal) {
    return refusal.violation;
  }
  return std::nullopt;
}

namespace {
/// Numbers [begin, end).
struct Window {
  int begin = 0, end = 0;

  bool contains(int number) const { return number >= begin && number < end; }

  /// At most `most` of them, around one.
  void narrow(int centre, int most) {
    begin = std::clamp(centre - most / 2, begin, std::max(begin, end - most));
    end = std::min(end, begin + most);
  }
};

/// Every visit, and the marked action, by rank and tick, under the numbers of the ticks.
std::vector<std::vector<std::string>> cells_of(
    const Program& program, const Violation& mark, Window ranks, Window ticks) {
  const auto marked = [&](int rank, int action) {
    return mark.rank == rank && mark.action == action;
  };
  std::vector<std::vector<std::string>> rows = {{"tick"}};
  for (int t = ticks.begin; t < ticks.end; ++t)
    rows[0].push_back(std::to_string(t));
  for (int r = ranks.begin; r < ranks.end; ++r) {
    std::vector<std::string>& row = rows.emplace_back(rows[0].size());
    row[0] = fmt::format("r{}{}", r, marked(r, -1) ? " <--" : "");
    for (int i = 0; const Action& a : program.ranks[r].actions) {
      const bool here = marked(r, i++);
      if (!ticks.contains(a.tick) || (!is_visit(a.kind) && !here))
        continue;
      std::string& cell = row[a.tick - ticks.begin + 1];
      cell += fmt::format("{}{}", cell.empty() ? "" : " ", name_of(a.kind));
      if (a.shard >= 0)
        cell += fmt::format(" s{}", a.shard);
      if (a.micro_batch >= 0)
        cell += fmt::format(" m{}", a.micro_batch);
      if (here)
        cell += " <--";
    }
  }
  return rows;
}
}  // namespace

std::string grid(const Program& program, const Violation& mark) {
  // A failure in a large program shows its surroundings only.
  constexpr int most_ranks = 12, most_ticks = 8;
  Window ranks{0, static_cast<int>(program.ranks.size())}, ticks;
  for (const RankProgram& rank : program.ranks)
    for (const Action& a : rank.actions)
      ticks = {std::min(ticks.begin, a.tick), std::max(ticks.end, a.tick + 1)};
  const bool at_action = mark.rank >= 0 && mark.action >= 0;
  ranks.narrow(std::max(mark.rank, 0), most_ranks);
  ticks.narrow(at_action ? program.ranks[mark.rank].actions[mark.action].tick : 0, most_ticks);
  const std::vector<std::vector<std::string>> rows = cells_of(program, mark, ranks, ticks);
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{:<8}", row[0]);
    for (std::size_t c = 1; c < row.size(); ++c) {
      const auto size_of = [&](const auto& other) { return other[c].size(); };
      const std::size_t width = std::ranges::max(rows | std::views::transform(size_of));
      text += fmt::format("| {:<{}} ", row[c], width);
    }
    text += "\n";
  }
  return text;
}

void require_valid(const Program& program) {
  const std::optional<Violation> violation = validate(program);
  if (!violation)
    return;
  throw LogicError(fmt::format("schedule {} breaks the rule \"{}\": {}\n{}",
      program.schedule,
      name_of(violation->rule),
      violation->message,
      grid(program, *violation)));
}

Program build_valid(const Request& request) {
  Program program = build(request);
  require_valid(program);
  return program;
}
}  // namespace minitaw::schedule
