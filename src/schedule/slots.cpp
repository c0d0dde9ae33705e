#include <algorithm>
#include <set>

#include "schedule/passes.hpp"

namespace minitaw::schedule {
namespace {

bool permanent(SlotClass cls) {
  return cls == SlotClass::home || cls == SlotClass::total || cls == SlotClass::ends ||
         cls == SlotClass::ends_total;
}

/// Values by the action after which their slot is free: see releases(). What one of several messages
/// reads must not make room for what another receives.
std::vector<std::vector<Value>> released_after(const RankProgram& rank,
                                               const std::vector<std::array<Value, 4>>& values, int count) {
  const std::vector<int> ends = releases(rank);
  std::vector<int> last(count, -1);
  std::vector<SlotClass> cls(count);
  for (std::size_t i = 0; i < values.size(); ++i)
    for (const Value v : values[i]) {
      if (!v.valid() || permanent(v.cls)) continue;
      last[v.id] = std::max(last[v.id], ends[i]);
      cls[v.id] = v.cls;
    }
  std::vector<std::vector<Value>> released(values.size());
  for (int id = 0; id < count; ++id)
    if (last[id] >= 0) released[last[id]].push_back({id, cls[id]});
  return released;
}

/// How many values of each class live at once.
std::array<int, slot_classes> peaks(const std::vector<std::array<Value, 4>>& values,
                                    const std::vector<std::vector<Value>>& released, int count) {
  std::array<int, slot_classes> alive{}, peak{};
  std::vector<bool> seen(count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (const Value v : values[i]) {
      if (!v.valid() || permanent(v.cls) || seen[v.id]) continue;
      const auto c = static_cast<std::size_t>(v.cls);
      seen[v.id] = true;
      peak[c] = std::max(peak[c], ++alive[c]);
    }
    for (const Value v : released[i]) --alive[static_cast<std::size_t>(v.cls)];
  }
  return peak;
}

/// Free slots of one class. A hidden state takes the one that has been free for longest: it need not wait
/// until the last one that was sent has left. Other contents differ in size and take the lowest one, so that
/// not every slot becomes as large as the largest of them.
class Pool {
public:
  Pool(SlotClass cls, int size) : rotates_(cls == SlotClass::flow) {
    for (int i = 0; i < size; ++i) give_back(static_cast<std::int16_t>(i));
  }
  std::int16_t take() {
    const std::int16_t slot = free_.begin()->second;
    free_.erase(free_.begin());
    return slot;
  }
  void give_back(std::int16_t slot) { free_.emplace(rotates_ ? ++given_back_ : 0, slot); }

private:
  bool rotates_;
  int given_back_ = 0;
  std::set<std::pair<int, std::int16_t>> free_;  ///< when it came back, slot
};

/// What a step has written of a gradient that lasts, in parts of a shard, or embedding and head.
class Written {
public:
  explicit Written(std::size_t parts) : parts_(parts) {}

  /// Whether any of [begin, end) was written before; from now on all of it is.
  bool exchange(std::size_t begin, std::size_t end) {
    const auto first = parts_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = parts_.begin() + static_cast<std::ptrdiff_t>(end);
    const bool before = std::find(first, last, true) != last;
    std::fill(first, last, true);
    return before;
  }

private:
  std::vector<bool> parts_;
};

}  // namespace

void write_first_contributions(RankProgram& rank, int shard_parts) {
  std::vector<Written> totals(rank.homes.size(), Written(static_cast<std::size_t>(shard_parts)));
  Written ends(2);
  for (Action& a : rank.actions) {
    if (a.kind == Kind::loss) a.accumulates = ends.exchange(0, 1);
    if (a.kind == Kind::embed_backward) a.accumulates = ends.exchange(1, 2);
    const bool contributes =
        a.kind == Kind::backward || a.kind == Kind::backward_weight || a.kind == Kind::accumulate;
    if (!contributes) continue;
    for (const Slot slot : a.slots)
      if (slot.cls == SlotClass::total && slot.valid()) {
        const int each = shard_parts / a.parts;
        a.accumulates = totals[static_cast<std::size_t>(slot.index)].exchange(
            static_cast<std::size_t>(a.part * each), static_cast<std::size_t>((a.part + 1) * each));
      }
  }
}

void assign_slots(RankProgram& rank, const std::vector<std::array<Value, 4>>& values, int count) {
  const std::vector<std::vector<Value>> released = released_after(rank, values, count);
  std::vector<std::int16_t> slot_of(count, -1);
  const std::array<int, slot_classes> sizes = peaks(values, released, count);
  std::vector<Pool> pools;
  for (int c = 0; c < slot_classes; ++c) pools.emplace_back(static_cast<SlotClass>(c), sizes[c]);
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    for (int k = 0; k < 4; ++k) {
      const Value v = values[i][k];
      if (!v.valid()) continue;
      Slot& slot = rank.actions[i].slots[k];
      slot = {v.cls, static_cast<std::int16_t>(v.id)};
      if (permanent(v.cls)) continue;
      if (slot_of[v.id] < 0) slot_of[v.id] = pools[static_cast<std::size_t>(v.cls)].take();
      slot.index = slot_of[v.id];
    }
    for (const Value v : released[i]) pools[static_cast<std::size_t>(v.cls)].give_back(slot_of[v.id]);
  }
  for (int c = 0; c < slot_classes; ++c)
    if (!permanent(static_cast<SlotClass>(c))) rank.slots[c] = sizes[c];
}

}  // namespace minitaw::schedule
