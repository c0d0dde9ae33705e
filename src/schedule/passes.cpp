// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/passes.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <tuple>
#include <utility>
#include "base/error.hpp"

namespace minitaw::schedule {
namespace {
/// Buffers by the action after which their slot is free (releases()): messages of one tick do not
/// wait for each other.
std::vector<std::vector<VirtualBuffer>> released_after(
    const RankProgram& rank, const std::vector<VirtualBuffers>& buffers, int count) {
  const std::vector<int> ends = releases(rank);
  std::vector<int> last(count, -1);
  std::vector<SlotClass> cls(count);
  for (std::size_t i = 0; i < buffers.size(); ++i)
    for (const VirtualBuffer v : buffers[i]) {
      if (!v.valid() || is_permanent(v.cls))
        continue;
      last[v.id] = std::max(last[v.id], ends[i]);
      cls[v.id] = v.cls;
    }
  std::vector<std::vector<VirtualBuffer>> released(buffers.size());
  for (int id = 0; id < count; ++id)
    if (last[id] >= 0)
      released[last[id]].push_back({id, cls[id]});
  return released;
}

/// Free slots of one class. A hidden state takes the one that was free for longest: no wait until
/// the last one has left. Others differ in size and take the lowest, so that not every slot becomes
/// as large as the largest of them.
class Pool {
public:
  Pool(SlotClass cls, int size) : rotates_(cls == SlotClass::hidden), size_(size) {
    for (int i = 0; i < size; ++i)
      release(static_cast<std::int16_t>(i));
  }

  std::int16_t take() {
    if (free_.empty())
      return static_cast<std::int16_t>(size_++);
    const std::int16_t slot = free_.begin()->second;
    free_.erase(free_.begin());
    return slot;
  }

  void release(std::int16_t slot) { free_.emplace(rotates_ ? ++released_ : 0, slot); }

  [[nodiscard]] int size() const { return size_; }

private:
  bool rotates_;
  int size_, released_ = 0;
  std::set<std::pair<int, std::int16_t>> free_;  ///< when it was released, slot
};

/// Communicators of all replicas, one after the other, then one for each of the first one's ranks.
std::vector<Communicator> communicators_of_replicas(const Program& program, int ranks) {
  std::vector<Communicator> all;
  for (int c = 0; c < program.replicas; ++c)
    for (const Communicator& own : program.communicators) {
      all.push_back({fmt::format("replica{}.{}", c, own.name), own.ranks});
      for (int& rank : all.back().ranks)
        rank += c * ranks;
    }
  for (int r = 0; r < ranks; ++r) {
    all.push_back({fmt::format("replicas{}", r), {}});
    for (int c = 0; c < program.replicas; ++c)
      all.back().ranks.push_back(c * ranks + r);
  }
  return all;
}

class WaitDeriver {
public:
  WaitDeriver(RankProgram& program, int rank, Overlap overlap)
      : program_(program),
        rank_(rank),
        overlap_(overlap) {
    for (int c = 0; c < slot_classes; ++c)
      history_[c].resize(program.slots[c]);
  }

  void run() {
    for (Action& action : program_.actions) {
      const LaneCounts need = needs(action);
      reduce(action, need);
      advance(action);
    }
  }

private:
  LaneCounts needs(const Action& action) {
    if (action.kind == Kind::join)
      return issued_;
    LaneCounts need{};
    for (const Access& access : accesses(action, rank_)) {
      const SlotHistory& h = history(access.slot);
      need = max_of(need, h.written);
      if (access.write)
        need = max_of(need, h.read);
    }
    if (overlap_ == Overlap::none)
      need = max_of(need, sequential(action));
    if (overlap_ == Overlap::not_of_weights && action.lane == Lane::compute)
      for (const Lane lane : {Lane::inputs_recv, Lane::inputs_send})
        need[static_cast<int>(lane)] = issued_[static_cast<int>(lane)];
    return need;
  }

  /// Everything issued before on the other side of the compute / communication border.
  [[nodiscard]] LaneCounts sequential(const Action& action) const {
    LaneCounts need = issued_;
    const bool computes = action.lane == Lane::compute;
    for (int l = 0; l < lanes; ++l)
      if ((l == 0) == computes)
        need[l] = 0;
    return need;
  }

  /// Keeps only the waits that the lane does not know to be met already and that no other wait
  /// implies.
  void reduce(Action& action, const LaneCounts& need) {
    const int own = static_cast<int>(action.lane);
    LaneCounts& known = known_[own];
    for (int l = 0; l < lanes; ++l) {
      if (l == own || need[l] <= known[l])
        continue;
      bool implied = false;
      for (int m = 0; m < lanes; ++m)
        implied = implied ||
                  (m != l && m != own && need[m] > known[m] && closure(m, need[m])[l] >= need[l] &&
                      !(m > l && closure(l, need[l])[m] >= need[m]));
      if (!implied)
        action.waits[l] = need[l];
    }
    for (int l = 0; l < lanes; ++l)
      if (l != own && need[l] > 0)
        known = max_of(known, closure(l, need[l]));
  }

