#include "schedule/draft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "schedule/passes.hpp"

namespace minitaw::schedule {

Draft::Draft(const topology::Groups& groups, int shards, int micro_batches, int copies)
    : groups_(groups_of_copy(groups, copies)), drafts_(groups_.ranks()) {
  program_.groups = groups;
  program_.shards = shards;
  program_.micro_batches = micro_batches;
  program_.copies = copies;
  program_.ranks.resize(groups_.ranks());
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

void Draft::cut_shards(int count) { program_.shard_parts = std::lcm(program_.shard_parts, count); }

void Draft::split_ends(int embedding_rank, int head_rank) {
  if (embedding_rank == head_rank) return;
  program_.ends_split = true;
  program_.ends_slices = 2;
  for (int r = 0; r < ranks(); ++r) {
    RankProgram& rank = program_.ranks[r];
    const bool holds = r == embedding_rank || r == head_rank;
    rank.ends_slice = holds ? (r == head_rank ? 1 : 0) : -1;
    rank.slots[static_cast<std::size_t>(SlotClass::ends)] = holds ? 1 : 0;
    rank.slots[static_cast<std::size_t>(SlotClass::ends_total)] = holds ? 1 : 0;
  }
}

bool Draft::holds_ends(int rank) const {
  return program_.ranks[rank].slots[static_cast<std::size_t>(SlotClass::ends)] > 0;
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

Action Draft::message_action(int tick, const Cargo& cargo) {
  Action action;
  action.tick = tick;
  action.payload = cargo.payload;
  action.shard = cargo.shard;
  action.micro_batch = cargo.micro_batch;
  action.part = static_cast<std::int16_t>(cargo.part.index);
  action.parts = static_cast<std::int16_t>(cargo.part.count);
  return action;
}

void Draft::transfer(int tick, Phase phase, const Cargo& cargo, Endpoint from, Endpoint to) {
  exchange(tick, phase, {{cargo, from, to}});
}

void Draft::exchange(int tick, Phase phase, const std::vector<Message>& messages) {
  for (const auto& [cargo, from, to] : messages) {
    Action action = message_action(tick, cargo);
    const auto add_side = [&](Kind kind, const Endpoint& here, const Endpoint& there) {
      action.kind = kind;
      action.lane = lane_of(kind, cargo.payload, true);
      action.peer = there.rank;
      add(here.rank, phase, action, {here.value});
    };
    add_side(Kind::send, from, to);
    add_side(Kind::recv, to, from);
  }
}

bool Draft::together(const std::vector<int>& ranks) const {
  return std::ranges::all_of(ranks, [&](int r) { return groups().together(r, ranks[0]); });
}

void Draft::collective(int tick, Phase phase, Action action, const std::vector<Value>& values) {
  const std::vector<int>& members = program_.communicators[action.communicator].ranks;
  action.lane = lane_of(action.kind, action.payload, together(members));
  action.tick = tick;
  for (std::size_t i = 0; i < members.size(); ++i) add(members[i], phase, action, {values[i]});
}

void Draft::sum_over_copies(int rank, int tick, Phase phase, Action action, Value value) {
  const int whole_job = program_.groups.ranks();
  const bool together = program_.groups.together(rank, whole_job - ranks() + rank);
  action.kind = Kind::all_reduce;
  action.lane = lane_of(action.kind, action.payload, together);
  action.tick = tick;
  action.communicator = among_copies;
  add(rank, phase, action, {value});
}

std::vector<int> Draft::last_use_of_totals(int rank) const {
  std::vector<int> last(program_.ranks[rank].homes.size(), -1);
  for (const Emitted& e : drafts_[rank].emitted)
    for (const Value v : e.values)
      if (v.valid() && v.cls == SlotClass::total) last[v.id] = std::max(last[v.id], e.action.tick);
  return last;
}

void Draft::finish_rank(int r, bool overlap) {
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
  write_first_contributions(rank, program_.shard_parts);
  assign_waits(rank, r, overlap);
}

Program Draft::finish(bool overlap) && {
  for (int r = 0; r < ranks(); ++r) finish_rank(r, overlap);
  if (copies() > 1) make_copies(program_);
  return std::move(program_);
}

}  // namespace minitaw::schedule
