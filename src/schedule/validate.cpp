// SPDX-License-Identifier: BSD-3-Clause
// The checks behind validate(): each returns, or throws Refusal with what it found first.
#include "schedule/validate.hpp"
#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include "base/error.hpp"
#include "schedule/execute.hpp"

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
class FormCheck {
public:
  explicit FormCheck(const Program& program) : program_(program) {}

  void run() {
    check_program();
    for (rank_ = 0; rank_ < static_cast<int>(program_.ranks.size()); ++rank_) {
      check_owned();
      issued_ = {};
      for (action_ = 0; action_ < static_cast<int>(here().actions.size()); ++action_)
        check_action();
    }
  }

private:
  [[nodiscard]] const RankProgram& here() const { return program_.ranks[rank_]; }

  template <class... Args>
  [[noreturn]] void fail(Rule rule, fmt::format_string<Args...> what, Args&&... args) const {
    refuse(rule, program_, rank_, action_, what, std::forward<Args>(args)...);
  }

  void check_program() {
    const int ranks = static_cast<int>(program_.ranks.size());
    if (ranks != program_.groups.ranks())
      fail(slots_accounted,
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
      fail(exact_gradients, "the numbers of shards, micro-batches, parts and slices do not fit");
    const auto holds = [](const RankProgram& r) {
      return r.slots[index_of(SlotClass::embeddings)] > 0;
    };
    if (std::ranges::none_of(program_.ranks, holds))
      fail(exact_gradients, "no rank holds the embeddings");
    for (const Communicator& c : program_.communicators)
      check_communicator(c);
  }

  void check_communicator(const Communicator& c) {
    const int ranks = program_.groups.ranks();
    if (c.ranks.empty() ||
        !std::ranges::all_of(c.ranks, [=](int rank) { return within(rank, ranks); }))
      fail(same_collectives, "communicator {} must name ranks from 0 to {}", c.name, ranks - 1);
    std::vector<bool>& members = members_.emplace_back(ranks);
    for (const int rank : c.ranks)
      members[rank] = true;
  }

  void check_owned() {
    action_ = -1;
    for (const Part part : {here().kept, here().partial})
      if (!within(part.index, part.count) || program_.shard_parts % part.count != 0)
        fail(fresh_reads,
            "keeps part {} of {} of a shard that is cut into {}",
            part.index,
            part.count,
            program_.shard_parts);
    const auto count = [&](SlotClass cls) { return here().slots[index_of(cls)]; };
    const int owned_shards = static_cast<int>(here().owned_shards.size());
    if (count(SlotClass::owned) != owned_shards || count(SlotClass::accumulator) != owned_shards ||
        count(SlotClass::embeddings) != count(SlotClass::embeddings_accumulator))
      fail(slots_accounted,
          "{} owned and {} accumulator slots for {} owned shards, {} and {} of embeddings",
          count(SlotClass::owned),
          count(SlotClass::accumulator),
          owned_shards,
          count(SlotClass::embeddings),
          count(SlotClass::embeddings_accumulator));
  }

  void check_action() {
    const Action& a = here().actions[action_];
    const Form form = form_of(a);
    check_numbers(a, form);
    check_slots(a, form);
    check_lane(a);
    check_partners(a);
    for (int l = 0; l < lanes; ++l)
      if (a.waits[l] > issued_[l])
        fail(no_deadlock,
            "waits for {} actions of lane {}, of which {} are issued before it",
            a.waits[l],
            name_of(static_cast<Lane>(l)),
            issued_[l]);
    ++issued_[index_of(a.lane)];
  }

  void check_numbers(const Action& a, const Form& form) const {
    const bool slice =
        (a.kind == Kind::update || a.kind == Kind::square) && of_embeddings(a.payload);
    // The gradient at the input of the head is that of "shard" number `shards`.
    const bool hidden_state =
        a.payload == Payload::activation || a.payload == Payload::activation_grad;
    const int shards =
        slice ? program_.embeddings_slices : program_.shards + (hidden_state ? 1 : 0);
    if (form.shard && !within(a.shard, shards))
      fail(fresh_reads,
          "names {} {}, expected 0 to {}",
          slice ? "slice" : "shard",
          a.shard,
          shards - 1);
    if (form.micro_batch && !within(a.micro_batch, program_.micro_batches))
      fail(fresh_reads,
          "names micro-batch {}, expected 0 to {}",
          a.micro_batch,
          program_.micro_batches - 1);
    const int parts = hidden_state || a.payload == Payload::squares ? 1
                      : of_embeddings(a.payload)                    ? program_.embeddings_slices
                                                                    : program_.shard_parts;
    if (!within(a.part, a.parts) || parts % a.parts != 0)
      fail(fresh_reads, "names part {} of {} where there are {}", a.part, a.parts, parts);
  }

  void check_slots(const Action& a, const Form& form) const {
    for (std::size_t i = 0; i < a.slots.size(); ++i) {
      if (!form.uses[i].classes.empty())
        check_slot(a, a.slots[i], form.uses[i].classes);
      else if (a.slots[i].valid())
        fail(fresh_reads, "has no use for slot {}", name_of(a.slots[i]));
    }
  }

  void check_slot(const Action& a, Slot slot, std::string_view letters) const {
    if (!slot.valid() || letters.find(letter_of(slot.cls)) == std::string_view::npos)
      fail(fresh_reads,
          "needs a slot of class {} where it has {}",
          fmt::join(letters, " or "),
          slot.valid() ? name_of(slot) : "none");
    const int declared = here().slots[index_of(slot.cls)];
    if (slot.index >= declared)
      fail(slots_accounted,
          "uses {}, but the rank declares {} slots {}",
          name_of(slot),
          declared,
          letter_of(slot.cls));
    const bool owned = slot.cls == SlotClass::owned || slot.cls == SlotClass::accumulator;
    if (owned && here().owned_shards[slot.index] != a.shard)
      fail(slot.cls == SlotClass::owned ? fresh_reads : exact_gradients,
          "{} belongs to shard {}",
          name_of(slot),
          here().owned_shards[slot.index]);
  }

  void check_lane(const Action& a) const {
    const bool computes = is_compute(a.kind) || a.kind == Kind::join;
    if (a.lane == Lane::compute ? is_communication(a.kind) : computes)
      fail(all_waited, "does not belong in lane {}", name_of(a.lane));
  }

  void check_partners(const Action& a) const {
    if (!is_communication(a.kind))
      return;
    if (a.payload == Payload::none)
      fail(matched_messages, "moves nothing");
    if (is_point_to_point(a.kind)) {
      if (a.peer == rank_)
        fail(matched_messages, "its peer is its own rank");
      return;
    }
    if (!within(a.communicator, static_cast<int>(members_.size())) ||
        !members_[a.communicator][rank_])
      fail(same_collectives, "the rank is not a member of the communicator");
    if (is_rooted(a.kind) &&
        std::ranges::count(program_.communicators[a.communicator].ranks, a.peer) == 0)
      fail(same_collectives, "the root is not a member of the communicator");
  }

  const Program& program_;
  int rank_ = -1, action_ = -1;  // what is looked at
  std::array<int, lanes> issued_{};
  std::vector<std::vector<bool>> members_;  // of each communicator, by rank
};

/// Checks that the waits of a rank order the readers and writers of each slot, and that join comes
/// last.
class OrderCheck {
public:
  OrderCheck(const Program& program, int rank)
      : program_(program),
        rank_(rank),
        actions_(program.ranks[rank].actions) {
    for (int c = 0; c < slot_classes; ++c)
      history_[c].resize(program.ranks[rank].slots[c]);
  }

