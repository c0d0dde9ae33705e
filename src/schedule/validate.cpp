// The checks behind validate(): each returns, or throws Refusal with what it found first.
#include "schedule/validate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "schedule/execute.hpp"

namespace minitaw::schedule {
namespace {

using namespace detail;

// Form: every action has the slots, shard, peer, communicator and waits that its kind needs.

class FormCheck {
public:
  explicit FormCheck(const Program& program) : program_(program) {}

  void run() {
    check_program();
    for (rank_ = 0; rank_ < static_cast<int>(program_.ranks.size()); ++rank_) {
      check_owned();
      issued_ = {};
      for (action_ = 0; action_ < static_cast<int>(here().actions.size()); ++action_) check_action();
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
      fail(Rule::slots_accounted, "{} ranks have actions, but the groups {} have {}", ranks,
           program_.groups.text(), program_.groups.ranks());
    if (program_.shards < 1 || program_.micro_batches < 1 || program_.embeddings_slices < 1)
      fail(Rule::exact_gradients, "a step needs at least one shard, micro-batch and slice of the embeddings");
    if (program_.shard_parts < 1 || program_.owned_slices < 1 ||
        program_.shard_parts % program_.owned_slices != 0)
      fail(Rule::exact_gradients, "the slices that ranks keep must be made of whole parts");
    if (program_.embeddings_split && program_.embeddings_slices != 2)
      fail(Rule::exact_gradients, "split embeddings have two slices");
    for (const Communicator& c : program_.communicators) check_communicator(c);
  }

  void check_communicator(const Communicator& c) {
    std::vector<int> sorted = c.ranks;
    std::ranges::sort(sorted);
    const bool distinct = std::ranges::adjacent_find(sorted) == sorted.end();
    if (sorted.empty() || !distinct || sorted.front() < 0 || sorted.back() >= program_.groups.ranks())
      fail(Rule::same_collectives, "communicator {} must name each of its ranks once, from 0 to {}", c.name,
           program_.groups.ranks() - 1);
    std::vector<bool>& members = members_.emplace_back(program_.groups.ranks());
    for (const int rank : c.ranks) members[rank] = true;
  }

  void check_owned() {
    action_ = -1;
    if (here().slice < 0 || here().slice >= program_.owned_slices ||
        here().embeddings_slice >= program_.embeddings_slices)
      fail(Rule::exact_gradients, "keeps a slice that there is not");
    const auto count = [&](SlotClass cls) { return here().slots[index_of(cls)]; };
    const int owned_shards = static_cast<int>(here().owned_shards.size());
    if (count(SlotClass::owned) != owned_shards || count(SlotClass::accumulator) != owned_shards)
      fail(Rule::slots_accounted, "{} owned and {} total slots for {} owned shards", count(SlotClass::owned),
           count(SlotClass::accumulator), owned_shards);
    for (const int shard : here().owned_shards)
      if (shard < 0 || shard >= program_.shards)
        fail(Rule::fresh_reads, "owns shard {}, but there are {}", shard, program_.shards);
  }

  void check_action() {
    const Action& a = here().actions[action_];
    const Form form = form_of(a);
    check_numbers(a, form);
    check_slots(a, form);
    check_lane(a);
    check_partners(a);
    for (int l = 0; l < lanes; ++l)
      if (a.waits[l] < 0 || a.waits[l] > issued_[l])
        fail(Rule::no_deadlock, "waits for {} actions of lane {}, of which {} are issued before it",
             a.waits[l], name_of(static_cast<Lane>(l)), issued_[l]);
    ++issued_[index_of(a.lane)];
  }

  void check_numbers(const Action& a, const Form& form) const {
    const bool slice = a.kind == Kind::update && a.payload == Payload::embeddings;
    // The gradient at the input of the head is that of "shard" number `shards`.
    const bool hidden_state = a.payload == Payload::activation || a.payload == Payload::activation_grad;
    const int shards = slice ? program_.embeddings_slices : program_.shards + (hidden_state ? 1 : 0);
    if (form.shard && (a.shard < 0 || a.shard >= shards))
      fail(Rule::fresh_reads, "names {} {}, expected 0 to {}", slice ? "slice" : "shard", a.shard,
           shards - 1);
    if (form.micro_batch && (a.micro_batch < 0 || a.micro_batch >= program_.micro_batches))
      fail(Rule::fresh_reads, "names micro-batch {}, expected 0 to {}", a.micro_batch,
           program_.micro_batches - 1);
    const int parts = hidden_state               ? 1
                      : of_embeddings(a.payload) ? program_.embeddings_slices
                                                 : program_.shard_parts;
    if (a.parts < 1 || a.part < 0 || a.part >= a.parts || parts % a.parts != 0)
      fail(Rule::fresh_reads, "names part {} of {} where there are {}", a.part, a.parts, parts);
  }

  void check_slots(const Action& a, const Form& form) const {
    for (std::size_t i = 0; i < a.slots.size(); ++i) {
      if (!form.uses[i].classes.empty()) check_slot(a, a.slots[i], form.uses[i].classes);
      else if (a.slots[i].valid()) fail(Rule::fresh_reads, "has no use for slot {}", name_of(a.slots[i]));
    }
  }

  void check_slot(const Action& a, Slot slot, std::string_view letters) const {
    if (!slot.valid() || letters.find(letter_of(slot.cls)) == std::string_view::npos)
      fail(Rule::fresh_reads, "needs a slot of class {} where it has {}", fmt::join(letters, " or "),
           slot.valid() ? name_of(slot) : "none");
    const int declared = here().slots[index_of(slot.cls)];
    if (slot.index >= declared)
      fail(Rule::slots_accounted, "uses {}, but the rank declares {} slots {}", name_of(slot), declared,
           letter_of(slot.cls));
    const bool owned = slot.cls == SlotClass::owned || slot.cls == SlotClass::accumulator;
    if (owned && here().owned_shards[slot.index] != a.shard)
      fail(slot.cls == SlotClass::owned ? Rule::fresh_reads : Rule::exact_gradients, "{} belongs to shard {}",
           name_of(slot), here().owned_shards[slot.index]);
  }

  void check_lane(const Action& a) const {
    const bool computes = is_compute(a.kind) || a.kind == Kind::join;
    if (computes && a.lane != Lane::compute) fail(Rule::all_waited, "belongs in lane compute");
    if (is_communication(a.kind) && a.lane == Lane::compute)
      fail(Rule::all_waited, "belongs in a communication lane");
  }

  void check_partners(const Action& a) const {
    if (!is_communication(a.kind)) return;
    if (a.payload == Payload::none) fail(Rule::matched_messages, "moves nothing");
    if (is_point_to_point(a.kind)) {
      if (a.peer < 0 || a.peer >= program_.groups.ranks() || a.peer == rank_)
        fail(Rule::matched_messages, "rank {} cannot be its peer", a.peer);
      return;
    }
    const int count = static_cast<int>(program_.communicators.size());
    if (a.communicator < 0 || a.communicator >= count)
      fail(Rule::same_collectives, "names communicator {} of {}", a.communicator, count);
    const std::vector<bool>& members = members_[a.communicator];
    if (!members[rank_]) fail(Rule::same_collectives, "the rank is not a member of the communicator");
    if (is_rooted(a.kind) && (a.peer < 0 || a.peer >= program_.groups.ranks() || !members[a.peer]))
      fail(Rule::same_collectives, "the root is not a member of the communicator");
  }

  const Program& program_;
  int rank_ = -1, action_ = -1;  // what is looked at
  std::array<int, lanes> issued_{};
  std::vector<std::vector<bool>> members_;  // of each communicator, by rank
};

// Order: what is certain inside a rank.

/// clock[l]: how many actions of lane l of the rank are certainly finished. Lanes finish in order, so a
/// counter each says everything that is known inside a rank.
using Clock = std::array<std::int32_t, lanes>;

/// What is certain when each action of a rank starts, and where the action stands in its lane.
struct LocalOrder {
  std::vector<Clock> start;
  std::vector<std::int32_t> position;
};

void merge(Clock& into, const Clock& other) {
  for (int l = 0; l < lanes; ++l) into[l] = std::max(into[l], other[l]);
}

/// Waits refer to earlier actions only, as the form demands.
LocalOrder order_of(const RankProgram& rank) {
  LocalOrder order;
  std::array<std::vector<Clock>, lanes> finished;  // what is certain once the action at this position is
  for (const Action& a : rank.actions) {
    const auto lane = index_of(a.lane);
    Clock clock{};
    if (!finished[lane].empty()) clock = finished[lane].back();
    for (int l = 0; l < lanes; ++l)
      if (a.waits[l] > 0) merge(clock, finished[l][a.waits[l] - 1]);
    order.start.push_back(clock);
    order.position.push_back(static_cast<std::int32_t>(finished[lane].size()));
    clock[lane] = order.position.back() + 1;
    finished[lane].push_back(clock);
  }
  return order;
}

void check_join(const Program& program, int rank, const LocalOrder& order) {
  const auto& actions = program.ranks[rank].actions;
  const int last = static_cast<int>(actions.size()) - 1;
  for (int i = 0; i < last; ++i)
    if (actions[i].kind == Kind::join)
      refuse(Rule::all_waited, program, rank, i + 1,
             "comes after join, which must be the rank's last action");
  if (last < 0 || actions[last].kind != Kind::join)
    refuse(Rule::all_waited, program, rank, last, "the rank's last action must be join");
  std::array<int, lanes> counts{};
  for (const Action& a : actions) ++counts[index_of(a.lane)];
  for (int i = 0; i < last; ++i)
    if (const auto lane = index_of(actions[i].lane); order.position[i] >= order.start[last][lane])
      refuse(Rule::all_waited, program, rank, i,
             "join does not wait for it; expected a wait for {} actions of lane {}", counts[lane],
             name_of(actions[i].lane));
}

/// Who touched a slot last: the writer of its content and, per lane, the last reader of that content. Counted
/// from 1; 0: nobody.
struct Users {
  int writer = 0;
  std::array<int, lanes> readers{};
};

class HazardCheck {
public:
  HazardCheck(const Program& program, int rank, const LocalOrder& order)
      : program_(program), rank_(rank), actions_(program.ranks[rank].actions), order_(order) {
    for (int c = 0; c < slot_classes; ++c) users_[c].resize(program.ranks[rank].slots[c]);
  }

