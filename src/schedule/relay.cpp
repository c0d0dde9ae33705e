#include "schedule/relay.hpp"

namespace minitaw::schedule {

GroupRelay::GroupRelay(Draft& draft, const topology::Groups& teams, std::vector<int> owners,
                       RelayTiming timing)
    : draft_(draft), teams_(teams), owners_(std::move(owners)), timing_(timing) {}

int GroupRelay::relay(int team, int shard) const {
  if (owns(team, shard)) return owners_[shard];
  return teams_.rank(team, teams_.local(owners_[shard]) % teams_.size(team));
}

std::vector<Value> GroupRelay::fetch(int team, int shard, int tick) {
  const int owner = owners_[shard];
  const int root = relay(team, shard);
  std::vector<Value> values;
  for (const int r : teams_.members(team))
    values.push_back(r == owner ? draft_.home(r, shard) : draft_.value(r, SlotClass::weights));
  if (!owns(team, shard))
    draft_.transfer(tick - timing_.fetch_inter, Payload::weights, shard, {owner, draft_.home(owner, shard)},
                    {root, values[teams_.local(root)]});
  if (alone(team)) return values;
  Action broadcast;
  broadcast.kind = Kind::broadcast;
  broadcast.payload = Payload::weights;
  broadcast.shard = shard;
  broadcast.peer = root;
  broadcast.communicator = draft_.group(team);
  draft_.collective(tick - timing_.fetch_intra, Phase::fetch_intra, broadcast, values);
  return values;
}

std::vector<Value> GroupRelay::gradients(int team, int shard) {
  std::vector<Value> values;
  for (const int r : teams_.members(team))
    values.push_back(alone(team) && owns(team, shard) ? draft_.total(r, shard)
                                                      : draft_.value(r, SlotClass::gradient));
  return values;
}

void GroupRelay::give(int team, int shard, int tick, const std::vector<Value>& gradients) {
  const int owner = owners_[shard];
  const int root = relay(team, shard);
  const int when = tick + timing_.give;
  if (!alone(team)) {
    Action reduce;
    reduce.kind = Kind::reduce;
    reduce.payload = Payload::gradient;
    reduce.shard = shard;
    reduce.peer = root;
    reduce.communicator = draft_.group(team);
    draft_.collective(when, Phase::give_intra, reduce, gradients);
  }
  const Value sum = gradients[teams_.local(root)];
  if (owns(team, shard)) {
    if (!alone(team)) add_to_total(owner, shard, when, Lane::intra, sum);
    return;
  }
  const Value received = draft_.value(owner, SlotClass::gradient);
  draft_.transfer(when, Payload::gradient, shard, {root, sum}, {owner, received});
  add_to_total(owner, shard, when, draft_.groups().together(root, owner) ? Lane::intra : Lane::inter,
               received);
}

void GroupRelay::add_to_total(int owner, int shard, int tick, Lane lane, Value gradient) {
  Action add;
  add.kind = Kind::accumulate;
  add.lane = lane;
  add.payload = Payload::gradient;
  add.shard = shard;
  add.tick = tick;
  // Right behind the transfer that brings the gradient, in the same lane.
  const bool reduced = lane == Lane::intra && !alone(teams_.group_of(owner));
  draft_.add(owner, reduced ? Phase::give_intra : Phase::give_inter, add,
             {gradient, draft_.total(owner, shard)});
}

}  // namespace minitaw::schedule