  void run() {
    if (actions_.empty() || actions_.back().kind != Kind::join)
      fail(
          all_waited, static_cast<int>(actions_.size()) - 1, "the rank's last action must be join");
    for (int i = 0; i < static_cast<int>(actions_.size()); ++i) {
      const Action& a = actions_[i];
      std::vector<Finished>& lane = finished_[index_of(a.lane)];
      LaneCounts known = lane.empty() ? LaneCounts{} : lane.back().known;
      for (int l = 0; l < lanes; ++l)
        if (a.waits[l] > 0)
          known = max_of(known, finished_[l][a.waits[l] - 1].known);
      for (const Access& access : accesses(a, rank_))
        check_access(i, known, access);
      if (a.kind == Kind::join)
        check_join(i, known);
      const int place = ++known[index_of(a.lane)];
      lane.push_back({i, known});
      for (const Access& access : accesses(a, rank_))
        history(access.slot).touch(access, a.lane, place);
    }
  }

private:
  struct Finished {
    int action;
    LaneCounts known;  ///< what is certain once it is finished
  };

  template <class... Args>
  [[noreturn]] void fail(Rule rule, int i, fmt::format_string<Args...> what, Args&&... args) const {
    refuse(rule, program_, rank_, i, what, std::forward<Args>(args)...);
  }

