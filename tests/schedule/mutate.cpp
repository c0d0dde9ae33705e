#include "schedule/mutate.hpp"

#include <utility>
#include <vector>

namespace minitaw::schedule {
namespace {

std::size_t lane_of(const Action& a) { return static_cast<std::size_t>(a.lane); }

/// How many actions of the lane of action `i` come before it.
int position(const RankProgram& rank, int i) {
  int count = 0;
  for (int k = 0; k < i; ++k) count += rank.actions[k].lane == rank.actions[i].lane ? 1 : 0;
  return count;
}

int draw(std::mt19937& random, int count) {
  return static_cast<int>(random() % static_cast<unsigned>(count));
}

bool change(int& value, int range, std::mt19937& random) {
  if (value < 0 || range < 2) return false;
  value = (value + 1 + draw(random, range - 1)) % range;
  return true;
}

bool change_wait(Action& a, bool drop, std::mt19937& random) {
  int& wait = a.waits[draw(random, lanes)];
  if (wait == 0) return false;
  wait = drop ? 0 : wait - 1;
  return true;
}

bool change_slot(const RankProgram& rank, Action& a, std::mt19937& random) {
  Slot& slot = a.slots[draw(random, 4)];
  if (!slot.valid()) return false;
  int index = slot.index;
  if (!change(index, rank.slots[static_cast<std::size_t>(slot.cls)], random)) return false;
  slot.index = static_cast<std::int16_t>(index);
  return true;
}

/// Swaps with the next action of the same lane; each keeps its waits.
bool swap_in_lane(RankProgram& rank, int i) {
  for (int k = i + 1; k < static_cast<int>(rank.actions.size()); ++k)
    if (rank.actions[k].lane == rank.actions[i].lane) {
      std::swap(rank.actions[i], rank.actions[k]);
      return true;
    }
  return false;
}

bool change_part(Action& a, std::mt19937& random) {
  int part = a.part;
  if (!change(part, a.parts, random)) return false;
  a.part = static_cast<std::int16_t>(part);
  return true;
}

/// What the rank keeps of its shards, or of the ends.
bool change_slice(const Program& program, RankProgram& rank, std::mt19937& random) {
  return program.ends_split ? change(rank.ends_slice, program.ends_slices, random)
                            : change(rank.slice, program.home_slices, random);
}

bool change_accumulates(Action& a) {
  const bool contributes = a.kind == Kind::backward || a.kind == Kind::backward_weight ||
                           a.kind == Kind::loss || a.kind == Kind::embed_backward ||
                           a.kind == Kind::accumulate;
  if (contributes) a.accumulates = !a.accumulates;
  return contributes;
}

}  // namespace

void remove_action(RankProgram& rank, int i) {
  const std::size_t lane = lane_of(rank.actions[i]);
  const int at = position(rank, i);
  rank.actions.erase(rank.actions.begin() + i);
  for (Action& a : rank.actions)
    if (a.waits[lane] > at) --a.waits[lane];
}

void insert_action(RankProgram& rank, int i, const Action& action) {
  const std::size_t lane = lane_of(action);
  rank.actions.insert(rank.actions.begin() + i, action);
  const int at = position(rank, i);
  for (Action& a : rank.actions)
    if (a.waits[lane] > at) ++a.waits[lane];
}

std::string mutate(Program& program, std::mt19937& random) {
  RankProgram& rank = program.ranks[draw(random, static_cast<int>(program.ranks.size()))];
  const int i = draw(random, static_cast<int>(rank.actions.size()));
  Action& a = rank.actions[i];
  switch (draw(random, 12)) {
  case 0:
    return change_wait(a, true, random) ? "wait dropped" : "";
  case 1:
    return change_wait(a, false, random) ? "wait shortened" : "";
  case 2:
    return swap_in_lane(rank, i) ? "swapped" : "";
  case 3:
    return change(a.shard, program.shards, random) ? "shard" : "";
  case 4:
    return change(a.micro_batch, program.micro_batches, random) ? "micro-batch" : "";
  case 5:
    return change(a.peer, program.groups.ranks(), random) ? "peer" : "";
  case 6:
    return change_slot(rank, a, random) ? "slot" : "";
  case 7:
    return change_accumulates(a) ? "accumulates" : "";
  case 8:
    return change_part(a, random) ? "part" : "";
  case 9:
    return change_slice(program, rank, random) ? "slice" : "";
  case 10:
    remove_action(rank, i);
    return "removed";
  default:
    insert_action(rank, i, Action(a));
    return "repeated";
  }
}

}  // namespace minitaw::schedule
