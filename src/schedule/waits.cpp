#include <algorithm>

#include "schedule/passes.hpp"

namespace minitaw::schedule {
namespace {

using Clock = std::array<std::int32_t, lanes>;  ///< finished actions per lane

Clock later(const Clock& a, const Clock& b) {
  Clock c{};
  for (int l = 0; l < lanes; ++l) c[l] = std::max(a[l], b[l]);
  return c;
}

/// Who touched a slot last: positions (count of finished actions) per lane.
struct SlotHistory {
  Clock written{};
  Clock read{};  ///< since the last write
};

class WaitDeriver {
public:
  WaitDeriver(RankProgram& program, int rank, bool overlap)
      : program_(program), rank_(rank), overlap_(overlap) {
    for (int c = 0; c < slot_classes; ++c) history_[c].resize(program.slots[c]);
  }

  void run() {
    for (Action& action : program_.actions) {
      const Clock need = needs(action);
      reduce(action, need);
      advance(action);
    }
  }

private:
  Clock needs(const Action& action) {
    if (action.kind == Kind::join) return issued_;
    Clock need{};
    for (const Access& access : accesses(action, rank_)) {
      const SlotHistory& h = history(access.slot);
      need = later(need, h.written);
      if (access.write) need = later(need, h.read);
    }
    if (!overlap_) need = later(need, sequential(action));
    return need;
  }

  /// Everything issued before on the other side of the compute / communication border.
  [[nodiscard]] Clock sequential(const Action& action) const {
    Clock need = issued_;
    const bool computes = action.lane == Lane::compute;
    for (int l = 0; l < lanes; ++l)
      if ((l == 0) == computes) need[l] = 0;
    return need;
  }

  /// Keeps only the waits that the lane does not know to be met already and that no other wait implies.
  void reduce(Action& action, const Clock& need) {
    const int own = static_cast<int>(action.lane);
    Clock& known = known_[own];
    for (int l = 0; l < lanes; ++l) {
      if (l == own || need[l] <= known[l]) continue;
      bool implied = false;
      for (int m = 0; m < lanes; ++m)
        implied = implied || (m != l && m != own && need[m] > known[m] && closure(m, need[m])[l] >= need[l] &&
                              !(m > l && closure(l, need[l])[m] >= need[m]));
      if (!implied) action.waits[l] = need[l];
    }
    for (int l = 0; l < lanes; ++l)
      if (l != own && need[l] > 0) known = later(known, closure(l, need[l]));
  }

  /// What is finished once the first `count` actions of a lane are.
  [[nodiscard]] const Clock& closure(int lane, int count) const { return closures_[lane][count - 1]; }

  void advance(const Action& action) {
    const int own = static_cast<int>(action.lane);
    const std::int32_t position = ++issued_[own];
    known_[own][own] = position;
    closures_[own].push_back(known_[own]);
    for (const Access& access : accesses(action, rank_)) {
      SlotHistory& h = history(access.slot);
      if (access.write) h = {};
      (access.write ? h.written : h.read)[own] = position;
    }
  }

  SlotHistory& history(Slot slot) { return history_[static_cast<std::size_t>(slot.cls)][slot.index]; }

  RankProgram& program_;
  int rank_;
  bool overlap_;
  std::array<std::vector<SlotHistory>, slot_classes> history_;
  Clock issued_{};
  std::array<Clock, lanes> known_{};
  std::array<std::vector<Clock>, lanes> closures_;
};

}  // namespace

void assign_waits(RankProgram& program, int rank, bool overlap) { WaitDeriver(program, rank, overlap).run(); }

}  // namespace minitaw::schedule