  SlotHistory& history(Slot slot) { return history_[index_of(slot.cls)][slot.index]; }

  void check_access(int i, const LaneCounts& known, const Access& access) {
    const auto follow =
        [&](Rule rule, const LaneCounts& others, const char* does, const char* done) {
          for (int l = 0; l < lanes; ++l)
            if (others[l] > known[l])
              fail(rule,
                  i,
                  "{} {}, which may still be {} by {}; expected a wait for {} actions of lane {}",
                  does,
                  name_of(access.slot),
                  done,
                  place(program_, rank_, finished_[l][others[l] - 1].action),
                  others[l],
                  name_of(static_cast<Lane>(l)));
        };
    const SlotHistory& h = history(access.slot);
    if (access.read)
      follow(fresh_reads, h.written, "reads", "written");
    if (!access.write)
      return;
    follow(no_overwrite, h.written, "overwrites", "written");
    follow(no_overwrite, h.read, "overwrites", "read");
  }

  void check_join(int i, const LaneCounts& known) const {
    if (i + 1 < static_cast<int>(actions_.size()))
      fail(all_waited, i + 1, "comes after join, which must be the rank's last action");
    for (int l = 0; l < lanes; ++l)
      if (const auto all = finished_[l].size(); static_cast<std::size_t>(known[l]) < all)
        fail(all_waited,
            finished_[l][known[l]].action,
            "join does not wait for it; expected a wait for {} actions of lane {}",
            all,
            name_of(static_cast<Lane>(l)));
  }

  const Program& program_;
  int rank_;
  const std::vector<Action>& actions_;
  std::array<std::vector<Finished>, lanes> finished_;
  std::array<std::vector<SlotHistory>, slot_classes> history_;
};

/// A content lives from the write that begins it to its last access before the next one begins, or
/// to where that access lets go of its slot (see releases()). A part joins what is there of the
/// same shard.
struct Life {
  int begin = -1, last = -1, shard = -1;
};

/// The slots of a rank for what passes through are as many as contents live at once.
void check_slots(const Program& program, int rank) {
  const RankProgram& here = program.ranks[rank];
  const std::vector<int> ends = releases(here);
  std::array<std::vector<Life>, slot_classes> current;
  std::array<std::vector<int>, slot_classes>
      change;  // of the number of contents alive, at each action
  for (std::size_t c = 0; c < slot_classes; ++c) {
    current[c].resize(here.slots[c]);
    if (here.slots[c] > 0)
      change[c].resize(here.actions.size() + 1);
  }
  const auto close = [&](std::size_t c, const Life& life) {
    if (life.begin < 0)
      return;
    ++change[c][life.begin];
    --change[c][life.last + 1];
  };
  for (int i = 0; i < static_cast<int>(here.actions.size()); ++i)
    for (const Access& access : accesses(here.actions[i], rank)) {
      const Action& a = here.actions[i];
      const std::size_t c = index_of(access.slot.cls);
      Life& life = current[c][access.slot.index];
      const bool joins = a.parts > 1 && life.shard == a.shard;
      if (life.begin < 0 || (access.write && !access.read && !joins)) {
        close(c, life);
        life = {i, i, a.shard};
      }
      life.last = std::max(life.last, ends[i]);
    }
  for (std::size_t c = 0; c < slot_classes; ++c) {
    for (const Life& life : current[c])
      close(c, life);
    int alive = 0, most = 0;
    for (const int more : change[c])
      most = std::max(most, alive += more);
    if (const auto cls = static_cast<SlotClass>(c); !is_permanent(cls) && most < here.slots[c])
      refuse(slots_accounted,
          program,
          rank,
          -1,
          "declares {} slots {}, but at most {} of their contents live at once",
          here.slots[c],
          letter_of(cls),
          most);
  }
}

void check(const Program& program) {
  FormCheck(program).run();
  const int ranks = static_cast<int>(program.ranks.size());
  for (int r = 0; r < ranks; ++r)
    OrderCheck(program, r).run();
  check_contents(program);
  for (int r = 0; r < ranks; ++r)
    check_slots(program, r);
}
}  // namespace