  /// Returns the actions that are finished once the first `count` actions of a lane are.
  [[nodiscard]] const LaneCounts& closure(int lane, int count) const {
    return closures_[lane][count - 1];
  }

  void advance(const Action& action) {
    const int own = static_cast<int>(action.lane);
    const std::int32_t position = ++issued_[own];
    known_[own][own] = position;
    closures_[own].push_back(known_[own]);
    for (const Access& access : accesses(action, rank_))
      history(access.slot).touch(access, action.lane, position);
  }

  SlotHistory& history(Slot slot) { return history_[index_of(slot.cls)][slot.index]; }

  RankProgram& program_;
  int rank_;
  Overlap overlap_;
  std::array<std::vector<SlotHistory>, slot_classes> history_;
  LaneCounts issued_{};
  std::array<LaneCounts, lanes> known_{};
  std::array<std::vector<LaneCounts>, lanes> closures_;
};
}  // namespace

void write_first_contributions(RankProgram& rank, int shard_parts) {
  // Class, slot and part that holds a sum; for the embeddings, what writes their gradient.
  std::set<std::tuple<SlotClass, int, int>> written;
  for (Action& a : rank.actions) {
    if (a.kind == Kind::square)
      a.accumulates = !written.emplace(SlotClass::squares, 0, 0).second;
    if (a.kind == Kind::loss || a.kind == Kind::embed_backward)
      a.accumulates =
          !written.emplace(SlotClass::embeddings_accumulator, 0, static_cast<int>(a.kind)).second;
    if (a.kind != Kind::backward && a.kind != Kind::backward_weight && a.kind != Kind::accumulate)
      continue;
    const int each = shard_parts / a.parts;
    for (const Slot slot : a.slots) {
      if (!is_sum(slot.cls) || !slot.valid())
        continue;
      a.accumulates = false;
      for (int part = a.part * each; part < (a.part + 1) * each; ++part)
        if (!written.emplace(slot.cls, slot.index, part).second)
          a.accumulates = true;
    }
  }
}

void assign_slots(RankProgram& rank, const std::vector<VirtualBuffers>& buffers, int count) {
  const std::vector<std::vector<VirtualBuffer>> released = released_after(rank, buffers, count);
  // The first time says how many slots there must be, the second one chooses out of all of them.
  for (int time = 0; time < 2; ++time) {
    std::vector<std::int16_t> slot_of(count, -1);
    std::vector<Pool> pools;
    for (int c = 0; c < slot_classes; ++c)
      pools.emplace_back(static_cast<SlotClass>(c), time == 0 ? 0 : rank.slots[c]);
    for (int i = 0; i < static_cast<int>(buffers.size()); ++i) {
      for (int k = 0; k < most_operands; ++k) {
        const VirtualBuffer v = buffers[i][k];
        if (!v.valid())
          continue;
        Slot& slot = rank.actions[i].slots[k];
        slot = {v.cls, static_cast<std::int16_t>(v.id)};
        if (is_permanent(v.cls))
          continue;
        if (slot_of[v.id] < 0)
          slot_of[v.id] = pools[index_of(v.cls)].take();
        slot.index = slot_of[v.id];
      }
      for (const VirtualBuffer v : released[i])
        pools[index_of(v.cls)].release(slot_of[v.id]);
    }
    for (int c = 0; c < slot_classes; ++c)
      if (!is_permanent(static_cast<SlotClass>(c)))
        rank.slots[c] = pools[c].size();
  }
}

void assign_waits(RankProgram& program, int rank, Overlap overlap) {
  WaitDeriver(program, rank, overlap).run();
}

topology::Groups groups_of_replica(const topology::Groups& groups, int replicas) {
  const int ranks = groups.ranks() / replicas;
  topology::Groups first = groups.within(0, ranks);
  for (int c = 1; c < replicas; ++c)
    if (groups.within(c * ranks, (c + 1) * ranks) != first)
      throw InputError(
          fmt::format("replicas: the groups {} do not give {} replicas of {} with groups "
                      "alike; choose other groups",
              groups.text(),
              replicas,
              counted(ranks, "rank")));
  return first;
}

void make_replicas(Program& program) {
  const int ranks = static_cast<int>(program.ranks.size());
  const int own = static_cast<int>(program.communicators.size());
  program.communicators = communicators_of_replicas(program, ranks);
  const std::vector<RankProgram> first = std::exchange(program.ranks, {});
  for (int c = 0; c < program.replicas; ++c)
    for (int r = 0; r < ranks; ++r)
      for (Action& a : program.ranks.emplace_back(first[r]).actions) {
        if (a.micro_batch >= 0)
          a.micro_batch += c * program.micro_batches / program.replicas;
        if (a.peer >= 0)
          a.peer += c * ranks;
        if (a.communicator >= 0)
          a.communicator += c * own;
        else if (a.communicator == among_replicas)
          a.communicator = own * program.replicas + r;
      }
}
}  // namespace minitaw::schedule