  void run() {
    for (int i = 0; i < static_cast<int>(actions_.size()); ++i)
      for (const Access& access : accesses(actions_[i], rank_)) touch(i, access);
  }

private:
  void touch(int i, const Access& access) {
    Users& users = users_[index_of(access.slot.cls)][access.slot.index];
    if (access.read && !ordered(users.writer, i))
      fail(Rule::fresh_reads, i, access.slot, "reads", "written", users.writer);
    if (!access.write) {
      users.readers[index_of(actions_[i].lane)] = i + 1;
      return;
    }
    if (!ordered(users.writer, i))
      fail(Rule::no_overwrite, i, access.slot, "overwrites", "written", users.writer);
    for (const int reader : users.readers)
      if (!ordered(reader, i)) fail(Rule::no_overwrite, i, access.slot, "overwrites", "read", reader);
    users = {.writer = i + 1};
  }

  /// Whether `user` is certainly finished when action i starts.
  [[nodiscard]] bool ordered(int user, int i) const {
    return user == 0 || order_.position[user - 1] < order_.start[i][index_of(actions_[user - 1].lane)];
  }

  [[noreturn]] void fail(Rule rule, int i, Slot slot, std::string_view does, std::string_view done,
                         int user) const {
    refuse(rule, program_, rank_, i,
           "{} {}, which may still be {} by {}; expected a wait for {} actions of lane {}", does,
           name_of(slot), done, place(program_, rank_, user - 1), order_.position[user - 1] + 1,
           name_of(actions_[user - 1].lane));
  }