std::string name_of(Rule rule) {
  static constexpr std::array<const char*, 8> names = {"fresh reads",
      "no overwrite",
      "matched messages",
      "same collectives",
      "exact gradients",
      "all waited",
      "no deadlock",
      "slots accounted"};
  return names[index_of(rule)];
}

std::optional<Violation> validate(const Program& program) {
  try {
    check(program);
  } catch (const Refusal& refusal) {
    return refusal.violation;
  }
  return std::nullopt;
}

std::string grid(const Program& program, const std::optional<Violation>& mark) {
  // A failure in a large program shows its surroundings only.
  constexpr int most_ranks = 12, most_ticks = 8;
  const auto marked = [&](int rank, int action) {
    return mark && mark->rank == rank && mark->action == action;
  };
  int first_rank = 0, last_rank = static_cast<int>(program.ranks.size()), first_tick = 0,
      last_tick = 0;
  for (const RankProgram& rank : program.ranks)
    for (const Action& a : rank.actions) {
      first_tick = std::min(first_tick, a.tick);
      last_tick = std::max(last_tick, a.tick + 1);
    }
  const auto narrow = [](int& first, int& last, int centre, int most) {
    first = std::clamp(centre - most / 2, first, std::max(first, last - most));
    last = std::min(last, first + most);
  };
  if (mark) {
    const bool at_action = mark->rank >= 0 && mark->action >= 0;
    narrow(first_rank, last_rank, std::max(mark->rank, 0), most_ranks);
    narrow(first_tick,
        last_tick,
        at_action ? program.ranks[mark->rank].actions[mark->action].tick : 0,
        most_ticks);
  }
  std::vector<std::vector<std::string>> rows = {{"tick"}};
  for (int t = first_tick; t < last_tick; ++t)
    rows[0].push_back(std::to_string(t));
  for (int r = first_rank; r < last_rank; ++r) {
    std::vector<std::string>& row = rows.emplace_back(rows[0].size());
    row[0] = fmt::format("r{}{}", r, marked(r, -1) ? " <--" : "");
    for (int i = 0; const Action& a : program.ranks[r].actions) {
      const bool here = marked(r, i++);
      if (a.tick < first_tick || a.tick >= last_tick || (!is_visit(a.kind) && !here))
        continue;
      std::string& cell = row[a.tick - first_tick + 1];
      cell += fmt::format("{}{}", cell.empty() ? "" : " ", name_of(a.kind));
      if (a.shard >= 0)
        cell += fmt::format(" s{}", a.shard);
      if (a.micro_batch >= 0)
        cell += fmt::format(" m{}", a.micro_batch);
      if (here)
        cell += " <--";
    }
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{:<8}", row[0]);
    for (std::size_t c = 1; c < row.size(); ++c)
      text += fmt::format("| {:<{}} ", row[c], widths[c]);
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
      grid(program, violation)));
}

Program build_valid(const Request& request) {
  Program program = build(request);
  require_valid(program);
  return program;
}
}  // namespace minitaw::schedule
