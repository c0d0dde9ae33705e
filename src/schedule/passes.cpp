// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/passes.hpp"
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include "base/error.hpp"
#include "schedule/rank_order.hpp"

namespace minitaw::schedule {
namespace {
/// Buffers in transit, by the action after which their slot is free: the last that uses them, or
/// the last message of its tick (releases()).
std::vector<std::vector<VirtualBuffer>> released_after(
    const RankProgram& rank, const std::vector<VirtualBuffers>& buffers, int count) {
  const std::vector<int> ends = releases(rank);
  std::vector<int> last(count, -1);
  std::vector<VirtualBuffer> used(count);
  for (const int i : indices(buffers))
    for (const VirtualBuffer v : buffers[i])
      if (v.valid() && !is_permanent(v.cls)) {
        last[v.id] = std::max(last[v.id], ends[i]);
        used[v.id] = v;
      }
  std::vector<std::vector<VirtualBuffer>> released(buffers.size());
  for (const VirtualBuffer v : used)
    if (v.valid())
      released[last[v.id]].push_back(v);
  return released;
}

/// Free slots of one class. A hidden state takes the one that was free for longest: no wait until
/// the last one has left. Others differ in size and take the lowest, so that not every slot becomes
/// as large as the largest of them.
class Pool {
public:
  Pool(SlotClass cls, int size) : rotates_(cls == SlotClass::hidden), size_(size) {
    for (int i = 0; i < size; ++i)
      release(i);
  }

  std::int16_t take() {
    if (free_.empty())
      return size_++;
    const std::int16_t slot = free_.begin()->second;
    free_.erase(free_.begin());
    return slot;
  }

  void release(std::int16_t slot) { free_.emplace(rotates_ ? ++released_ : 0, slot); }

  int size() const { return size_; }

private:
  bool rotates_;
  int size_, released_ = 0;
  std::set<std::pair<int, std::int16_t>> free_;  ///< when it was released, slot
};

/// The actions that must be finished before this one, as `overlap` says and because of the slots
/// it touches: a read waits for the last write, a write for the last write and the reads since.
LaneCounts needs_of(const Action& action, int rank, Overlap overlap, const RankOrder& order) {
  if (action.kind == Kind::join)
    return order.added();
  LaneCounts needs{};
  for (const Access& access : accesses(action, rank)) {
    const RankOrder::SlotUses& uses = order.uses(access.slot);
    needs = max_of(needs, uses.written);
    if (access.write)
      needs = max_of(needs, uses.read);
  }
  const bool computes = action.lane == Lane::compute;
  for (const auto& [lane, name] : table_of<Lane>) {
    const bool leaves_group = lane == Lane::inputs_recv || lane == Lane::inputs_send;
    const bool takes_turns = overlap == Overlap::none && (lane == Lane::compute) != computes;
    if (takes_turns || (overlap == Overlap::not_of_weights && computes && leaves_group))
      needs[index_of(lane)] = order.added()[index_of(lane)];
  }
  return needs;
}

/// Makes an action wait for what it needs, but for what is finished anyway: before the action in
/// its lane, or before something else that it needs.
void wait_for(Action& action, const LaneCounts& needs, const RankOrder& order) {
  const LaneCounts done = order.done_before(action);
  for (std::size_t l = 0; l < lanes; ++l) {
    bool implied = done[l] >= needs[l];
    for (std::size_t other = 0; other < lanes && !implied; ++other)
      implied = other != l && needs[other] > 0 && order.at(other, needs[other]).done[l] >= needs[l];
    if (!implied)
      action.waits[l] = needs[l];
  }
}
}  // namespace

void write_first_contributions(RankProgram& rank, const Program& program) {
  // Class, slot, tensors and part of the sums that have been written. Actions that write different
  // tensors of one slot are told apart: the loss and the embedding's backward pass, unless they are
  // tied, and segments.
  std::set<std::tuple<SlotClass, int, int, int>> written;
  for (Action& a : rank.actions)
    for (const int i : indices(a.slots)) {
      const Slot slot = a.slots[i];
      const bool sums = operands_of(a)[i].touch == Touch::accumulate && is_sum(slot.cls);
      if (!slot.valid() || !sums)
        continue;
      const bool ends = of_embeddings(slot.cls);
      const int of_end = program.tied ? 0 : static_cast<int>(a.kind);
      const int tensors = ends ? of_end : 1 + gradient_number(a);
      const int parts = ends ? 1 : program.shard_parts / a.parts;
      a.accumulates = false;
      for (int part = a.part * parts; part < (a.part + 1) * parts; ++part)
        a.accumulates |= !written.emplace(slot.cls, slot.index, tensors, part).second;
    }
}

void assign_slots(RankProgram& rank, const std::vector<VirtualBuffers>& buffers, int count) {
  const std::vector<std::vector<VirtualBuffer>> released = released_after(rank, buffers, count);
  // The first time says how many slots there must be, the second one chooses out of all of them.
  for (const bool counts : {true, false}) {
    std::vector<std::int16_t> slot_of(count, -1);
    std::vector<Pool> pools;
    for (const SlotClassRow& row : table_of<SlotClass>)
      pools.emplace_back(row.value, counts ? 0 : rank.slots[index_of(row.value)]);
    for (const int i : indices(buffers)) {
      for (std::size_t k = 0; k < most_operands; ++k) {
        const VirtualBuffer v = buffers[i][k];
        if (!v.valid())
          continue;
        if (!is_permanent(v.cls) && slot_of[v.id] < 0)
          slot_of[v.id] = pools[index_of(v.cls)].take();
        const std::int16_t index = is_permanent(v.cls) ? v.id : slot_of[v.id];
        rank.actions[i].slots[k] = {v.cls, index};
      }
      for (const VirtualBuffer v : released[i])
        pools[index_of(v.cls)].release(slot_of[v.id]);
    }
    for (const SlotClassRow& row : table_of<SlotClass>)
      if (!row.permanent)
        rank.slots[index_of(row.value)] = pools[index_of(row.value)].size();
  }
}

void assign_waits(RankProgram& program, int rank, Overlap overlap) {
  RankOrder order(program, rank);
  for (int i = 0; Action & action : program.actions) {
    wait_for(action, needs_of(action, rank, overlap, order), order);
    order.add(i++, action);
  }
}
}  // namespace minitaw::schedule