  const Program& program_;
  int rank_;
  const std::vector<Action>& actions_;
  const LocalOrder& order_;
  std::array<std::vector<Users>, slot_classes> users_;
};

/// A content lives from the write that begins it to its last access before the next one begins, or to where
/// that access lets go of its slot (see releases()). A part joins what is there of
/// the same shard.
struct Life {
  int begin = -1, last = -1;
  Payload payload = Payload::none;
  int shard = -1;
};

/// Lives of all contents of one slot class, in issue order.
class Lives {
public:
  Lives(int slots, int actions) : current_(slots), change_(actions + 1) {}

  void touch(int slot, int number, int release, const Action& action, bool overwrites) {
    Life& life = current_[slot];
    const bool joins = action.parts > 1 && life.payload == action.payload && life.shard == action.shard;
    if (life.begin < 0 || (overwrites && !joins)) {
      close(life);
      life = {number, -1, action.payload, action.shard};
    }
    life.last = std::max(life.last, release);
  }

  /// Number of the first slot never touched, or -1.
  [[nodiscard]] int unused() const {
    const auto at = std::ranges::find(current_, -1, &Life::begin);
    return at == current_.end() ? -1 : static_cast<int>(at - current_.begin());
  }

  /// Contents alive at once.
  int peak() {
    for (Life& life : current_) close(life);
    int alive = 0, most = 0;
    for (const int change : change_) most = std::max(most, alive += change);
    return most;
  }

private:
  void close(Life& life) {
    if (life.begin < 0) return;
    ++change_[life.begin];
    --change_[life.last + 1];
    life = {};
  }

