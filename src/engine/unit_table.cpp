#include "engine/unit_table.hpp"

#include <algorithm>

namespace minitaw::engine {

UnitTable::UnitTable(const schedule::Program& program)
    : program_(program), matching_(schedule::detail::match(program)), ranks_(program.ranks.size()) {
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    collect_units(r);
    find_needs(r);
  }
}

std::int32_t UnitTable::collective_of(UnitPlace p) const {
  if (!is_collective(first_action(p).kind)) return -1;
  return matching_.other[matching_.number({p.rank, lane(p.rank, p.lane).actions[unit(p).begin]})];
}

void UnitTable::collect_units(int rank) {
  const schedule::RankProgram& program = program_.ranks[rank];
  RankUnits& mine = ranks_[rank];
  mine.unit_of.resize(program.actions.size());
  for (int l = 0; l < schedule::lanes; ++l) {
    LaneUnits& lane = mine.lanes[l];
    for (const int action : schedule::actions_of(program, static_cast<schedule::Lane>(l))) {
      const auto position = static_cast<std::int32_t>(lane.actions.size());
      mine.unit_of[action] = position;
      lane.actions.push_back(action);
      lane.units.push_back({position, position + 1});
    }
  }
}

void UnitTable::find_needs(int rank) {
  RankUnits& mine = ranks_[rank];
  for (int l = 0; l < schedule::lanes; ++l)
    for (Unit& unit : mine.lanes[l].units)
      for (std::int32_t i = unit.begin; i < unit.end; ++i) {
        const schedule::Action& action = program_.ranks[rank].actions[mine.lanes[l].actions[i]];
        for (int other = 0; other < schedule::lanes; ++other)
          if (other != l && action.waits[other] > 0)  // its own lane is in order anyway
            unit.needs[other] =
                std::max(unit.needs[other], mine.unit_of[mine.lanes[other].actions[action.waits[other] - 1]]);
      }
}

}  // namespace minitaw::engine
