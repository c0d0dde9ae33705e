#include "schedule/order.hpp"

#include <numeric>

namespace minitaw::schedule {

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

Computer::Computer(Draft& draft, int rank) : draft_(draft), rank_(rank) {}

Action Computer::action(Kind kind, const Visit& visit, int shard) {
  Action a;
  a.kind = kind;
  a.tick = visit.tick;
  a.shard = shard;
  a.micro_batch = visit.micro_batch;
  return a;
}

void Computer::forward(const Visit& visit, Value weights) {
  Value& flow = flows_[visit.micro_batch];
  if (visit.shard == 0) {
    flow = draft_.value(rank_, SlotClass::flow);
    draft_.add(rank_, Phase::compute, action(Kind::embed, visit, -1), {flow, Draft::ends()});
  }
  kept(visit) = draft_.value(rank_, SlotClass::kept);
  draft_.add(rank_, Phase::compute, action(Kind::forward, visit, visit.shard), {weights, kept(visit), flow});
  if (visit.shard == draft_.shards() - 1)
    draft_.add(rank_, Phase::compute, action(Kind::loss, visit, -1),
               {flow, Draft::ends(), Draft::ends_total()});
}

void Computer::backward(const Visit& visit, Value weights, Value gradient, bool accumulate) {
  Action b = action(Kind::backward, visit, visit.shard);
  b.accumulates = accumulate;
  draft_.add(rank_, Phase::compute, b, {weights, kept(visit), flow(visit.micro_batch), gradient});
  kept_.erase({visit.micro_batch, visit.shard});
  embed_backward(visit);
}

void Computer::backward_input(const Visit& visit, Value weights) {
  const Value stash = draft_.value(rank_, SlotClass::stash);
  stashed_[{visit.micro_batch, visit.shard}] = stash;
  draft_.add(rank_, Phase::compute, action(Kind::backward_input, visit, visit.shard),
             {weights, kept(visit), flow(visit.micro_batch), stash});
  embed_backward(visit);
}

void Computer::backward_weight(const Visit& visit, Value gradient) {
  Action w = action(Kind::backward_weight, visit, visit.shard);
  draft_.add(rank_, Phase::compute, w, {kept(visit), stashed_[{visit.micro_batch, visit.shard}], gradient});
  kept_.erase({visit.micro_batch, visit.shard});
  stashed_.erase({visit.micro_batch, visit.shard});
}

void Computer::embed_backward(const Visit& visit) {
  if (visit.shard != 0) return;
  draft_.add(rank_, Phase::compute, action(Kind::embed_backward, visit, -1),
             {flow(visit.micro_batch), Draft::ends_total()});
  flows_.erase(visit.micro_batch);
}

}  // namespace minitaw::schedule