  std::vector<Life> current_;
  std::vector<int> change_;  // of the number of contents alive, at each action
};

void check_slots(const Program& program, int rank) {
  const RankProgram& here = program.ranks[rank];
  const int actions = static_cast<int>(here.actions.size());
  std::vector<Lives> lives;
  for (const int slots : here.slots) lives.emplace_back(slots, slots > 0 ? actions : 0);
  const std::vector<int> ends = releases(here);
  for (int i = 0; i < actions; ++i)
    for (const Access& access : accesses(here.actions[i], rank))
      lives[index_of(access.slot.cls)].touch(access.slot.index, i, ends[i], here.actions[i],
                                             access.write && !access.read);
  for (int c = 0; c < slot_classes; ++c) {
    const auto cls = static_cast<SlotClass>(c);
    const char letter = letter_of(cls);
    if (const int unused = lives[c].unused(); unused >= 0)
      refuse(Rule::slots_accounted, program, rank, -1, "declares {} slots {}, but never uses {}{}",
             here.slots[c], letter, letter, unused);
    if (const int peak = lives[c].peak(); !is_permanent(cls) && peak != here.slots[c])
      refuse(Rule::slots_accounted, program, rank, -1,
             "declares {} slots {}, but at most {} of their contents live at once", here.slots[c], letter,
             peak);
  }
}

void check(const Program& program) {
  FormCheck(program).run();
  const int ranks = static_cast<int>(program.ranks.size());
  for (int r = 0; r < ranks; ++r) {
    const LocalOrder order = order_of(program.ranks[r]);
    HazardCheck(program, r, order).run();
    check_join(program, r, order);
  }
  check_contents(program);
  for (int r = 0; r < ranks; ++r) check_slots(program, r);
}

}  // namespace

std::string name_of(Rule rule) {
  static constexpr std::array<const char*, 8> names = {
      "fresh reads",     "no overwrite", "matched messages", "same collectives",
      "exact gradients", "all waited",   "no deadlock",      "slots accounted"};
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

void require_valid(const Program& program) {
  const std::optional<Violation> violation = validate(program);
  if (!violation) return;
  throw LogicError(fmt::format("schedule {} breaks the rule \"{}\": {}\n{}", program.schedule,
                               name_of(violation->rule), violation->message, grid(program, violation)));
}

}  // namespace minitaw::schedule
