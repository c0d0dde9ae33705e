#pragma once

#include <cstdint>
#include <vector>

#include "schedule/execute.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// A unit of a lane of a rank: a batch of messages, or one action.
struct UnitPlace {
  std::int32_t rank = -1, lane = -1, unit = -1;
};

/// The units of all lanes of all ranks, what each waits for and who takes part in its transfers. For a
/// program that validate() accepts, which outlives it.
class UnitTable {
public:
  struct Unit {
    std::int32_t begin = 0, end = 0;                         ///< positions in LaneUnits::actions
    std::array<std::int32_t, schedule::lanes> needs = none;  ///< last unit of each other lane; -1: none
    static constexpr std::array<std::int32_t, schedule::lanes> none = [] {
      std::array<std::int32_t, schedule::lanes> all{};
      all.fill(-1);
      return all;
    }();
  };
  struct LaneUnits {
    std::vector<std::int32_t> actions;  ///< indices into RankProgram::actions
    std::vector<Unit> units;
  };

  explicit UnitTable(const schedule::Program& program);

  [[nodiscard]] const schedule::Program& program() const { return program_; }
  [[nodiscard]] const LaneUnits& lane(int rank, int lane) const { return ranks_[rank].lanes[lane]; }
  [[nodiscard]] const Unit& unit(UnitPlace p) const { return lane(p.rank, p.lane).units[p.unit]; }
  [[nodiscard]] const schedule::Action& first_action(UnitPlace p) const {
    return program_.ranks[p.rank].actions[lane(p.rank, p.lane).actions[unit(p).begin]];
  }

  /// Number of the collective that a unit is a call of; -1: it is none.
  [[nodiscard]] std::int32_t collective_of(UnitPlace p) const;
  [[nodiscard]] std::size_t collectives() const { return matching_.instances.size(); }

  /// Calls visit(UnitPlace) for every unit that takes part in a transfer of this one, itself possibly among
  /// them.
  template <class Visit>
  void for_each_side(UnitPlace p, const Visit& visit) const {
    const LaneUnits& mine = lane(p.rank, p.lane);
    for (std::int32_t i = unit(p).begin; i < unit(p).end; ++i) visit_sides(p.rank, mine.actions[i], visit);
  }

private:
  struct RankUnits {
    std::array<LaneUnits, schedule::lanes> lanes;
    std::vector<std::int32_t> unit_of;  // by action: its unit in its lane
  };

  void collect_units(int rank);
  void find_needs(int rank);
  [[nodiscard]] UnitPlace place_of(int rank, int action) const {
    return {rank, static_cast<std::int32_t>(program_.ranks[rank].actions[action].lane),
            ranks_[rank].unit_of[action]};
  }

  template <class Visit>
  void visit_sides(int rank, int action, const Visit& visit) const {
    const schedule::Action& a = program_.ranks[rank].actions[action];
    const std::int32_t other = matching_.other[matching_.number({rank, action})];
    if (is_point_to_point(a.kind)) visit(place_of(a.peer, other));
    if (!is_collective(a.kind)) return;
    const schedule::Channel& channel = matching_.channels[matching_.instances[other]];
    const std::vector<int>& members = program_.communicators[a.communicator].ranks;
    for (std::size_t m = 0; m < members.size(); ++m)
      visit(place_of(members[m], channel.calls[m][other - channel.first]));
  }

  const schedule::Program& program_;
  schedule::Matching matching_;
  std::vector<RankUnits> ranks_;
};

}  // namespace minitaw::engine
