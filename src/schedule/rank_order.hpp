// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "schedule/program.hpp"

namespace minitaw::schedule {
/// What is finished when an action of a rank begins, and which actions used each slot last. Actions
/// are added in issue order, with their waits. Positions count the actions of a lane, from 1.
class RankOrder {
public:
  /// An action of a lane that has been added.
  struct Added {
    int action;       ///< index into RankProgram::actions
    LaneCounts done;  ///< what is finished once it is
  };

  /// Last uses of a slot, as positions in each lane.
  struct SlotUses {
    LaneCounts written{};
    LaneCounts read{};  ///< since the last write
  };

  RankOrder(const RankProgram& program, int rank) : rank_(rank) {
    for (std::size_t c = 0; c < slot_classes; ++c)
      uses_[c].resize(program.slots[c]);
  }

  /// Returns what is finished when an action begins: the one before it in its lane, what it waits
  /// for, and all that these imply.
  LaneCounts done_before(const Action& action) const {
    const std::vector<Added>& before = lanes_[index_of(action.lane)];
    LaneCounts done = before.empty() ? LaneCounts{} : before.back().done;
    for (std::size_t l = 0; l < lanes; ++l)
      if (action.waits[l] > 0)
        done = max_of(done, at(l, action.waits[l]).done);
    return done;
  }

  /// The action at a position of a lane.
  const Added& at(std::size_t lane, int position) const { return lanes_[lane][position - 1]; }

  const SlotUses& uses(Slot slot) const { return uses_[index_of(slot.cls)][slot.index]; }

  /// Actions of each lane that have been added.
  const LaneCounts& added() const { return added_; }

  void add(int number, const Action& action) {
    const std::size_t lane = index_of(action.lane);
    LaneCounts done = done_before(action);
    const int position = done[lane] = ++added_[lane];
    lanes_[lane].push_back({number, done});
    for (const Access& access : accesses(action, rank_)) {
      SlotUses& slot = uses_[index_of(access.slot.cls)][access.slot.index];
      if (access.write)
        slot = {};
      (access.write ? slot.written : slot.read)[lane] = position;
    }
  }

private:
  int rank_;
  LaneCounts added_{};
  std::array<std::vector<Added>, lanes> lanes_;
  std::array<std::vector<SlotUses>, slot_classes> uses_;
};
}  // namespace minitaw::schedule
