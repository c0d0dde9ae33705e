#include <fmt/format.h>

#include <algorithm>

#include "schedule/validate_detail.hpp"

namespace minitaw::schedule::detail {
namespace {

bool passes_through(SlotClass cls) {
  return cls == SlotClass::weights || cls == SlotClass::gradient || cls == SlotClass::contribution ||
         cls == SlotClass::kept || cls == SlotClass::stash || cls == SlotClass::flow;
}

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

void check_class(const Program& program, int rank, SlotClass cls, Lives& lives) {
  const int declared = program.ranks[rank].slots[static_cast<std::size_t>(cls)];
  const char letter = letter_of(cls);
  if (const int unused = lives.unused(); unused >= 0)
    refuse(Rule::slots_accounted, program, rank, -1,
           fmt::format("declares {} slots {}, but never uses {}{}", declared, letter, letter, unused));
  if (const int peak = lives.peak(); passes_through(cls) && peak != declared)
    refuse(Rule::slots_accounted, program, rank, -1,
           fmt::format("declares {} slots {}, but at most {} of their contents live at once", declared,
                       letter, peak));
}

}  // namespace

void check_slots(const Program& program, int rank) {
  const RankProgram& here = program.ranks[rank];
  const int actions = static_cast<int>(here.actions.size());
  std::vector<Lives> lives;
  for (const int slots : here.slots) lives.emplace_back(slots, slots > 0 ? actions : 0);
  const std::vector<int> ends = releases(here);
  for (int i = 0; i < actions; ++i)
    for (const Access& access : accesses(here.actions[i], rank))
      lives[static_cast<std::size_t>(access.slot.cls)].touch(access.slot.index, i, ends[i], here.actions[i],
                                                             access.write && !access.read);
  for (int c = 0; c < slot_classes; ++c) check_class(program, rank, static_cast<SlotClass>(c), lives[c]);
}

}  // namespace minitaw::schedule::detail
