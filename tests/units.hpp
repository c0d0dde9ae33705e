#pragma once

#include <numeric>
#include <vector>

#include "schedule/program.hpp"

namespace minitaw::schedule {

/// What a lane starts at once, for tests that execute programs in ways of their own: one action.
struct Unit {
  std::vector<int> actions;
};

inline std::vector<Unit> units(const RankProgram& rank, Lane lane) {
  std::vector<Unit> result;
  for (const int action : actions_of(rank, lane)) result.push_back({{action}});
  return result;
}

/// For each action, the last action of its unit.
inline std::vector<int> unit_ends(const RankProgram& rank) {
  std::vector<int> ends(rank.actions.size());
  std::iota(ends.begin(), ends.end(), 0);
  return ends;
}

}  // namespace minitaw::schedule
