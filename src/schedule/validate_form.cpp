#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "schedule/validate_detail.hpp"

namespace minitaw::schedule::detail {
namespace {

/// Slot classes that an action takes, by position: letters of the classes allowed there; '?' marks a slot
/// that may be missing.
struct Form {
  std::string_view slots;
  bool shard = false;
  bool micro_batch = false;
};

Form form_of(Payload payload) {
  switch (payload) {
  case Payload::weights:
    return {"hw", true, false};
  case Payload::gradient:
    return {"tgc", true, false};
  case Payload::activation:
  case Payload::activation_grad:
    return {"x", true, true};
  case Payload::ends:
    return {"e", false, false};
  case Payload::ends_gradient:
    return {"f", false, false};
  case Payload::none:
    break;
  }
  return {"", false, false};
}

Form form_of(const Action& a) {
  const bool ends = a.payload == Payload::ends || a.payload == Payload::ends_gradient;
  switch (a.kind) {
  case Kind::embed:
    return {"x e", false, true};
  case Kind::forward:
    return {"hw a x", true, true};
  case Kind::loss:
    return {"x e f", false, true};
  case Kind::backward:
    return {"hw a x tg", true, true};
  case Kind::backward_input:
    return {"hw a x b", true, true};
  case Kind::backward_weight:
    return {"a b tg", true, true};
  case Kind::embed_backward:
    return {"x f", false, true};
  case Kind::update:
    return ends ? Form{"e f", true, false} : Form{"h t", true, false};
  case Kind::zero:
    return {"g", true, false};
  case Kind::accumulate:
    return {"gc t", true, false};
  case Kind::load:
    return {"h w", true, false};
  case Kind::join:
    return {"", false, false};
  default:
    return form_of(a.payload);
  }
}

std::string_view next_word(std::string_view& words) {
  const std::size_t end = std::min(words.find(' '), words.size());
  const std::string_view word = words.substr(0, end);
  words.remove_prefix(std::min(end + 1, words.size()));
  return word;
}

class FormCheck {
public:
  explicit FormCheck(const Program& program) : program_(program) {}

  void run() {
    check_program();
    for (rank_ = 0; rank_ < static_cast<int>(program_.ranks.size()); ++rank_) {
      check_homes();
      issued_ = {};
      for (action_ = 0; action_ < static_cast<int>(here().actions.size()); ++action_) check_action();
    }
  }

private:
  [[nodiscard]] const RankProgram& here() const { return program_.ranks[rank_]; }
  [[noreturn]] void fail(Rule rule, const std::string& what) const {
    refuse(rule, program_, rank_, action_, what);
  }

  void check_program() {
    const int ranks = static_cast<int>(program_.ranks.size());
    if (ranks != program_.groups.ranks())
      refuse(Rule::slots_accounted, program_, -1, -1,
             fmt::format("{} ranks have actions, but the groups {} have {}", ranks, program_.groups.text(),
                         program_.groups.ranks()));
    if (program_.shards < 1 || program_.micro_batches < 1 || program_.ends_slices < 1)
      refuse(Rule::exact_gradients, program_, -1, -1,
             "a step needs at least one shard, micro-batch and ends slice");
    if (program_.shard_parts < 1 || program_.home_slices < 1 ||
        program_.shard_parts % program_.home_slices != 0)
      refuse(Rule::exact_gradients, program_, -1, -1,
             "the slices that ranks keep must be made of whole parts");
    if (program_.ends_split && program_.ends_slices != 2)
      refuse(Rule::exact_gradients, program_, -1, -1, "split ends have two slices");
    for (const Communicator& c : program_.communicators) check_communicator(c);
  }

  void check_communicator(const Communicator& c) {
    std::vector<int> sorted = c.ranks;
    std::ranges::sort(sorted);
    const bool distinct = std::ranges::adjacent_find(sorted) == sorted.end();
    if (sorted.empty() || !distinct || sorted.front() < 0 || sorted.back() >= program_.groups.ranks())
      refuse(Rule::same_collectives, program_, -1, -1,
             fmt::format("communicator {} must name each of its ranks once, from 0 to {}", c.name,
                         program_.groups.ranks() - 1));
    std::vector<bool>& members = members_.emplace_back(program_.groups.ranks());
    for (const int rank : c.ranks) members[rank] = true;
  }

  void check_homes() {
    action_ = -1;
    if (here().slice < 0 || here().slice >= program_.home_slices || here().ends_slice >= program_.ends_slices)
      fail(Rule::exact_gradients, "keeps a slice that there is not");
    const auto count = [&](SlotClass cls) { return here().slots[static_cast<std::size_t>(cls)]; };
    const int homes = static_cast<int>(here().homes.size());
    if (count(SlotClass::home) != homes || count(SlotClass::total) != homes)
      fail(Rule::slots_accounted, fmt::format("{} home and {} total slots for {} owned shards",
                                              count(SlotClass::home), count(SlotClass::total), homes));
    for (const int shard : here().homes)
      if (shard < 0 || shard >= program_.shards)
        fail(Rule::fresh_reads, fmt::format("owns shard {}, but there are {}", shard, program_.shards));
  }

