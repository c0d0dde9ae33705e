// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/passes.hpp"
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
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
  for (std::size_t i = 0; i < buffers.size(); ++i)
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
/// as large as the largest of them; what slices save, the one that fits best, or grows least.
class Pool {
public:
  /// `sizes`: of the slots that there are.
  Pool(SlotClass cls, std::vector<int> sizes)
      : rotates_(cls == SlotClass::hidden),
        sizes_(std::move(sizes)) {
    for (int i = 0; i < size(); ++i)
      release(static_cast<std::int16_t>(i));
  }

  /// `size`: any number that is larger where more is needed.
  std::int16_t take(int size) {
    const auto waste = [&](const std::pair<int, std::int16_t>& free) {
      const int more = rotates_ ? 0 : sizes_[free.second] - size;
      return std::pair(more < 0, std::abs(more));
    };
    const auto best = std::ranges::min_element(free_, {}, waste);
    const std::int16_t slot = best->second;
    free_.erase(best);
    sizes_[slot] = std::max(sizes_[slot], size);
    return slot;
  }

  void release(std::int16_t slot) { free_.emplace(rotates_ ? ++released_ : 0, slot); }

  int size() const { return static_cast<int>(sizes_.size()); }

private:
  bool rotates_;
  std::vector<int> sizes_;  ///< by slot
  int released_ = 0;
  std::set<std::pair<int, std::int16_t>> free_;  ///< when it was released, slot
};

/// Communicators of all replicas, one after the other, then one for each of the first one's ranks.
std::vector<Communicator> communicators_of_replicas(const Program& program, int ranks) {
  std::vector<Communicator> all;
  for (int c = 0; c < program.replicas; ++c)
    for (const Communicator& of_first : program.communicators) {
      all.push_back({fmt::format("replica{}.{}", c, of_first.name), of_first.ranks});
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

/// What an action needs to be finished, as `overlap` says and because of the slots it touches: a
/// read waits for the last write, a write for the last write and the reads since.
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
  for (const LaneRow& lane : table_of<Lane>) {
    const bool leaves_group = lane.flow == Flow::inputs && lane.way != Way::group;
    const bool takes_turns = overlap == Overlap::none && (lane.value == Lane::compute) != computes;
    if (takes_turns || (overlap == Overlap::not_of_weights && computes && leaves_group))
      needs[index_of(lane.value)] = order.added()[index_of(lane.value)];
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

void write_first_contributions(RankProgram& rank, int shard_parts) {
  // Class, slot, tensors and part of the sums that have been written. Actions that write different
  // tensors of one slot are told apart: the loss and the embedding's backward pass, and segments.
  std::set<std::tuple<SlotClass, int, int, int>> written;
  for (Action& a : rank.actions)
    for (std::size_t i = 0; i < a.slots.size(); ++i) {
      const Slot slot = a.slots[i];
      const bool sums = row_of(a.kind).uses[i].touch == Touch::accumulate && is_sum(slot.cls);
      if (!slot.valid() || !sums)
        continue;
      const int tensors = of_embeddings(slot.cls) ? static_cast<int>(a.kind) : 1 + segment_of(a);
      const int parts = of_embeddings(slot.cls) ? 1 : shard_parts / a.parts;
      a.accumulates = false;
      for (int part = a.part * parts; part < (a.part + 1) * parts; ++part)
        a.accumulates |= !written.emplace(slot.cls, slot.index, tensors, part).second;
    }
}

void assign_slots(
    RankProgram& rank, const std::vector<VirtualBuffers>& buffers, int count, int slices) {
  const std::vector<std::vector<VirtualBuffer>> released = released_after(rank, buffers, count);
  const auto size_at = [&](std::size_t i) {
    return slices == 1 ? 0 : slices - rank.actions[i].micro_batch % slices;
  };
  // Calls begin(buffer, the action's index) where a buffer is used first, and end(buffer).
  const auto follow = [&](const auto& begin, const auto& use, const auto& end) {
    std::vector<char> alive(count);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      for (std::size_t k = 0; k < most_operands; ++k) {
        const VirtualBuffer v = buffers[i][k];
        if (!v.valid())
          continue;
        if (!is_permanent(v.cls) && std::exchange(alive[v.id], 1) == 0)
          begin(v, i);
        use(v, rank.actions[i].slots[k]);
      }
      std::ranges::for_each(released[i], end);
    }
  };

  // As many slots as buffers live at once; the n-th largest of them as large as the n-th largest
  // buffer ever.
  std::array<std::vector<int>, slot_classes> sizes, live;  // each in descending order
  std::vector<int> size_of(count);
  follow(
      [&](VirtualBuffer v, std::size_t i) {
        size_of[v.id] = size_at(i);
        std::vector<int>&now = live[index_of(v.cls)], &most = sizes[index_of(v.cls)];
        now.insert(std::ranges::upper_bound(now, size_of[v.id], std::greater()), size_of[v.id]);
        most.resize(std::max(most.size(), now.size()));
        for (std::size_t n = 0; n < now.size(); ++n)
          most[n] = std::max(most[n], now[n]);
      },
      [](VirtualBuffer, Slot&) {},
      [&](VirtualBuffer v) {
        std::vector<int>& now = live[index_of(v.cls)];
        now.erase(std::ranges::find(now, size_of[v.id]));
      });

  std::vector<std::int16_t> slot_of(count);
  std::vector<Pool> pools;
  for (const SlotClassRow& row : table_of<SlotClass>) {
    pools.emplace_back(row.value, sizes[index_of(row.value)]);
    if (!row.permanent)
      rank.slots[index_of(row.value)] = pools.back().size();
  }
  follow([&](VirtualBuffer v,
             std::size_t i) { slot_of[v.id] = pools[index_of(v.cls)].take(size_at(i)); },
      [&](VirtualBuffer v, Slot& slot) {
        slot = {v.cls, static_cast<std::int16_t>(is_permanent(v.cls) ? v.id : slot_of[v.id])};
      },
      [&](VirtualBuffer v) { pools[index_of(v.cls)].release(slot_of[v.id]); });
}

void assign_waits(RankProgram& program, int rank, Overlap overlap) {
  RankOrder order(program, rank);
  for (int i = 0; Action & action : program.actions) {
    wait_for(action, needs_of(action, rank, overlap, order), order);
    order.add(i++, action);
  }
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
  const int communicators = static_cast<int>(program.communicators.size());  // of a replica
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
          a.communicator += c * communicators;
        else if (a.communicator == among_replicas)
          a.communicator = communicators * program.replicas + r;
      }
}
}  // namespace minitaw::schedule
