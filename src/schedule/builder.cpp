#include "schedule/builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace minitaw::schedule {

Action make_action(Kind kind, int tick, Payload payload, int shard, Part part) {
  Action a;
  a.kind = kind;
  a.tick = tick;
  a.payload = payload;
  a.shard = shard;
  a.part = static_cast<std::int16_t>(part.index);
  a.parts = static_cast<std::int16_t>(part.count);
  return a;
}

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

void Draft::transfer(int tick, Phase phase, const Cargo& cargo, Endpoint from, Endpoint to) {
  exchange(tick, phase, {{cargo, from, to}});
}

void Draft::exchange(int tick, Phase phase, const std::vector<Message>& messages) {
  for (const auto& [cargo, from, to] : messages) {
    const auto add_side = [&](Kind kind, const Endpoint& here, const Endpoint& there) {
      Action action = make_action(kind, tick, cargo.payload, cargo.shard, cargo.part);
      action.micro_batch = cargo.micro_batch;
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

std::vector<Visit> micro_batch_after_micro_batch(int shards, const std::vector<int>& micro_batches,
                                                 int first_tick) {
  std::vector<Visit> visits;
  visits.reserve(2 * static_cast<std::size_t>(shards) * micro_batches.size());
  int tick = first_tick;
  for (const int m : micro_batches) {
    for (int s = 0; s < shards; ++s) visits.push_back({tick++, s, m, false});
    for (int s = shards - 1; s >= 0; --s) visits.push_back({tick++, s, m, true});
  }
  return visits;
}

std::vector<int> own_micro_batches(int rank, int per_rank) {
  std::vector<int> own(per_rank);
  std::iota(own.begin(), own.end(), rank * per_rank);
  return own;
}

namespace {

Action action_of(Kind kind, const Visit& visit, int shard) {
  Action a = make_action(kind, visit.tick, Payload::none, shard);
  a.micro_batch = visit.micro_batch;
  return a;
}

}  // namespace

Computer::Computer(Draft& draft, int rank) : draft_(draft), rank_(rank) {}

void Computer::forward(const Visit& visit, Value weights) {
  Value& flow = flows_[visit.micro_batch];
  if (visit.shard == 0) {
    flow = draft_.value(rank_, SlotClass::flow);
    draft_.add(rank_, Phase::compute, action_of(Kind::embed, visit, -1), {flow, Draft::ends()});
  }
  kept(visit) = draft_.value(rank_, SlotClass::kept);
  draft_.add(rank_, Phase::compute, action_of(Kind::forward, visit, visit.shard),
             {weights, kept(visit), flow});
  if (visit.shard == draft_.shards() - 1)
    draft_.add(rank_, Phase::compute, action_of(Kind::loss, visit, -1),
               {flow, Draft::ends(), Draft::ends_total()});
}

void Computer::backward(const Visit& visit, Value weights, Value gradient, bool accumulate) {
  Action b = action_of(Kind::backward, visit, visit.shard);
  b.accumulates = accumulate;
  draft_.add(rank_, Phase::compute, b, {weights, kept(visit), flow(visit.micro_batch), gradient});
  kept_.erase({visit.micro_batch, visit.shard});
  embed_backward(visit);
}

void Computer::backward_input(const Visit& visit, Value weights) {
  const Value stash = draft_.value(rank_, SlotClass::stash);
  stashed_[{visit.micro_batch, visit.shard}] = stash;
  draft_.add(rank_, Phase::compute, action_of(Kind::backward_input, visit, visit.shard),
             {weights, kept(visit), flow(visit.micro_batch), stash});
  embed_backward(visit);
}

void Computer::backward_weight(const Visit& visit, Value gradient) {
  Action w = action_of(Kind::backward_weight, visit, visit.shard);
  draft_.add(rank_, Phase::compute, w, {kept(visit), stashed_[{visit.micro_batch, visit.shard}], gradient});
  kept_.erase({visit.micro_batch, visit.shard});
  stashed_.erase({visit.micro_batch, visit.shard});
}

void Computer::embed_backward(const Visit& visit) {
  if (visit.shard != 0) return;
  draft_.add(rank_, Phase::compute, action_of(Kind::embed_backward, visit, -1),
             {flow(visit.micro_batch), Draft::ends_total()});
  flows_.erase(visit.micro_batch);
}

namespace {

void combine_ends(Draft& draft, int tick, Kind kind, Payload payload, Value value) {
  Action a = make_action(kind, tick, payload);
  a.communicator = draft.world();
  draft.collective(tick, Phase::finish, a, std::vector<Value>(draft.ranks(), value));
}

/// Each shard's gradient as soon as the last contribution of its own copy is in it.
void sum_shards_over_copies(Draft& draft, int rank, int tick) {
  const std::vector<int> last = draft.last_use_of_totals(rank);
  std::vector<std::pair<int, int>> by_time;  // tick, shard
  for (int s = 0; s < draft.shards(); ++s)
    if (const Value total = draft.total(rank, s); total.valid())
      by_time.emplace_back(std::min(last[total.id], tick), s);
  std::ranges::stable_sort(by_time);
  for (const auto& [when, s] : by_time)
    draft.sum_over_copies(rank, when, Phase::give_last,
                          make_action(Kind::all_reduce, when, Payload::gradient, s, draft.home_part(rank)),
                          draft.total(rank, s));
}

/// What this rank updates of the ends, or all that it holds.
Part ends_part(const Draft& draft, int rank, bool sliced) {
  if (draft.ends_split()) return {draft.ends_slice(rank), 2};
  return sliced ? Part{rank, draft.ranks()} : Part{};
}

void update(Draft& draft, int rank, int tick, Part ends) {
  for (int s = 0; s < draft.shards(); ++s)
    if (const Value home = draft.home(rank, s); home.valid())
      draft.add(rank, Phase::finish, make_action(Kind::update, tick, Payload::weights, s),
                {home, draft.total(rank, s)});
  if (draft.holds_ends(rank))
    draft.add(rank, Phase::finish, make_action(Kind::update, tick, Payload::ends, ends.index),
              {Draft::ends(), Draft::ends_total()});
}

void close_rank(Draft& draft, int rank, int tick, bool sliced) {
  const Part ends = ends_part(draft, rank, sliced);
  if (draft.copies() > 1) {
    sum_shards_over_copies(draft, rank, tick);
    if (draft.holds_ends(rank))
      draft.sum_over_copies(rank, tick, Phase::finish,
                            make_action(Kind::all_reduce, tick, Payload::ends_gradient, -1, ends),
                            Draft::ends_total());
  }
  update(draft, rank, tick, ends);
}

}  // namespace

void close_step(Draft& draft, int tick, EndsUpdate ends) {
  const bool together = draft.ranks() > 1 && !draft.ends_split();
  const bool sliced = together && ends == EndsUpdate::sliced;
  if (!draft.ends_split()) draft.set_ends_slices(sliced ? draft.ranks() : 1);
  if (together)
    combine_ends(draft, tick, sliced ? Kind::reduce_scatter : Kind::all_reduce, Payload::ends_gradient,
                 Draft::ends_total());
  for (int r = 0; r < draft.ranks(); ++r) close_rank(draft, r, tick, sliced);
  if (sliced) combine_ends(draft, tick, Kind::all_gather, Payload::ends, Draft::ends());
  for (int r = 0; r < draft.ranks(); ++r)
    draft.add(r, Phase::finish, make_action(Kind::join, tick, Payload::none), {});
}

}  // namespace minitaw::schedule