  void check_action() {
    const Action& a = here().actions[action_];
    const Form form = form_of(a);
    check_numbers(a, form);
    check_slots(a, form.slots);
    check_lane(a);
    check_partners(a);
    for (int l = 0; l < lanes; ++l)
      if (a.waits[l] < 0 || a.waits[l] > issued_[l])
        fail(Rule::no_deadlock,
             fmt::format("waits for {} actions of lane {}, of which {} are issued before it", a.waits[l],
                         name_of(static_cast<Lane>(l)), issued_[l]));
    ++issued_[static_cast<std::size_t>(a.lane)];
  }

  void check_numbers(const Action& a, const Form& form) const {
    const bool slice = a.kind == Kind::update && a.payload == Payload::ends;
    // The gradient at the input of the head is that of "shard" number `shards`.
    const bool flow = a.payload == Payload::activation || a.payload == Payload::activation_grad;
    const int shards = slice ? program_.ends_slices : program_.shards + (flow ? 1 : 0);
    if (form.shard && (a.shard < 0 || a.shard >= shards))
      fail(Rule::fresh_reads,
           fmt::format("names {} {}, expected 0 to {}", slice ? "slice" : "shard", a.shard, shards - 1));
    if (form.micro_batch && (a.micro_batch < 0 || a.micro_batch >= program_.micro_batches))
      fail(Rule::fresh_reads,
           fmt::format("names micro-batch {}, expected 0 to {}", a.micro_batch, program_.micro_batches - 1));
    const bool ends = a.payload == Payload::ends || a.payload == Payload::ends_gradient;
    const int parts = flow ? 1 : ends ? program_.ends_slices : program_.shard_parts;
    if (a.parts < 1 || a.part < 0 || a.part >= a.parts || parts % a.parts != 0)
      fail(Rule::fresh_reads, fmt::format("names part {} of {} where there are {}", a.part, a.parts, parts));
  }

  void check_slots(const Action& a, std::string_view form) const {
    std::size_t i = 0;
    while (!form.empty()) {
      const std::string_view word = next_word(form);
      const bool optional = word.ends_with('?');
      const bool given = i < a.slots.size() && a.slots[i].valid();
      if (given || !optional) check_slot(a, a.slots[i], word.substr(0, word.size() - (optional ? 1 : 0)));
      ++i;
    }
    for (; i < a.slots.size(); ++i)
      if (a.slots[i].valid())
        fail(Rule::fresh_reads, fmt::format("has no use for slot {}", name_of(a.slots[i])));
  }

  void check_slot(const Action& a, Slot slot, std::string_view letters) const {
    if (!slot.valid() || letters.find(letter_of(slot.cls)) == std::string_view::npos)
      fail(Rule::fresh_reads, fmt::format("needs a slot of class {} where it has {}",
                                          fmt::join(letters, " or "), slot.valid() ? name_of(slot) : "none"));
    const int declared = here().slots[static_cast<std::size_t>(slot.cls)];
    if (slot.index >= declared)
      fail(Rule::slots_accounted, fmt::format("uses {}, but the rank declares {} slots {}", name_of(slot),
                                              declared, letter_of(slot.cls)));
    const bool owned = slot.cls == SlotClass::home || slot.cls == SlotClass::total;
    if (owned && here().homes[slot.index] != a.shard)
      fail(slot.cls == SlotClass::home ? Rule::fresh_reads : Rule::exact_gradients,
           fmt::format("{} belongs to shard {}", name_of(slot), here().homes[slot.index]));
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
        fail(Rule::matched_messages, fmt::format("rank {} cannot be its peer", a.peer));
      return;
    }
    const int count = static_cast<int>(program_.communicators.size());
    if (a.communicator < 0 || a.communicator >= count)
      fail(Rule::same_collectives, fmt::format("names communicator {} of {}", a.communicator, count));
    const std::vector<bool>& members = members_[a.communicator];
    if (!members[rank_]) fail(Rule::same_collectives, "the rank is not a member of the communicator");
    const bool rooted = a.kind == Kind::broadcast || a.kind == Kind::reduce;
    if (rooted && (a.peer < 0 || a.peer >= program_.groups.ranks() || !members[a.peer]))
      fail(Rule::same_collectives, "the root is not a member of the communicator");
  }

  const Program& program_;
  int rank_ = 0;
  int action_ = -1;
  std::array<int, lanes> issued_{};
  std::vector<std::vector<bool>> members_;  // of each communicator, by rank
};

}  // namespace

void check_form(const Program& program) { FormCheck(program).run(); }

}  // namespace minitaw::schedule::detail
