#include "schedule/relay.hpp"

#include <algorithm>

namespace minitaw::schedule {

GroupRelay::GroupRelay(Draft& draft, const topology::Groups& teams, std::vector<int> owners,
                       RelayTiming timing, int rails)
    : draft_(draft), teams_(teams), owners_(std::move(owners)), timing_(timing), rails_(rails) {
  for (int a = 0; a < teams.count(); ++a)
    for (int b = 0; b < a; ++b) draft.cut_shards(this->rails(a, b));
}

int GroupRelay::relay(int team, int shard) const {
  if (owns(team, shard)) return owners_[shard];
  return teams_.rank(team, teams_.local(owners_[shard]) % teams_.size(team));
}

int GroupRelay::rails(int team, int other) const {
  return std::min({rails_, teams_.size(team), teams_.size(other)});
}

void GroupRelay::inside(Kind kind, int team, int root, int shard, int tick, Part part,
                        const std::vector<Value>& values) {
  const bool weights = kind == Kind::broadcast || kind == Kind::all_gather;
  Action a;
  a.kind = kind;
  a.payload = weights ? Payload::weights : Payload::gradient;
  a.shard = shard;
  a.peer = kind == Kind::broadcast || kind == Kind::reduce ? root : -1;
  a.part = static_cast<std::int16_t>(part.index);
  a.parts = static_cast<std::int16_t>(part.count);
  a.communicator = draft_.group(team);
  draft_.collective(tick, weights ? Phase::fetch_intra : Phase::give_intra, a, values);
}

// Weights

std::vector<Value> GroupRelay::fetch(int team, int shard, int tick, const Source& source) {
  const int owner = owners_[shard];
  std::vector<Value> values;
  for (const int r : teams_.members(team))
    values.push_back(r == owner ? draft_.home(r, shard) : draft_.value(r, SlotClass::weights));
  if (owns(team, shard)) {
    if (!alone(team)) inside(Kind::broadcast, team, owner, shard, tick - timing_.fetch_intra, {}, values);
  } else if (rails(team, teams_.group_of(owner)) > 1) {
    fetch_in_parts(team, shard, tick, values);
  } else {
    const bool passed_on = source.team >= 0 && !owns(source.team, shard);
    const int from = passed_on ? relay(source.team, shard) : owner;
    fetch_whole(team, shard, tick,
                {from, passed_on ? source.values[teams_.local(from)] : draft_.home(owner, shard)}, values);
  }
  return values;
}

void GroupRelay::fetch_whole(int team, int shard, int tick, Draft::Endpoint from,
                             const std::vector<Value>& values) {
  const int root = relay(team, shard);
  draft_.transfer(tick - timing_.fetch_inter, Phase::fetch_inter, {Payload::weights, shard, -1, {}}, from,
                  {root, values[teams_.local(root)]});
  if (!alone(team)) inside(Kind::broadcast, team, root, shard, tick - timing_.fetch_intra, {}, values);
}

void GroupRelay::fetch_in_parts(int team, int shard, int tick, const std::vector<Value>& values) {
  const int owner = owners_[shard], home = teams_.group_of(owner), parts = rails(team, home);
  const int sent = tick - timing_.fetch_inter;
  std::vector<Value> handed;
  for (int i = 0; i < parts; ++i) {
    const int r = teams_.rank(home, i);
    handed.push_back(r == owner ? draft_.home(owner, shard) : draft_.value(r, SlotClass::weights));
  }
  hand_out(shard, sent, handed);
  for (int i = 0; i < parts; ++i)
    draft_.transfer(sent, Phase::fetch_inter, {Payload::weights, shard, -1, {i, parts}},
                    {teams_.rank(home, i), handed[i]}, {teams_.rank(team, i), values[i]});
  put_together(team, shard, tick - timing_.fetch_intra, parts, values);
}

/// Part i from the owner to the rank with local index i of its group.
void GroupRelay::hand_out(int shard, int tick, const std::vector<Value>& parts) {
  const int owner = owners_[shard], home = teams_.group_of(owner);
  for (int i = 0; i < static_cast<int>(parts.size()); ++i)
    if (const int r = teams_.rank(home, i); r != owner)
      draft_.transfer(tick, Phase::fetch_first,
                      {Payload::weights, shard, -1, {i, static_cast<int>(parts.size())}},
                      {owner, draft_.home(owner, shard)}, {r, parts[i]});
}

/// The whole shard on every member, from the parts on the first ones.
void GroupRelay::put_together(int team, int shard, int tick, int parts, const std::vector<Value>& values) {
  if (parts == teams_.size(team)) return inside(Kind::all_gather, team, -1, shard, tick, {}, values);
  for (int i = 0; i < parts; ++i)
    inside(Kind::broadcast, team, teams_.rank(team, i), shard, tick, {i, parts}, values);
}

// Gradients

std::vector<Value> GroupRelay::gradients(int team, int shard) {
  std::vector<Value> values;
  for (const int r : teams_.members(team))
    values.push_back(alone(team) && owns(team, shard) ? draft_.total(r, shard)
                                                      : draft_.value(r, SlotClass::gradient));
  return values;
}

void GroupRelay::give(int team, int shard, int when, const std::vector<Value>& gradients) {
  const int owner = owners_[shard];
  if (!owns(team, shard) && rails(team, teams_.group_of(owner)) > 1)
    return give_in_parts(team, shard, when, gradients);
  if (!alone(team)) inside(Kind::reduce, team, relay(team, shard), shard, when, {}, gradients);
  if (!owns(team, shard)) return give_whole(team, shard, when, gradients);
  // Right behind the reduction, in the same lane.
  if (!alone(team))
    add_to_total(owner, shard, when, Phase::give_intra, Lane::gradients, {}, gradients[teams_.local(owner)]);
}

void GroupRelay::give_whole(int team, int shard, int tick, const std::vector<Value>& gradients) {
  const int owner = owners_[shard], root = relay(team, shard);
  const Value received = draft_.value(owner, SlotClass::contribution);
  draft_.transfer(tick, Phase::give_inter, {Payload::gradient, shard, -1, {}},
                  {root, gradients[teams_.local(root)]}, {owner, received});
  add_to_total(owner, shard, tick, Phase::give_inter, Lane::gradients_in, {}, received);
}

/// Member i gets the sum of part i and sends it to its twin in the owner's group, which hands it to the
/// owner.
void GroupRelay::give_in_parts(int team, int shard, int tick, const std::vector<Value>& gradients) {
  const int owner = owners_[shard], home = teams_.group_of(owner), parts = rails(team, home);
  if (parts == teams_.size(team)) inside(Kind::reduce_scatter, team, -1, shard, tick, {}, gradients);
  else
    for (int i = 0; i < parts; ++i)
      inside(Kind::reduce, team, teams_.rank(team, i), shard, tick, {i, parts}, gradients);
  const Value received = draft_.value(owner, SlotClass::contribution);
  for (int i = 0; i < parts; ++i) {
    const Part part{i, parts};
    const int twin = teams_.rank(home, i);
    const Value passing = twin == owner ? received : draft_.value(twin, SlotClass::contribution);
    draft_.transfer(tick, Phase::give_inter, {Payload::gradient, shard, -1, part},
                    {teams_.rank(team, i), gradients[i]}, {twin, passing});
    if (twin != owner)
      draft_.transfer(tick, Phase::give_last, {Payload::gradient, shard, -1, part}, {twin, passing},
                      {owner, received});
    add_to_total(owner, shard, tick, twin == owner ? Phase::give_inter : Phase::give_last, Lane::gradients_in,
                 part, received);
  }
}

void GroupRelay::add_to_total(int owner, int shard, int tick, Phase phase, Lane lane, Part part,
                              Value gradient) {
  Action add;
  add.kind = Kind::accumulate;
  add.lane = lane;
  add.payload = Payload::gradient;
  add.shard = shard;
  add.tick = tick;
  add.part = static_cast<std::int16_t>(part.index);
  add.parts = static_cast<std::int16_t>(part.count);
  draft_.add(owner, phase, add, {gradient, draft_.total(owner, shard)});
}

}  // namespace minitaw::schedule
