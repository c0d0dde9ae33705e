#include "schedule/builder.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {

/// Sum of a block's gradient over all ranks, as soon as its last backward pass is over.
void all_reduce(Draft& draft, int tick, int shard) {
  Action a = make_action(Kind::all_reduce, tick, Payload::gradient, shard);
  a.communicator = draft.world();
  std::vector<Value> totals;
  for (int r = 0; r < draft.ranks(); ++r) totals.push_back(draft.total(r, shard));
  draft.collective(tick, Phase::give_intra, a, totals);
}

/// Data parallelism: everything on every rank, own micro-batches; a bucket is one block.
Program make(const Request& request) {
  Draft draft(request.groups, request.layers, request.micro_batches);
  int last_tick = 0;
  for (int r = 0; r < draft.ranks(); ++r) {
    for (int s = 0; s < request.layers; ++s) draft.own(r, s);
    Computer computer(draft, r);
    for (const Visit& v : micro_batch_after_micro_batch(
             request.layers, own_micro_batches(r, request.micro_batches_of_rank()), 0)) {
      v.backward ? computer.backward(v, draft.home(r, v.shard), draft.total(r, v.shard))
                 : computer.forward(v, draft.home(r, v.shard));
      last_tick = v.tick;
    }
  }
  if (draft.ranks() > 1)
    for (int s = 0; s < request.layers; ++s) all_reduce(draft, last_tick - s + 1, s);
  close_step(draft, last_tick + 1, EndsUpdate::replicated);
  return std::move(draft).finish();
}

}  // namespace

Entry schedules::ddp() {
  return {.name = "ddp",
          .doc = "data parallelism: everything on every rank, gradients all-reduced at the end of the step",
          .build = make,
          .replicable = false};
}

}  // namespace minitaw::schedule
