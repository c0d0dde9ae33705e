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

Computer::Computer(Draft& draft, int rank) : draft_(draft), rank_(rank), kept_(draft.shards()) {}

Action Computer::action(Kind kind, const Visit& visit) {
  Action a;
  a.kind = kind;
  a.tick = visit.tick;
  a.micro_batch = visit.micro_batch;
  return a;
}

void Computer::forward(const Visit& visit, Value weights) {
  if (visit.shard == 0) {
    flow_ = draft_.value(rank_, SlotClass::flow);
    draft_.add(rank_, Phase::compute, action(Kind::embed, visit), {flow_, Draft::ends()});
  }
  Value& kept = kept_[visit.shard] = draft_.value(rank_, SlotClass::kept);
  Action f = action(Kind::forward, visit);
  f.shard = visit.shard;
  draft_.add(rank_, Phase::compute, f, {weights, kept, flow_});
  if (visit.shard == draft_.shards() - 1)
    draft_.add(rank_, Phase::compute, action(Kind::loss, visit), {flow_, Draft::ends(), Draft::ends_total()});
}

void Computer::backward(const Visit& visit, Value weights, Value gradient) {
  Action b = action(Kind::backward, visit);
  b.shard = visit.shard;
  b.accumulates = gradient.cls == SlotClass::total;
  draft_.add(rank_, Phase::compute, b, {weights, kept_[visit.shard], flow_, gradient});
  if (visit.shard == 0)
    draft_.add(rank_, Phase::compute, action(Kind::embed_backward, visit), {flow_, Draft::ends_total()});
}

}  // namespace minitaw::schedule
