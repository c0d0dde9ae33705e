#include "schedule/draft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "schedule/passes.hpp"

namespace minitaw::schedule {

Draft::Draft(const topology::Groups& groups, int shards, int micro_batches) : drafts_(groups.ranks()) {
  program_.groups = groups;
  program_.shards = shards;
  program_.micro_batches = micro_batches;
  program_.ranks.resize(groups.ranks());
  for (RankProgram& rank : program_.ranks) {
    rank.slots[static_cast<std::size_t>(SlotClass::ends)] = 1;
    rank.slots[static_cast<std::size_t>(SlotClass::ends_total)] = 1;
  }
}

void Draft::own(int rank, int shard) {
  RankProgram& r = program_.ranks[rank];
  r.homes.push_back(shard);
  ++r.slots[static_cast<std::size_t>(SlotClass::home)];
  ++r.slots[static_cast<std::size_t>(SlotClass::total)];
}

Value Draft::home(int rank, int shard) const {
  const std::vector<int>& homes = program_.ranks[rank].homes;
  const auto at = std::ranges::find(homes, shard);
  return at == homes.end() ? Value{} : Value{static_cast<int>(at - homes.begin()), SlotClass::home};
}

Value Draft::total(int rank, int shard) const { return {home(rank, shard).id, SlotClass::total}; }

Value Draft::value(int rank, SlotClass cls) { return {drafts_[rank].next_value++, cls}; }

int Draft::communicator(const std::string& name, const std::vector<int>& ranks) {
  auto& all = program_.communicators;
  const auto at = std::ranges::find(all, name, &Communicator::name);
  if (at != all.end()) return static_cast<int>(at - all.begin());
  all.push_back({name, ranks});
  return static_cast<int>(all.size()) - 1;
}

int Draft::world() {
  std::vector<int> everyone(ranks());
  std::iota(everyone.begin(), everyone.end(), 0);
  return communicator("world", everyone);
}

int Draft::group(int group) { return communicator(fmt::format("group{}", group), groups().members(group)); }

void Draft::add(int rank, Phase phase, Action action, std::initializer_list<Value> values) {
  Emitted emitted{action, phase, {}};
  std::ranges::copy(values, emitted.values.begin());
  drafts_[rank].emitted.push_back(emitted);
}

void Draft::transfer(int tick, Payload payload, int shard, Endpoint from, Endpoint to) {
  Action action;
  action.lane = groups().together(from.rank, to.rank) ? Lane::intra : Lane::inter;
  action.tick = tick;
  action.payload = payload;
  action.shard = shard;
  const bool gives = payload == Payload::gradient || payload == Payload::activation_grad;
  const Phase phase = gives ? Phase::give_inter : Phase::fetch_inter;
  action.kind = Kind::send;
  action.peer = to.rank;
  add(from.rank, phase, action, {from.value});
  action.kind = Kind::recv;
  action.peer = from.rank;
  add(to.rank, phase, action, {to.value});
}

void Draft::collective(int tick, Phase phase, Action action, const std::vector<Value>& values) {
  const std::vector<int>& members = program_.communicators[action.communicator].ranks;
  const bool inside = std::ranges::all_of(members, [&](int r) { return groups().together(r, members[0]); });
  action.lane = inside ? Lane::intra : Lane::inter;
  action.tick = tick;
  for (std::size_t i = 0; i < members.size(); ++i) add(members[i], phase, action, {values[i]});
}

Program Draft::finish(bool overlap) && {
  for (int r = 0; r < ranks(); ++r) {
    auto emitted = std::exchange(drafts_[r].emitted, {});
    std::ranges::stable_sort(emitted, {}, [](const Emitted& e) { return std::pair(e.action.tick, e.phase); });
    RankProgram& rank = program_.ranks[r];
    std::vector<std::array<Value, 4>> values;
    rank.actions.reserve(emitted.size());
    values.reserve(emitted.size());
    for (const Emitted& e : emitted) {
      rank.actions.push_back(e.action);
      values.push_back(e.values);
    }
    assign_slots(rank, values, drafts_[r].next_value);
    assign_waits(rank, r, overlap);
  }
  return std::move(program_);
}

}  // namespace minitaw::schedule
