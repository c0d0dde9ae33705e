#include "schedule/program.hpp"

#include <algorithm>

namespace minitaw::schedule {
bool same_batch(const RankProgram& rank, int first, int second) {
  const Action &a = rank.actions[first], &b = rank.actions[second];
  return second == first + 1 && is_point_to_point(a.kind) && is_point_to_point(b.kind) && a.lane == b.lane &&
         a.tick == b.tick && a.payload == b.payload && a.shard == b.shard;
}

model::Cut cut_of(const Program& program) {
  return {program.shards, program.ends_slices, program.shard_parts, program.ends_split};
}

std::vector<Unit> units(const RankProgram& rank, Lane lane) {
  std::vector<Unit> result;
  for (int i = 0; i < static_cast<int>(rank.actions.size()); ++i) {
    const Action& action = rank.actions[i];
    if (action.lane != lane) continue;
    if (i == 0 || !same_batch(rank, i - 1, i)) result.emplace_back();
    result.back().actions.push_back(i);
  }
  return result;
}

std::vector<int> unit_ends(const RankProgram& rank) {
  std::vector<int> ends(rank.actions.size());
  for (int l = 0; l < lanes; ++l)
    for (const Unit& unit : units(rank, static_cast<Lane>(l)))
      for (const int i : unit.actions) ends[i] = unit.actions.back();
  return ends;
}

std::vector<int> releases(const RankProgram& rank) {
  std::vector<int> ends = unit_ends(rank);
  for (int i = static_cast<int>(rank.actions.size()) - 2; i >= 0; --i)
    if (const Action &a = rank.actions[i], &b = rank.actions[i + 1];
        is_point_to_point(a.kind) && is_point_to_point(b.kind) && a.tick == b.tick)
      ends[i] = std::max(ends[i], ends[i + 1]);
  return ends;
}

std::vector<int> micro_batches_of(const RankProgram& rank) {
  std::vector<int> result;
  for (const Action& action : rank.actions)
    if (action.kind == Kind::forward) result.push_back(action.micro_batch);
  std::ranges::sort(result);
  result.erase(std::ranges::unique(result).begin(), result.end());
  return result;
}

}  // namespace minitaw::schedule
