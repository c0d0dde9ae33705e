#include "schedule/program.hpp"

#include <algorithm>

namespace minitaw::schedule {
model::Cut cut_of(const Program& program) {
  return {program.shards, program.ends_slices, program.shard_parts, program.ends_split};
}

std::vector<int> actions_of(const RankProgram& rank, Lane lane) {
  std::vector<int> result;
  for (int i = 0; i < static_cast<int>(rank.actions.size()); ++i)
    if (rank.actions[i].lane == lane) result.push_back(i);
  return result;
}

std::vector<int> releases(const RankProgram& rank) {
  std::vector<int> ends(rank.actions.size());
  for (int i = static_cast<int>(ends.size()) - 1; i >= 0; --i) {
    ends[i] = i;
    if (i + 1 == static_cast<int>(ends.size())) continue;
    if (const Action &a = rank.actions[i], &b = rank.actions[i + 1];
        is_point_to_point(a.kind) && is_point_to_point(b.kind) && a.tick == b.tick)
      ends[i] = ends[i + 1];
  }
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
